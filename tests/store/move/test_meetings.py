"""A queue moves into a store with other jobs: which of those are in conflict."""

import contextlib
from types import SimpleNamespace

import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import FINISHED
from jobpool.errors import StoreRefused
from jobpool.store.move import move
from jobpool.store.move import source as move_source
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.postgres.server import server
from support.store.storing import new_job


@pytest.fixture
def two(database_path, clock):
    """A queue in a file, and one on PostgreSQL whose ids differ."""
    urls = f"sqlite:///{database_path}", server().store_url()
    source, target = (open_store(url, clock=clock) for url in urls)
    old = target.enqueue([new_job()] * 5)
    target.cancel([one.id for one in old])
    clock.advance(1)
    target.prune(Retention(**{f"{state}_s": 0.0 for state in FINISHED}))
    yield SimpleNamespace(source=source, target=target, move=lambda: move.move(*urls))
    source.close()
    target.close()
    server().drop(urls[1])


@pytest.mark.parametrize(
    ("mine", "theirs", "meet"),
    [
        ({"key": "k"}, {"key": "k"}, True),
        ({"key": "k"}, {"key": "l"}, False),
        ({"key": "k"}, {"key": "k", "kind": "other"}, False),
        ({"unique": "u"}, {"unique": "u"}, True),
        ({"unique": "u"}, {"unique": "v"}, False),
        ({"unique": "u"}, {"unique": "u", "kind": "other"}, False),
        ({"unique": "u"}, {}, False),
        ({}, {}, False),
    ],
)
def test_keys_and_unique_texts_conflict_only_within_their_kind(two, mine, theirs, meet):
    """Without conflicts two queues become one; otherwise nothing is changed."""
    two.source.enqueue([new_job(**mine), new_job()])
    two.target.enqueue([new_job(**theirs), new_job()])
    if meet:
        with pytest.raises(StoreRefused, match="1 jobs have ids or keys"):
            two.move()
    else:
        assert two.move().jobs == 2
    assert two.target.count(Filter()) == (2 if meet else 4)


def test_a_unique_text_is_free_when_its_job_has_ended(two):
    """In either store; a key is not."""
    for store, text in ((two.source, "u"), (two.target, "v")):
        (ended,) = store.enqueue([new_job(unique=text)])
        store.cancel([ended.id])
    two.source.enqueue([new_job(unique="v")])
    two.target.enqueue([new_job(unique="u")])
    assert two.move().jobs == 2
    (held,) = two.target.enqueue([new_job(unique="v")])
    assert not held.created


def test_nothing_can_fail_once_a_queue_is_closed(database_path):
    """An error after the commit would say that nothing had happened."""
    open_store(f"sqlite:///{database_path}").close()
    statements = []
    with contextlib.closing(move_source.Source(str(database_path))) as source:
        with source._file.reading() as session:
            session.connection.set_trace_callback(statements.append)
        source.close_queue("postgresql://new.example/jobs")
        session.connection.set_trace_callback(None)
    assert statements[-1].startswith("COMMIT")
