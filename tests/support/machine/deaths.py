"""Whether the right job was charged for each death: parts of I7 and I8 of `invariants`.

A recovery is the price of a supervisor's or a host's death, and only a job that was
alone there may be charged it. What ran where at each death is counted here from what
the attempts themselves have reported; which job caused it, from the scripts of those
that did.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from support.store.history import (
    Ended,
    History,
    Operated,
    RunBegan,
    RunEnded,
    Settled,
    Started,
    Struck,
)

STRIKES_MAX = 14
"""A job may kill its host so often where nothing else goes wrong: 2 deaths that come
too soon to say anything, 6 until its probation is longer than it takes (up to ten
minutes), one beside others that were there before it, and 5 that it pays for."""
Finding = tuple[int, str]
Death = tuple[str, float]
"""Where, and when: all that ended on one host at one time is one death."""


class Deaths:
    """What ran at each death, and what caused it."""

    def __init__(self, history: History) -> None:
        self.of_run: dict[str, Death] = {}
        self.took: defaultdict[Death, set[int]] = defaultdict(set)
        """Tokens of the attempts that ran."""
        self.striker: dict[Death, int] = {}
        self._host: dict[str, str] = {}
        self._running: dict[int, str] = {}
        """The run of each attempt."""
        for record in history.records:
            self._read(record)

    def _read(self, record: object) -> None:
        running = self._running
        if type(record) is RunBegan:
            self._host[record.run] = record.host
        elif type(record) is Started:
            running[record.token] = record.run
        elif type(record) is Ended:
            running.pop(record.token, None)
        elif type(record) is Settled and record.by_itself:
            # Its job is done, whatever the attempt still does.
            running.pop(record.token, None)
        elif _is_loss(record) and record.presumed:
            moment = self._host.get(record.holder, ""), record.at_s
            self.took[moment] |= {t for t, r in running.items() if r == record.holder}
        elif type(record) is Struck:
            self.striker[record.host, record.at_s] = record.job
        elif type(record) is RunEnded:
            death = self._host.get(record.run, ""), record.at_s
            self.of_run[record.run] = death
            self.took[death] |= {t for t, run in running.items() if run == record.run}


def unjust_losses(history: History) -> Iterator[Finding]:
    """Yield jobs charged for a death that another caused or may have caused."""
    deaths = Deaths(history)
    hit_by: defaultdict[int, set[int]] = defaultdict(set)
    for record in history.records:
        if type(record) is Operated and record.what == "revive":
            hit_by[record.job].clear()
        if not _is_loss(record) or record.holder not in deaths.of_run:
            continue
        death = deaths.of_run[record.holder]
        if record.presumed and death[1] > record.at_s:
            # Its lease had expired: its run's later death is charged to no job.
            death = death[0], record.at_s
        striker = deaths.striker.get(death, record.job)
        hit_by[record.job].add(striker)
        if record.costs == "a recovery":
            if others := deaths.took[death] - {record.token}:
                text = f"{record.token} paid for a death beside {sorted(others)}"
                yield record.job, text
            if striker != record.job:
                yield record.job, f"{record.token} paid for a strike of job {striker}"
        if record.state == "quarantined" and record.job not in hit_by[record.job]:
            yield record.job, "set aside for what others had done"


def long_killers(history: History) -> Iterator[Finding]:
    """Yield jobs that killed their host repeatedly, where nothing else went wrong."""
    if not history.calm:
        return
    strikes: Counter[int] = Counter()
    for record in history.of(Struck):
        strikes[record.job] += 1
    for job, count in strikes.items():
        if count > STRIKES_MAX:
            yield job, f"killed its supervisor or host {count} times"


def _is_loss(record: object) -> bool:
    return (
        type(record) is Settled
        and record.receipt == "accepted"
        and record.outcome == "lost"
    )
