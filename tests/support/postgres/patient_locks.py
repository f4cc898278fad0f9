"""Transactions that wait for locks as long as a busy machine keeps the others at work.

A store gives a lock up after three seconds. Where a test has many sessions take turns,
or stops one at each statement of another, that time passes on a busy machine though
nobody waits for anything but the processor.
"""

import contextlib
from collections.abc import Iterator, Mapping
from unittest import mock

from jobpool.store.postgres.connection import session

_BEGUN = "begun"
_BRIEF, _LONG = "'lock_timeout', '3s'", "'lock_timeout', '15s'"
"""Less than a statement may take: that still ends what waits for ever."""


@contextlib.contextmanager
def patient_locks() -> Iterator[None]:
    """Let the stores that are opened meanwhile be patient."""
    usual = session.queries_of

    def patient(schema: str) -> Mapping[str, str]:
        queries = usual(schema)
        assert _BRIEF in queries[_BEGUN]
        return {**queries, _BEGUN: queries[_BEGUN].replace(_BRIEF, _LONG)}

    with mock.patch.object(session, "queries_of", patient):
        yield
