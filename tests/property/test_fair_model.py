"""Fair and aged pools of SQLite and PostgreSQL against the plain model."""

from jobpool.store.opening import open_store
from support.postgres.server import server
from support.store.fair_machine import FairMachine
from support.store.hypothesis_machine import StoreMachine, depth


class SqliteFairMachine(FairMachine):
    """The model beside SQLite."""

    make_store = StoreMachine.make_store


class PostgresFairMachine(FairMachine):
    """The model beside PostgreSQL, with the model's clock in the server's place."""

    def make_store(self):
        url = server().store_url()
        self.exits.callback(server().drop, url)
        return lambda: open_store(url, clock=self.clock)


TestSqliteShares = SqliteFairMachine.TestCase
TestSqliteShares.settings = depth(8, 20)
TestPostgresShares = PostgresFairMachine.TestCase
TestPostgresShares.settings = depth(8, 20)
