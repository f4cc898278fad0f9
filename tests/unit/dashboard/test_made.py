"""Pages that were made: the same for the same people, and never for others."""

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.dashboard.made import Made
from jobpool.operations.principal import Role
from support.store.storing import new_job


class Maker:
    """Counts how often it makes a text."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1
        return f"text {self.times}"


@pytest.fixture
def make():
    return Maker()


@pytest.fixture
def made():
    return Made()


def test_a_text_is_made_once_of_the_same(made, make):
    jobs, counts = [1], [1]
    assert made.text("ada", (jobs, counts), make) == "text 1"
    assert made.text("ada", (jobs, counts), make) == "text 1"


def test_a_text_is_made_again_of_what_was_read_again(made, make):
    """Also of what looks the same: who read it may have read more than is compared."""
    jobs = [1]
    made.text("ada", (jobs, jobs), make)
    assert made.text("ada", (jobs, [1]), make) == "text 2"
    assert made.text("ada", (jobs,), make) == "text 3"


def test_everybody_has_texts_of_their_own(made, make):
    jobs = [1]
    assert made.text("ada", (jobs,), make) == "text 1"
    assert made.text("bob", (jobs,), make) == "text 2"
    assert made.text("ada", (jobs,), make) == "text 1"


def test_what_cannot_be_said_to_be_the_same_is_made_each_time(made, make):
    made.text("ada", (), make)
    assert made.text("ada", (), make) == "text 2"


def test_few_texts_are_kept_the_newest(made, make):
    jobs = [1]
    made.text("first", (jobs,), make)
    for number in range(100):
        made.text(number, (jobs,), make)
    assert len(made._texts) == 32
    assert made.text("first", (jobs,), make) == "text 102"


@pytest.mark.parametrize("path", ["/", "/jobs"])
def test_a_page_that_was_made_for_an_admin_is_not_shown_to_a_viewer(
    browser, store, path
):
    """Nor one without buttons to an admin: within the second that both are read in."""
    store.enqueue([new_job()])
    assert "ada, admin" in browser.get(path).text
    browser.access.role = Role.VIEWER
    shown = browser.get(path).text
    assert "ada, viewer" in shown
    assert 'method="post"' not in shown.partition("<main")[2]


def test_a_list_has_what_was_done_here_at_once(browser, store):
    (job,) = store.enqueue([new_job()])
    ref = store.ref_of(job.id)
    assert f"/jobs/{ref}" in browser.get("/jobs?state=runnable").text
    browser.post(f"/jobs/{ref}/cancel")
    assert store.get(job.id).state is JobState.CANCELED
    assert f"/jobs/{ref}" not in browser.get("/jobs?state=runnable").text
