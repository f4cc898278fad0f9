"""The store against a plain model, and SQLite and PostgreSQL against each other.

The rules are in ``store_machine``. Where both stores run side by side every answer of
one is compared with the other's, and so is everything that people can see.
More: ``JOBPOOL_MODEL_EXAMPLES=500 scripts/test tests/property/test_store_model.py
--timeout 7200``.
"""

from hypothesis.stateful import invariant

from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.postgres.server import server
from support.store.hypothesis_machine import StoreMachine, depth
from support.store.model import KINDS
from support.store.twins import Names, Twins


class SqliteMachine(StoreMachine):
    """The model beside SQLite, and its estimate of the queue's depth."""

    @invariant()
    def estimate_holds(self):
        with self.stores[1]._database.reading() as session:
            at_most = session.value("counter", name="unfinished_at_most")
            unfinished = session.value("count_unfinished")
        assert unfinished <= at_most


class PostgresMachine(StoreMachine):
    """The model beside PostgreSQL, with the model's clock in the server's place."""

    def make_store(self):
        url = server().store_url()
        self.exits.callback(server().drop, url)
        return lambda: open_store(url, clock=self.clock)


class TwinMachine(StoreMachine):
    """The model beside both, each of whose answers must be the other's."""

    def make_store(self):
        open_left = super().make_store()
        open_right = PostgresMachine.make_store(self)
        names = Names()
        return lambda: Twins(open_left(), open_right(), names)

    def teardown(self):
        try:
            for job in self.stores[0].find(Filter(), 10**6):
                self.stores[0].get(job.id)
                self.stores[0].payload(job.id)
                self.stores[0].attempts(job.id)
        finally:
            super().teardown()

    @invariant()
    def people_see_the_same(self):
        store = self.stores[0]
        store.groups(Filter())
        store.stats()
        store.figures()
        store.waiting()
        store.paused()
        store.open_runs()
        store.due(KINDS, 3)


TestSqliteModel = SqliteMachine.TestCase
TestSqliteModel.settings = depth(20, 50)
TestPostgresModel = PostgresMachine.TestCase
TestPostgresModel.settings = depth(6, 50)
TestTwins = TwinMachine.TestCase
TestTwins.settings = depth(5, 40)
