"""Quotas of SQLite and PostgreSQL against the plain model."""

from jobpool.store.opening import open_store
from support.postgres.server import server
from support.store.hypothesis_machine import StoreMachine, depth
from support.store.quota_machine import QuotaMachine


class SqliteQuotaMachine(QuotaMachine):
    """The model beside SQLite."""

    make_store = StoreMachine.make_store


class PostgresQuotaMachine(QuotaMachine):
    """The model beside PostgreSQL, with the model's clock in the server's place."""

    def make_store(self):
        url = server().store_url()
        self.exits.callback(server().drop, url)
        return lambda: open_store(url, clock=self.clock)


TestSqliteQuotas = SqliteQuotaMachine.TestCase
TestSqliteQuotas.settings = depth(15, 40)
TestPostgresQuotas = PostgresQuotaMachine.TestCase
TestPostgresQuotas.settings = depth(5, 40)
