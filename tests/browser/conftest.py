"""A browser for each file, and a shop that has worked for an hour for each worker."""

import pytest

from support.browser.chromium import browser as started_browser
from support.browser.site import served
from support.browser.visit import visiting
from support.lively.fill import lively_file


@pytest.fixture(scope="module")
def browser():
    """Until the file ends: its loop runs in this thread, and others want theirs."""
    with started_browser() as found:
        yield found


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    with served(lively_file(folder, share=0.5)) as found:
        yield found


@pytest.fixture
def visit(browser, site):
    """Open a page; whatever it was, its policy and its scripts had no complaint."""
    with visiting(browser, site) as found:
        yield found
