"""Folding: what follows from how members have ended.

Theory of operation. Nothing is counted as it happens. Whatever statement ends a member
leaves a note of its step (a trigger), in its own transaction. A fold takes notes, looks
at these steps and at those after them, and does what `core.rules.flows` says; what it
has no room for it notes again. So a note too many changes nothing, and one that is
committed later is folded later.

Where there are many writers, a fold first locks the flows whose steps are noted, unless
somebody else folds them; only then it reads, in statements that see what was committed
before. Nobody but who holds a flow's lock changes its steps. Whoever ends a member only
inserts: it waits for nobody.

While a flow is paused, nothing of it is opened; what has ended counts. An external step
runs out of time then, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar, Protocol

from jobpool.core.jobs.flow import (
    UNAPPROVED,
    Ending,
    FlowState,
    StepState,
    When,
    skip_reason,
)
from jobpool.core.rules.flows import (
    Before,
    Next,
    end_of,
    ended,
    ends_flow,
    opened,
    opened_hook,
)
from jobpool.store.operations.flows.repair import Note, repair_flows
from jobpool.store.operations.flows.rows import (
    Contested,
    Head,
    Seen,
    read_before,
    read_head,
    read_hook,
    read_step,
    read_when,
)
from jobpool.store.records.flows import Folded
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Database, OwnSession, Query, Row

_LIVE = frozenset((StepState.READY, StepState.SKIPPING))
_UNENDED = _LIVE | {StepState.CLOSED}
FOLD_STEPS = 1000
"""So many notes one fold takes; it opens, and it cancels, as many members."""


class _Store(Protocol):
    """What folding needs of a store."""

    _database: Database
    _CONTESTED: ClassVar[Contested | None]

    def _note(self, what: str, fate: str) -> None: ...


class Folding:
    """The part of the store that folds."""

    _database: Database
    _CONTESTED: ClassVar[Contested | None] = None
    """What is needed where others write meanwhile; None: a writer is alone."""

    def fold(self: _Store, limit: int = FOLD_STEPS) -> Folded:
        """See `Store.fold`."""
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            if not session.value("has_flow_notes", now_ms=now_ms):
                return Folded()
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session, fresh=True)
            return fold(session, now_ms, self._CONTESTED, self._note, limit)


def fold(
    session: OwnSession,
    now_ms: int,
    contested: Contested | None,
    note: Note,
    limit: int = FOLD_STEPS,
) -> Folded:
    """Fold, in a transaction.

    Args:
        session: in it.
        now_ms: the store's clock.
        contested: see `Folding._CONTESTED`.
        note: told of flows with damaged rows.
        limit: how many notes at most, and how many members to open and to cancel.
    """
    noted, overdue = session.ask(
        ("flow_noted", {"limit": limit}),
        ("flow_overdue", {"now_ms": now_ms, "limit": limit}),
    )
    notes = [
        (note_id, step, flow if type(flow) is int else None)
        for note_id, step, flow in noted
    ]
    wanted = {flow for *_, flow in (*notes, *overdue) if type(flow) is int}
    if not notes and not wanted:
        return Folded()
    mine = wanted
    if contested and wanted:
        found = session.rows(contested.lock, flows=as_json(sorted(wanted)))
        mine = {flow for (flow,) in found}
    done = [note_id for note_id, _, flow in notes if flow is None or flow in mine]
    is_short = len(notes) == limit or len(overdue) == limit or mine != wanted
    steps = {step for _, step, flow in notes if flow in mine}
    steps |= {step for step, flow in overdue if flow in mine}
    work = _Fold(session, now_ms, limit, contested=contested)
    if done:
        work.put_off("delete_flow_notes", notes=as_json(done))
    if mine:
        work.run(mine, steps)
    work.flush()
    if work.damaged:
        repair_flows(session, work.damaged, now_ms, note)
    return Folded(
        is_short=is_short or work.is_short or bool(work.damaged),
        opened=frozenset(work.pools),
        canceled=work.has_canceled,
    )


def _looks(steps: Collection[int]) -> tuple[Query, Query]:
    """Return the queries for what `_Fold._look` needs of steps."""
    given = {"steps": as_json(steps)}
    return ("flow_steps", given), ("steps_before", given)


class _Fold:
    """One fold.

    Writes whose answer says nothing are put off, and sent along with the next query:
    over a network a round trip takes longer than either.

    Args:
        session: in its transaction.
        now_ms: the store's clock.
        limit: how many steps, and how many members.
        contested: see `Folding._CONTESTED`.
    """

    def __init__(
        self,
        session: OwnSession,
        now_ms: int,
        limit: int,
        *,
        contested: Contested | None,
    ) -> None:
        self._session = session
        self._missed = contested and contested.missed
        self._now_ms = now_ms
        self._limit = limit
        self._steps_left = limit
        self._to_open = limit
        self._to_cancel = limit
        self.damaged: set[int] = set()
        self._ahead: list[Query] = []
        self._heads: dict[int, Head] = {}
        self._left: dict[int, int] = {}
        """Plain steps that were seen and have not ended, and their flows."""
        self.pools: set[str] = set()
        self.is_short = False
        self.has_canceled = False

    def _spoil(self, flow: int) -> None:
        """Leave a flow alone: a row of it is damaged."""
        self.damaged.add(flow)
        self._heads.pop(flow, None)

    def put_off(self, name: str, **parameters: Any) -> None:
        """Run a statement along with the next one."""
        self._ahead.append((name, parameters))

    def flush(self) -> None:
        """Run what was put off."""
        if self._ahead:
            self._ask()

    def _ask(self, *queries: Query) -> list[list[Row]]:
        """Run queries after what was put off; return the rows of each."""
        ahead, self._ahead = self._ahead, []
        return self._session.ask(*ahead, *queries)[len(ahead) :]

    def _rows(self, name: str, **parameters: Any) -> list[Row]:
        return self._ask((name, parameters))[0]

    def run(self, flows: Iterable[int], steps: Collection[int]) -> None:
        """Look at steps, at what follows, and at whether their flows have ended.

        Args:
            flows: whose notes were taken; nobody else changes them.
            steps: of these.
        """
        todo = set(steps)
        chosen = self._chosen(todo)
        heads, *found = self._ask(
            ("flow_heads", {"flows": as_json(flows)}), *_looks(chosen)
        )
        for row in heads:
            if (head := read_head(row)) is None:
                self._spoil(row[0])
            elif head.state is not FlowState.BUILDING:
                self._heads[head.id] = head
        todo |= self._look(*found)
        while True:
            while todo and self._steps_left > 0:
                todo |= self._look(*self._ask(*_looks(self._chosen(todo))))
            if todo or not (todo := self._end()):
                break
        self._again(todo)

    def _chosen(self, todo: set[int]) -> list[int]:
        """Take the steps to be looked at next."""
        chosen = sorted(todo)[: self._steps_left]
        todo -= {*chosen}
        self._steps_left -= len(chosen)
        return chosen

    def _again(self, steps: Collection[int]) -> None:
        """Have another fold look at steps."""
        if steps:
            self.put_off("note_steps", steps=as_json(steps))
            self.is_short = True

    def _look(self, found: Sequence[Row], before: Sequence[Row]) -> set[int]:
        """Do what follows for some steps; return those that may follow them.

        Args:
            found: rows of flow_steps.
            before: rows of steps_before, for those that are closed.
        """
        seen = []
        for row in found:
            if row[1] in self._heads:
                if step := read_step(row):
                    seen.append(step)
                else:
                    self._spoil(row[1])
        changed = self._decide([s for s in seen if s.state is StepState.CLOSED], before)
        changes = {step.id: next_ for step, next_ in changed}
        seen = [
            step._replace(state=next_.state, failed=next_.failed)
            if (next_ := changes.get(step.id))
            else step
            for step in seen
            if step.flow in self._heads
        ]
        live = [s for s in seen if s.state in _LIVE]
        ends = [
            (step, next_)
            for step in live
            if (
                next_ := ended(
                    step.state,
                    failed=step.failed,
                    is_unfinished=step.is_unfinished,
                    is_bad=step.is_bad,
                )
            )
        ]
        over = {step.id for step, _ in ends}
        self._set([*(one for one in changed if one[0].id not in over), *ends])
        for step in seen:
            if step.hook is None and step.state in _UNENDED:
                self._left[step.id] = step.flow
        for step_id in over:
            self._left.pop(step_id, None)
        return self._act(live) | self._follow(ends)

    def _decide(
        self, closed: Sequence[Seen], before: Iterable[Row]
    ) -> list[tuple[Seen, Next]]:
        """Return which closed plain steps do not stay so."""
        candidates = {
            step.id: step
            for step in closed
            if step.hook is None
            and (head := self._heads.get(step.flow))
            and head.state is FlowState.OPEN
        }
        edges = defaultdict[int, list[Before]](list)
        for to, *columns in before:
            if (step := candidates.get(to)) is None:
                continue
            if edge := read_before(columns):
                edges[to].append(edge)
            else:
                self._spoil(step.flow)
        return [
            (step, next_)
            for step in candidates.values()
            if (head := self._heads.get(step.flow))
            and (next_ := opened(edges[step.id], head.ending))
        ]

    def _act(self, live: Sequence[Seen]) -> set[int]:
        """Open and cancel members; return the steps to be looked at again."""
        live = [step for step in live if step.is_unfinished]
        over = [(step, why) for step in live if (why := self._over(step))]
        done = {step.id for step, _ in over}
        waiting = [
            step.id
            for step in live
            if step.is_waiting
            and not step.external
            and step.id not in done
            and self._heads[step.flow].state is FlowState.OPEN
        ]
        if waiting:
            self._open(waiting)
        stopped = [
            step.id
            for step, _ in over
            if self._heads[step.flow].ending is Ending.CANCEL and step.hook is None
        ]
        if stopped:
            self.put_off("stop_members", steps=as_json(stopped))
        return self._cancel(over, stopped) if over else set()

    def _over(self, step: Seen) -> str | None:
        """Return why what has not begun of a step is canceled; None: it is not."""
        ending = self._heads[step.flow].ending
        if step.state is StepState.SKIPPING:
            return skip_reason(ending, failed=step.failed)
        if ending is not None and step.hook is None:
            return skip_reason(ending, failed=False)
        if step.until_ms is not None and step.until_ms <= self._now_ms:
            return UNAPPROVED
        return None

    def _open(self, steps: Sequence[int]) -> None:
        """Let members begin."""
        if self._to_open:
            found = self._rows(
                "open_members",
                steps=as_json(steps),
                now_ms=self._now_ms,
                limit=self._to_open,
            )
            self._to_open -= len(found)
            self.pools |= {pool for (pool,) in found}
        if not self._to_open:
            self._again(steps)

    def _cancel(
        self, over: Sequence[tuple[Seen, str]], stopped: Sequence[int]
    ) -> set[int]:
        """End members that have not begun; return the steps that may have ended so.

        Args:
            over: steps, and why.
            stopped: those whose running members were asked to stop.
        """
        steps = {step.id for step, _ in over}
        count = 0
        if self._to_cancel:
            self.flush()
            count = self._session.run(
                "cancel_members",
                rows=as_json((step.id, why) for step, why in over),
                now_ms=self._now_ms,
                limit=self._to_cancel,
            )
            self._to_cancel -= count
            self.has_canceled |= bool(count)
        if not self._to_cancel:
            self._again(steps)
            return set()
        if self._missed:
            # What somebody else held was passed over. What runs leaves a note.
            given = {"steps": as_json(steps), "stopped": as_json(stopped)}
            missed = self._rows(self._missed, **given)
            self._again([step for (step,) in missed])
        return steps if count else set()

    def _set(self, changes: Sequence[tuple[Seen, Next]]) -> None:
        """Store what has become of steps."""
        rows: list[tuple[Any, ...]] = [
            (
                step.id,
                next_.state,
                int(next_.failed),
                self._now_ms + step.timeout_ms
                if next_.state is StepState.READY and step.timeout_ms is not None
                else None,
            )
            for step, next_ in changes
        ]
        self._store(rows)

    def _store(self, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self.put_off("set_steps", rows=as_json(rows))

    def _follow(self, ends: Sequence[tuple[Seen, Next]]) -> set[int]:
        """Return the steps after those that have ended; end flows that have failed."""
        plain = [(step, next_) for step, next_ in ends if step.hook is None]
        if not plain:
            return set()
        out = defaultdict[int, list[When]](list)
        after: set[int] = set()
        ids = as_json(step.id for step, _ in plain)
        flow_of = {step.id: step.flow for step, _ in plain}
        for from_, to, value in self._rows("edges_out", steps=ids):
            if (when := read_when(value)) and type(to) is int:
                out[from_].append(when)
                after.add(to)
            else:
                self._spoil(flow_of[from_])
        failed = {
            step.flow
            for step, next_ in plain
            if (head := self._heads.get(step.flow))
            and head.ending is None
            and ends_flow(next_, out[step.id], head.failure)
        }
        if failed:
            after |= self._stop(failed)
        return after

    def _stop(self, flows: Collection[int]) -> set[int]:
        """Let nothing more of flows begin; return steps to be looked at for that."""
        given = as_json(flows)
        self.put_off("set_ending", flows=given, ending=Ending.FAIL)
        for flow in flows:
            self._heads[flow] = self._heads[flow]._replace(ending=Ending.FAIL)
        rows = self._rows("unended_steps", flows=given, limit=self._limit)
        if len(rows) == self._limit:
            self.put_off("note_flows", flows=given)
            self.is_short = True
        return {step for (step,) in rows}

    def _end(self) -> set[int]:
        """Begin the hooks of flows that have no plain step left, or end them.

        Returns:
            The hooks to be looked at.
        """
        asked = self._heads.keys() - self._left.values()
        if not asked:
            return set()
        rows = self._rows("flows_left", flows=as_json(sorted(asked)))
        ends = {
            flow: end_of(self._heads[flow].ending, any_failed=bool(any_failed))
            for flow, has_plain, _, any_failed in rows
            if not has_plain
        }
        over = [(flow, ends[flow]) for flow, _, has_any, _ in rows if not has_any]
        if over:
            self.put_off("end_flows", rows=as_json(over), now_ms=self._now_ms)
            for flow, _ in over:
                del self._heads[flow], ends[flow]
        open_ = [f for f in ends if self._heads[f].state is FlowState.OPEN]
        if not open_:
            return set()
        rows = self._rows("closed_hooks", flows=as_json(open_))
        read = [(step, flow, read_hook(hook)) for step, flow, hook in rows]
        for _, flow, hook in read:
            if hook is None:
                self._spoil(flow)
        hooks = [
            (step, *opened_hook(hook, ends[flow]))
            for step, flow, hook in read
            if hook and flow in self._heads
        ]
        self._store([(step, state, int(failed), None) for step, state, failed in hooks])
        return {step for step, *_ in hooks}
