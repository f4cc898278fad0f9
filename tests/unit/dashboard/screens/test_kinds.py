"""Kinds in the browser: what they use, what would fit, and the plots of both."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.application.redaction import with_redaction
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.usage.sketch import BUCKET_MAX, Counts, Measure, buckets_of
from jobpool.dashboard.screens.kinds.distribution import SIZES, distribution
from jobpool.dashboard.screens.kinds.one import arguments_of
from jobpool.store.records.reading import SketchRow
from support.store.storing import begin_run, ended, kind_record, lease, new_job
from unit.dashboard.screens.jobs.test_story import end

MIB = 2**20


def bars(counts, **marks):
    given_marks = [(name, name, value) for name, value in marks.items()]
    return distribution(counts, given_marks, SIZES, lambda value: f"{value:.0f}")


def used(store, value, attempts, *, measure=Measure.MEMORY, cut=0):
    (bucket,) = buckets_of([value])
    row = SketchRow(
        kind="shop.thumbnail",
        pool="cpu",
        measure=measure,
        bucket=bucket,
        attempts=attempts,
        censored=cut,
    )
    store.add_sketches([row])


@pytest.fixture
def thumbnails(store):
    """A kind that needs 100 MiB of its 1 GiB; a few were killed at the limit."""
    used(store, 90 * MIB, 800)
    used(store, 100 * MIB, 1200)
    used(store, 1024 * MIB, 3, cut=3)
    used(store, 2000.0, 2003, measure=Measure.DURATION)
    return store


def test_nothing_is_drawn_of_no_attempts():
    assert bars({}) is None
    assert bars({5: Counts(0)}) is None


@given(
    st.dictionaries(
        st.integers(0, BUCKET_MAX), st.integers(1, 10**9), min_size=1, max_size=60
    ),
    st.floats(1, 1e15),
)
def test_each_bar_and_mark_is_within_the_plot_and_none_is_lost(attempts, limit):
    """However far apart the values are, and however rare one is."""
    plot = bars({n: Counts(count) for n, count in attempts.items()}, limit=limit)
    assert 1 <= len(plot.bars) <= 50
    for bar in plot.bars:
        assert plot.left <= bar.left
        assert bar.left + bar.width <= plot.right + 1
        assert bar.height >= 1.5
        assert plot.top - 0.1 <= bar.top < plot.bottom
    (mark,) = plot.marks
    assert plot.left <= mark.at <= plot.right


def test_what_was_ended_early_is_a_part_of_its_bar():
    plot = bars({300: Counts(8), 320: Counts(4, 1)})
    assert [bar.cut_height / bar.height for bar in plot.bars] == [0, 0.25]
    assert plot.bars[1].said.endswith("4 attempts, 1 of them ended early")


def test_a_mark_without_a_value_is_left_out():
    assert [one.look for one in bars({300: Counts(1)}, p99=5.0, limit=None).marks] == [
        "p99"
    ]


def test_kinds_are_listed_with_what_they_use_of_their_limits(browser, thumbnails):
    page = browser.get("/kinds").text
    assert 'href="/kinds/shop.thumbnail"' in page
    assert "of 1\N{NO-BREAK SPACE}GiB" in page
    assert "lower memory" in page


def test_a_kind_of_which_nothing_has_run_is_listed_too(browser, store):
    assert "shop.thumbnail" in browser.get("/kinds").text
    assert (
        "No attempt has been counted yet." in browser.get("/kinds/shop.thumbnail").text
    )


def test_one_kind_says_what_would_fit_and_why(browser, thumbnails):
    page = browser.get("/kinds/shop.thumbnail").text
    assert "Lower memory to" in page
    assert "would have ended 3 of 2,003" in page
    assert page.count('<svg class="distribution"') == 2


def test_its_last_deaths_lead_to_their_jobs(browser, store):
    (made,) = store.enqueue([new_job()])
    (granted,) = lease(store)
    store.settle([ended(granted)])
    page = browser.get("/kinds/shop.thumbnail").text
    assert ">failed</span>" in page
    assert f'href="/jobs/{store.ref_of(made.id)}"' in page


def test_a_kind_is_paused_and_resumed(browser, store):
    named = {"what": "kind", "name": "shop.thumbnail"}
    answer = browser.post("/pause", named | {"note": "bad deploy"})
    assert answer.headers["Location"] == "/kinds/shop.thumbnail"
    assert "bad deploy" in browser.get("/kinds/shop.thumbnail").text
    assert ">paused</span>" in browser.get("/kinds").text
    browser.post("/resume", named)
    assert store.pauses() == []


def test_a_kind_that_nobody_knows_is_said_to_be_unknown(browser, store):
    answer = browser.get("/kinds/shop.thumbnails")
    assert answer.status_code == 404
    assert "shop.thumbnail" in answer.text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/kinds/no.kind", "No supervisor knows kind"),
        ("/quotas/no-quota", "There is no quota"),
        ("/schedules/no-schedule", "There is no schedule"),
        ("/tenants/nobody", "This store does not know such a tenant"),
        ("/jobs/1-none", "There is no such job"),
        ("/flows/1-none", "There is no such flow"),
    ],
)
def test_what_the_store_does_not_know_is_not_found(browser, path, said):
    """Its page says so, on a page like all others, instead of showing nothing."""
    answer = browser.get(path)
    assert (answer.status_code, said in answer.text) == (404, True)
    assert 'aria-current="page"' in answer.text or "Not Found" in answer.text


def test_a_tenant_is_known_by_its_rule_or_by_its_jobs(browser, store):
    store.enqueue([new_job(tenant="acme")])
    assert browser.get("/tenants/acme").status_code == 200
    assert browser.post("/tenants/set", {"tenant": "fresh", "concurrency": "2"})
    assert browser.get("/tenants/fresh").status_code == 200


def test_the_last_ends_of_a_kind_say_why(browser, store):
    """The reason, as it may be shown: one that was killed has no exception."""
    schema = with_redaction(b"{}", ["card"], ())
    begin_run(store, "run-0", kinds=[kind_record(schema=schema)])
    store.enqueue([new_job(payload=b'{"card":"4242-4242"}')])
    end(store, "dead", Outcome.OUT_OF_MEMORY, reason="killed over 1GiB at 4242-4242")
    page = browser.get("/kinds/shop.thumbnail").text
    assert "killed over 1GiB at" in page
    assert "4242" not in page


def test_arguments_are_shown_as_the_schema_has_them():
    schema = b"""{"properties": {"a": {"type": "string"}, "b": {"anyOf": [{"type":
        "integer"}, {"type": "null"}]}, "c": {"$ref": "#/$defs/Size"}, "d": true},
        "required": ["a"]}"""
    shown = [(one.name, one.type, one.is_required) for one in arguments_of(schema)]
    assert shown == [
        ("a", "string", True),
        ("b", "integer or null", False),
        ("c", "Size", False),
        ("d", "anything", False),
    ]


@pytest.mark.parametrize("schema", [b"", b"{", b"[]", b'{"properties": 3}'])
def test_a_schema_that_cannot_be_read_names_no_arguments(schema):
    assert arguments_of(schema) == []


def test_what_a_kind_is_called_is_never_markup(browser, store):
    begin_run(store, "run-2", kinds=[kind_record("a<b>\u202e/x")])
    for path in ("/kinds", "/kinds/a%3Cb%3E%E2%80%AE%2Fx"):
        page = browser.get(path)
        assert page.status_code == 200
        assert "a&lt;b&gt;\\u202e/x" in page.text
        assert "a<b>" not in page.text
