"""Release with a higher limit: offered where memory has ended a job, and bounded."""

import html
import re

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.run_report import PoolReport, RunReport
from jobpool.core.rules.usage.sketch import Counts, buckets_of
from jobpool.core.units import size_bytes
from jobpool.dashboard.screens.jobs.raising import raised
from jobpool.operations.principal import Role
from jobpool.store.records.operating import AuditFilter
from support.store.storing import lease_one
from unit.dashboard.screens.jobs.test_pages import die, path

MIB, GIB = 2**20, 2**30
WITH_MORE = "Release with more memory"


def allowing(most_bytes=None, fixed=()):
    pool = PoolReport(size=4, memory_max_bytes=most_bytes)
    return RunReport(pools={"cpu": pool}, fixed_memory=fixed)


def fallen(store, state="quarantined"):
    return die(store, "too large", Outcome.OUT_OF_MEMORY, state)


def main_button(page):
    """Return the text of the one button that is probably right."""
    found = re.findall(r'class="btn main"[^>]*>([^<]*)<', page)
    return found[0] if found else ""


def test_a_job_that_ran_out_of_memory_is_released_with_more(browser, store):
    """That is the probable action, with a limit that probably does; a plain one is not.

    It is the job's own from then on, and the trail has it.
    """
    store.put_report("run-1", allowing(4 * GIB))
    job_id = fallen(store)
    page = html.unescape(browser.get(path(store, job_id)).text)
    assert main_button(page) == WITH_MORE
    assert "its pool allows up to 4\xa0GiB" in page
    assert (
        "Its memory limit of 1\xa0GiB stays, and would probably kill it again" in page
    )
    (proposed,) = re.findall(r'name="memory" value="([^"]+)"', page)
    assert size_bytes(proposed) == 1536 * MIB
    answer = browser.post(path(store, job_id, "/release"), {"memory": proposed})
    assert answer.status_code == 303
    assert lease_one(store).memory_bytes == 1536 * MIB
    (row,) = store.audits(AuditFilter())
    assert (row.action, f'"memory_bytes":{1536 * MIB}' in row.target) == (
        "release",
        True,
    )


def test_a_dead_one_is_offered_more_as_well(browser, store):
    """One that may not be run again was not tried often enough to be set aside."""
    job_id = fallen(store, "dead")
    page = browser.get(path(store, job_id)).text
    assert main_button(page) == "Release it with more memory"
    assert browser.post(path(store, job_id, "/release"), {"memory": "3GiB"})
    assert store.get(job_id).memory_bytes == 3 * GIB


def test_for_others_a_plain_release_is_the_probable_one(browser, store):
    job_id = die(store, "boom", Outcome.CRASHED, "quarantined")
    page = browser.get(path(store, job_id)).text
    assert (main_button(page), WITH_MORE in page) == ("Release", False)


@pytest.mark.parametrize(
    ("memory", "status", "said"),
    [
        ("9GiB", 200, "pool cpu allows at most 4GiB"),
        ("1GiB", 200, "its memory limit is 1GiB; expected more than that"),
        ("much", 400, "'much' is not a size"),
    ],
)
def test_a_limit_that_cannot_be_says_why_and_changes_nothing(
    browser, store, memory, status, said
):
    store.put_report("run-1", allowing(4 * GIB))
    job_id = fallen(store)
    answer = browser.post(path(store, job_id, "/release"), {"memory": memory})
    assert (answer.status_code, said in html.unescape(answer.text)) == (status, True)
    choice = {"choice": "state=quarantined", "memory": memory}
    answer = browser.post("/bulk/release", choice)
    assert answer.status_code == {200: 303, 400: 400}[status]
    assert store.get(job_id).state is JobState.QUARANTINED
    assert store.audits(AuditFilter()) == []


def test_where_the_configuration_says_the_limit_no_job_has_its_own(browser, store):
    """The page says so instead of offering it."""
    store.put_report("run-1", allowing(fixed=("shop.thumbnail",)))
    page = html.unescape(browser.get(path(store, fallen(store))).text)
    assert WITH_MORE not in page
    assert 'To give it more: [kinds."shop.thumbnail"] of the configuration' in page


def test_a_viewer_is_offered_nothing(browser, store):
    job_id = fallen(store)
    browser.access.role = Role.VIEWER
    assert "memory</summary>" not in browser.get(path(store, job_id)).text
    answer = browser.post(path(store, job_id, "/release"), {"memory": "2GiB"})
    assert (answer.status_code, store.get(job_id).memory_bytes) == (403, None)


def test_of_many_the_newest_is_looked_at_first(browser, store):
    """To release all of them with the limit that has killed them is not the thing."""
    fallen(store)
    assert main_button(browser.get("/quarantine").text) == "See the newest"


def test_what_is_proposed_is_what_others_need_and_no_more_than_allowed(store):
    """A step up from the limit, or what tuning proposes if that is more."""
    job = store.get(fallen(store))
    step = raised(job, GIB, [], {})
    assert (step.proposed_bytes, step.most_bytes, step.why_not) == (
        1536 * MIB,
        None,
        "",
    )
    assert raised(job, GIB, [allowing(1200 * MIB)], {}).proposed_bytes == 1200 * MIB
    (bucket,) = buckets_of([3 * GIB])
    needs = {bucket: Counts(2000)}
    assert raised(job, GIB, [], needs).proposed_bytes > 3 * GIB
    full = raised(job, GIB, [allowing(GIB)], {})
    assert full.why_not == "its memory limit is 1GiB; expected more than that"
