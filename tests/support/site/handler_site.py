"""A store, and beside it the connection of a handler that completes jobs itself."""

import sqlite3

import msgspec

from jobpool.core.application.current import Claim
from jobpool.core.jobs.job import Progress
from jobpool.core.rules.admission import Admission
from jobpool.store import handler_transactions
from jobpool.store.opening import open_store
from support.postgres.server import server
from support.store.storing import begin_run, ended, lease_one, new_job, started

FIGURES = {"peak_rss_bytes": 4096, "cpu_s": 0.5, "duration_s": 2.0, "slot": "cpu/7"}
_replace = msgspec.structs.replace


class Site:
    """A store with a run, and a handler's connection to its database."""

    def __init__(self, url, clock):
        self.url, self.store_ms = url, clock.utc_ms
        self.store = open_store(url, clock=clock)
        begin_run(self.store)
        self.connection = self.connect()

    def connect(self):
        if self.url.startswith("sqlite"):
            return sqlite3.connect(self.url.removeprefix("sqlite:///"))
        connection = server().connect(self.url)
        connection.autocommit = False
        return connection

    def claim(self, granted, depth_max=10):
        return Claim(
            store_url=self.url,
            job_id=granted.id,
            kind=granted.kind,
            token=granted.token,
            payload_max_bytes=10**6,
            result_max_bytes=10**6,
            admission=Admission(depth_max=depth_max),
        )

    def complete(self, granted, result=b"null"):
        handler_transactions.complete(self.connection, self.claim(granted), result)
        self.connection.commit()

    def attempted(self, *, begun=True):
        """Lease a job whose first attempt has failed with all that can be said."""
        self.store.enqueue([new_job()])
        evidence = dict.fromkeys(("reason", "error_class", "error", "output"), "first")
        first = lease_one(self.store)
        failure = ended(first, retry_in_s=0.0)
        self.store.settle(
            [
                _replace(
                    failure,
                    evidence=_replace(failure.evidence, **evidence, **FIGURES),
                )
            ]
        )
        granted = lease_one(self.store)
        if begun:
            self.store.begin_attempts([started(granted, "cpu/3")])
            self.store.record([Progress(granted.id, granted.token, b"1", b"2")])
        return granted

    def close(self):
        self.connection.close()
        self.store.close()
