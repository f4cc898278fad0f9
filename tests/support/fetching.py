"""What tests fetch for themselves, fetched before any of them runs.

A test that fetches has its time-out beside it, and on a slow line waits for a whole
browser. scripts/test does it here, beside what checks the code; a single test that is
run by hand still fetches what it needs. What cannot be fetched is only named: the tests
that need it say what follows.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from _pytest.outcomes import OutcomeException

from support.browser import chromium, npm
from support.promtool import promtool
from support.site.judges import DJANGO, TASKS_DB, judges
from support.site.previous_release import previous_release

FETCHED = {
    "Chromium": chromium.program,
    "judges of web pages": npm.modules,
    "promtool": promtool,
    "Django's tests": lambda: judges(DJANGO, TASKS_DB),
    "the previous release": previous_release,
}


def main():
    """Fetch everything; print what could not be."""
    with ThreadPoolExecutor(len(FETCHED)) as threads:
        begun = {name: threads.submit(fetch) for name, fetch in FETCHED.items()}
    for name, done in begun.items():
        try:
            done.result()
        except (OutcomeException, AssertionError) as exc:
            print(f"{name}: {exc}")  # noqa: T201 - it is a script's


if __name__ == "__main__":
    sys.exit(main())
