"""A pytest plug-in: which lines and statements each test reaches, and its time.

It writes one file for each test file into the directory `MUTANTS_WITNESS`: a process
that ends in the midst of one takes no other along.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

import jobpool
from jobpool.store.postgres.connection import session as postgres
from jobpool.store.sqlite.connection import session as sqlite
from mutants.selection import ROOMS
from support.postgres import server as postgres_server

_NOW = {"test": ""}
_ASKED: dict[str, set[str]] = defaultdict(set)


class _Noted(dict[str, str]):
    """Named statements, that note for which test they were asked."""

    def __getitem__(self, name: str) -> str:
        if _NOW["test"]:
            _ASKED[f"{self.database}:{name}"].add(_NOW["test"])
        return super().__getitem__(name)

    database = "sqlite"


class _NotedPostgres(_Noted):
    database = "postgres"


class Witness:
    """Watches one process of pytest, a test file at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._source = Path(jobpool.__file__).parent
        self._begin()

    def _begin(self) -> None:
        folders = [str(self._source / name) for name in ROOMS]
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, source=folders
        )
        # Not every test file reaches one of them.
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._coverage.start()
        self._took_s: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()
        _ASKED.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        """Put what happens from now on down to this test."""
        _NOW["test"] = item.nodeid
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")
            _NOW["test"] = ""
            file = item.nodeid.partition("::")[0]
            if nextitem is None or nextitem.nodeid.partition("::")[0] != file:
                self._write(file)
                self._begin()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up a test's time; one that does not pass judges nothing."""
        self._took_s[report.nodeid] += report.duration
        if report.outcome != "passed":
            self._failed.add(report.nodeid)

    def _write(self, test_file: str) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines: dict[str, dict[str, list[str]]] = {}
        for file in data.measured_files():
            found = data.contexts_by_lineno(file)
            name = str(Path(file).relative_to(self._source.parents[1]))
            lines[name] = {
                str(n): [t for t in tests if t] for n, tests in found.items()
            }
        seen: dict[str, Any] = {
            "file": test_file,
            "seconds": self._took_s,
            "failed": sorted(self._failed),
            "lines": lines,
            "queries": {name: sorted(tests) for name, tests in _ASKED.items()},
        }
        to = self._directory / f"{secrets.token_hex(4)}.json"
        to.write_text(json.dumps(seen), encoding="utf-8")


# Before any test's module takes it: the one server that the whole run shares.
_URLS = json.loads(os.environ["MUTANTS_POSTGRES"])
postgres_server.server = lambda: postgres_server.Server(*_URLS)


def pytest_configure(config: pytest.Config) -> None:
    """Begin to watch, in each process that runs tests."""
    sqlite._QUERIES = _Noted(sqlite._QUERIES)  # noqa: SLF001 - to see who asks
    postgres.MappingProxyType = _NotedPostgres
    postgres.queries_of.cache_clear()
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        directory = Path(os.environ["MUTANTS_WITNESS"])
        config.pluginmanager.register(Witness(directory), "mutants-witness")
