"""One run of pytest over chosen tests, in this process, fastest test first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

_FINE = (pytest.ExitCode.OK,)


class Ran(NamedTuple):
    """How a run of tests ended."""

    passed: bool
    seen_by: str
    """The first test that failed, or what failed instead of a test."""


class _Picker:
    """Keeps the tests that are wanted, in their order, and notes the first failure."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._place = {name: nth for nth, name in enumerate(wanted)}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Pick."""
        items[:] = [item for item in items if item.nodeid in self._place]
        items.sort(key=lambda item: self._place[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a test file that cannot be imported."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def run(tests: Sequence[str]) -> Ran:
    """Run tests of the repository that is the working directory, until one fails."""
    picker = _Picker(tests)
    files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
    missing = [file for file in files if not Path(file).exists()]
    if missing:
        sys.exit(f"mutants: {missing} is no more; remove the work directory")
    words = ["-x", "-q", "-p", "no:cacheprovider", "--tb=short", *files]
    # What the judge has imported already has no asserts that pytest should rewrite.
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main(words, plugins=[picker])
    return Ran(code in _FINE, picker.failed or f"pytest ended with {int(code)}")
