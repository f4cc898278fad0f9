"""Two stores that get the same calls and must answer the same, apart from ids."""

import contextlib

import msgspec

from jobpool.core.jobs.job import Job, Start
from jobpool.errors import JobpoolError
from jobpool.store.records.jobs import LeaseBatch
from jobpool.store.records.schedules import ScheduleRow, Ticked

ABOUT_ITSELF = {"close", "describe", "wake", "changed", "run_now"}
"""What is not compared: it is about one store, or an id, whose job `find` shows."""

FOLLOWING = ("follows", "followed_by")


class Names:
    """What the right store calls the jobs and tokens of the left one."""

    def __init__(self):
        self.ids = {}
        self.tokens = {}

    def learn(self, left, right):
        """Take the numbers of two answers that must mean the same."""
        for mine, other in zip(records_in(left), records_in(right), strict=True):
            if hasattr(mine, "id"):
                self.ids.setdefault(mine.id, other.id)
            if hasattr(mine, "token"):
                self.tokens.setdefault(mine.token, other.token)

    def translate(self, value):
        """Return what the left store says, or is told, in the right one's words."""
        if isinstance(value, msgspec.Struct):
            found = {
                field: self.translate(getattr(value, field))
                for field in value.__struct_fields__
            }
            if isinstance(found.get("id"), int):  # a run's is a text
                found["id"] = self.ids.get(value.id, value.id)
            for field in ("job_id", "replays", "replaced_by", *FOLLOWING):
                if isinstance(found.get(field), int):
                    found[field] = self.ids.get(found[field], found[field])
            if "token" in found:
                found["token"] = self.tokens.get(value.token, value.token)
            if isinstance(found.get("job_id"), int):  # a tick's
                found["job_id"] = self.ids.get(value.job_id, value.job_id)
            if isinstance(found.get("ids"), tuple):  # a filter's
                found["ids"] = tuple(self.ids.get(one, one) for one in value.ids)
            return type(value)(**found)
        if type(value) in {list, tuple}:  # a Charge names nothing
            return type(value)(self.translate(item) for item in value)
        return value

    def translate_answer(self, method, left, right):
        """Return an answer of the left store in the right one's words."""
        if method == "cancel_requests":
            return [self.tokens.get(token, token) for token in left]
        if method == "replay":
            self.ids.update(zip(left, right, strict=True))
            return [self.ids[one] for one in left]
        return self.translate(left)

    def translate_lease(self, job_id, token, *rest):
        """Return a row about a lease in the right one's words."""
        return (self.ids.get(job_id, job_id), self.tokens.get(token, token), *rest)


class Twins:
    """A store that is two, of different sorts, and answers as the left one does."""

    def __init__(self, left, right, names):
        self.left, self.right, self.names = left, right, names

    @property
    def one_host(self):
        """Whether a lapsed run may still lease from one of them: not to be tried."""
        return self.left.one_host or self.right.one_host

    def __getattr__(self, method):
        def ask(*arguments, **options):
            mine = answer(getattr(self.left, method), arguments, options)
            if method in {"cancel", "revive"}:
                words = [[self.names.ids.get(one, one) for one in arguments[0]]]
                words += arguments[1:]
            elif method == "begin_attempts":
                rows = [self.names.translate_lease(*row) for row in arguments[0]]
                words = [[Start(*row) for row in rows]]
            elif method == "clear":
                words = [[self.names.translate_lease(*row) for row in arguments[0]]]
            elif method in {"get", "payload", "attempts"}:
                words = [self.names.ids.get(one, one) for one in arguments]
            else:
                words = self.names.translate(list(arguments))
            other = answer(getattr(self.right, method), words, options)
            is_answered = not isinstance(mine, Exception | type(None))
            if method in {"enqueue", "lease", "find"} and is_answered:
                assert type(other) is type(mine), method
                self.names.learn(mine, other)
            if method not in ABOUT_ITSELF:
                expected = said(self.names.translate_answer(method, mine, other))
                assert said(other) == expected, f"{method}: {other} for {expected}"
            if isinstance(mine, Exception):
                raise mine
            return mine

        return ask

    def transaction(self):
        """Open one on both sides."""
        exits = contextlib.ExitStack()
        exits.enter_context(self.left.transaction())
        exits.enter_context(self.right.transaction())
        return exits


def answer(method, arguments, options):
    """Return what a method returns, or the error that it raises."""
    try:
        return method(*arguments, **options)
    except JobpoolError as error:
        return error


def said(value):
    """Return an answer as it is compared: errors by their sort, jobs without refs.

    A ref is made with the store's own key. Texts do not name the same jobs.
    """
    if isinstance(value, Exception):
        return type(value)
    if isinstance(value, Job):
        return msgspec.structs.replace(value, ref="")
    if isinstance(value, ScheduleRow) and value.paused_by == "jobpool":
        return msgspec.structs.replace(value, note="its job is dead")
    if isinstance(value, Ticked):
        told = [(one.name, one.missed, one.late_ms) for one in value.notices]
        return msgspec.structs.replace(value, notices=tuple(told))
    return [said(one) for one in value] if type(value) is list else value


def records_in(value):
    """Return the records of an answer, in order."""
    return value.leases if isinstance(value, LeaseBatch) else value
