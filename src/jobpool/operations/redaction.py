"""Hides what kinds redact, in all that is shown of a job.

What a kind hides is what the newest supervisor that knew it has published, whether it
lives or not. Of a kind that none has ever known, nothing can be hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobpool.core.application.codec import is_encoded_json
from jobpool.core.application.handler_spec import HOOK_DEAD, HOOK_QUARANTINED
from jobpool.core.application.redaction import (
    HIDDEN,
    hidden,
    redaction_in,
    scrubbed,
    scrubbed_json,
    secrets_in,
    told_of,
)
from jobpool.core.jobs.job import Attempt, Job, NewJob
from jobpool.core.rules.quotas.definition import Quota
from jobpool.store.protocol import Store
from jobpool.store.records.jobs import KeptOutput
from jobpool.store.records.quotas import BucketRow
from jobpool.store.records.runs import KindRecord

_OF_A_HOOK = ("job.payload",)
"""Where the arguments of a dead job stand, as base64."""


class Redactor:
    """Knows what each kind hides.

    Args:
        store: has the jobs.
        kinds: as it knows them.
        is_off: nothing is hidden: somebody who may see it has asked for that.
    """

    def __init__(
        self, store: Store, kinds: Sequence[KindRecord], *, is_off: bool = False
    ) -> None:
        self._store = store
        self._paths: dict[str, tuple[str, ...]] = {}
        self._known = {kind.kind for kind in kinds}
        for kind in () if is_off else kinds:
            said = redaction_in(kind.schema)
            if said is not None:
                for name in (*said.aliases, kind.kind):
                    self._paths[name] = said.paths

    @property
    def hides_anything(self) -> bool:
        """Whether any kind hides something."""
        return bool(self._paths)

    def knows(self, kind: str) -> bool:
        """Say whether any supervisor has said what a kind hides, be it nothing."""
        return kind in self._known or kind in self._paths

    def may_hide(self, kind: str) -> bool:
        """Say whether jobs of a kind may hide something; a hook's hold others'."""
        return bool(self._paths) and (
            kind in self._paths or kind in (HOOK_DEAD, HOOK_QUARANTINED)
        )

    def hides(self, path: str) -> bool:
        """Say whether any kind hides an argument, or what it is a part of.

        Args:
            path: as what a quota counts by: ``customer.iban``.
        """
        return any(
            path == one or path.startswith(f"{one}.")
            for paths in self._paths.values()
            for one in paths
        )

    def buckets(
        self, buckets: Sequence[BucketRow], quota: Quota | None
    ) -> list[BucketRow]:
        """Return buckets to be shown: without values if a hidden argument has those.

        Args:
            buckets: of one quota.
            quota: says what it counts by; None: nobody knows.
        """
        path = None if quota is None else quota.path
        if path is None or not self.hides(path):
            return list(buckets)
        return [msgspec.structs.replace(one, value=HIDDEN) for one in buckets]

    def of(self, job: Job) -> Redaction:
        """Return what is to be hidden of one job."""
        if job.is_erased or not self.may_hide(job.kind):
            return NOTHING
        kind, arguments = told_of(job.kind, self._store.payload(job.id))
        paths = self._paths.get(kind)
        if paths is None:
            return NOTHING
        shown = paths if kind == job.kind else _OF_A_HOOK
        return Redaction(shown, secrets_in(_value(arguments), paths))

    def shows(self, job: Job, text: str | None) -> bool:
        """Say whether a text that somebody looks for stands in what is shown of a job.

        A filter finds it in what is stored: who asks again and again, a letter more
        each time, must not learn so what is hidden from them.

        Args:
            job: as stored.
            text: as in a `Filter`; None: nothing is looked for.
        """
        if text is None or text in (job.key or "") or text in (job.tenant or ""):
            return True
        return text in (self.of(job).text(job.reason) or "")

    def of_arguments(self, kind: str, payload: bytes) -> Redaction:
        """Return what is to be hidden of arguments that are no job's yet."""
        paths = self._paths.get(kind)
        if paths is None:
            return NOTHING
        return Redaction(paths, secrets_in(_value(payload), paths))

    def of_change(self, job: Job, before: bytes, new: NewJob) -> Redaction:
        """Return what is to be hidden of a job and of the one that is to replace it."""
        paths = {*self._paths.get(job.kind, ()), *self._paths.get(new.kind, ())}
        if not paths:
            return NOTHING
        found = [
            text
            for payload in (before, new.payload)
            for text in secrets_in(_value(payload), tuple(paths))
        ]
        return Redaction(tuple(paths), sorted(found, key=len, reverse=True))


class Redaction:
    """What is to be hidden of one job.

    Args:
        paths: of its arguments; the same names are hidden in results and progress.
        secrets: the values there, as they may stand in texts.
    """

    def __init__(self, paths: Sequence[str], secrets: Sequence[str]) -> None:
        self._paths = paths
        self._secrets = secrets

    def payload(self, payload: bytes | None) -> bytes | None:
        """Return arguments to be shown; those that are no object are hidden as one."""
        if not self._paths or payload is None or is_encoded_json(payload):
            return payload
        value = _value(payload)
        return msgspec.json.encode(
            self._shown(value) if isinstance(value, dict) else HIDDEN
        )

    def json(self, text: bytes | None) -> bytes | None:
        """Return a result or progress to be shown."""
        if not self._paths or text is None:
            return text
        return msgspec.json.encode(self._shown(_value(text)))

    def text(self, text: str | None) -> str | None:
        """Return a text to be shown."""
        return None if text is None else scrubbed(text, self._secrets)

    def job(self, job: Job) -> Job:
        """Return a job to be shown."""
        if not self._paths:
            return job
        return msgspec.structs.replace(
            job,
            reason=self.text(job.reason),
            error=self.text(job.error),
            result=self.json(job.result),
            progress=self.json(job.progress),
            checkpoint=None,
        )

    def attempts(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return attempts to be shown."""
        return [
            msgspec.structs.replace(
                one,
                reason=self.text(one.reason),
                error=self.text(one.error),
                traceback=self.text(one.traceback),
                stack=self.text(one.stack),
                output=self.text(one.output),
            )
            if self._paths
            else one
            for one in attempts
        ]

    def kept(self, kept: KeptOutput | None) -> KeptOutput | None:
        """Return a successful attempt's output to be shown."""
        if kept is None or not self._paths:
            return kept
        return msgspec.structs.replace(kept, output=self.text(kept.output))

    def value(self, value: Any, steps: Sequence[str | int]) -> Any:
        """Return a part of arguments to be shown.

        Args:
            value: the part, as JSON has it.
            steps: names and indexes that lead to it.
        """
        return self._shown(value, steps) if self._paths else value

    def _shown(self, value: Any, steps: Sequence[str | int] = ()) -> Any:
        try:
            return scrubbed_json(hidden(value, self._paths, steps), self._secrets)
        except RecursionError:
            return HIDDEN


NOTHING = Redaction((), ())
"""Everything is shown."""


def _value(text: bytes | None) -> Any:
    """Return a JSON value; what is not JSON is a text."""
    try:
        return msgspec.json.decode(text or b"null")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return (text or b"").decode("utf-8", "replace")
