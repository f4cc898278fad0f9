"""The dashboard on a store in memory."""

import pytest

from support.browsing import Browser, memory_stores
from support.store.storing import begin_run, kind_record


@pytest.fixture
def opener(tmp_path):
    return memory_stores(tmp_path)


@pytest.fixture
def store(opener):
    """The dashboard's store, with a supervisor that has published a kind."""
    store = opener()
    begin_run(store, kinds=[kind_record()], pools={"cpu": "4"})
    yield store
    store.close()


@pytest.fixture
def browser(opener, store):
    browser = Browser(opener)
    yield browser
    browser.close()
