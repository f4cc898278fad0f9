"""A job is replaced by one with other arguments: shown first, checked, written down."""

import html
import json

import pytest

from jobpool.core.application.redaction import with_redaction
from jobpool.operations.principal import Role
from jobpool.store.records.operating import AuditFilter, Filter
from support.store.storing import begin_run, kind_record, new_job
from unit.dashboard.screens.jobs.test_pages import path
from unit.dashboard.screens.jobs.test_story import end

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"page": {"type": "integer"}, "token": {"type": "string"}},
        "required": ["page"],
        "additionalProperties": False,
    }
).encode()


@pytest.fixture
def job_id(store):
    """A dead job of a kind whose arguments are checked."""
    begin_run(store, "run-2", kinds=[kind_record(schema=SCHEMA)])
    store.enqueue([new_job(payload=b'{"page":7,"token":"sk\xe2\x80\xae_live"}')])
    begin_run(store)
    return end(store, "dead", reason="x")


def actions(store):
    return [row.action for row in store.audits(AuditFilter())]


def test_to_edit_is_to_see_and_is_written_down(browser, store, job_id):
    """What could mislead is escaped as in JSON, so that it stays the same argument."""
    answer = browser.post(path(store, job_id, "/edit"))
    text = html.unescape(answer.text)
    assert '"page": 7' in text
    assert '"token": "sk\\u202e_live"' in text
    assert actions(store) == ["reveal"]


def test_differences_are_shown_before_anything_is_done(browser, store, job_id):
    fields = {"arguments": '{"page": 8, "token": "sk\\u202e_live"}', "note": "typo"}
    text = html.unescape(browser.post(path(store, job_id, "/replay"), fields).text)
    assert "/page" in text
    assert "/token" not in text
    assert actions(store) == ["reveal"]  # what differs says what was there
    answer = browser.post(path(store, job_id, "/replay"), {**fields, "sure": "1"})
    assert answer.status_code == 303
    (new, old) = store.find(Filter())
    assert answer.headers["location"] == path(store, new.id)
    assert store.payload(new.id) == '{"page":8,"token":"sk\u202e_live"}'.encode()
    assert old.replaced_by == new.id
    (row,) = store.audits(AuditFilter(action="replay"))
    assert (row.action, row.changed, row.note) == ("replay", "/page", "typo")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("{", "is not JSON"),
        ('{"page": "x"}', "argument 'page': expected integer"),
        ("{}", "lack 'page'"),
        ('{"page": 7, "token": "sk\\u202e_live"}', "would be the same"),
        ('{"page": 7, "pages": 1}', "there is no argument 'pages'"),
        ("[" * 5000, "is not JSON"),
    ],
)
def test_what_does_not_fit_is_shown_again_with_the_reason(
    browser, store, job_id, typed, said
):
    fields = {"arguments": typed, "sure": "1"}
    answer = browser.post(path(store, job_id, "/replay"), fields)
    assert answer.status_code == 400
    text = html.unescape(answer.text)
    assert said in text
    assert typed[:20] in text
    assert store.count(Filter()) == 1
    assert actions(store) == []


def test_hidden_arguments_stay_and_the_others_can_be_changed(browser, store, job_id):
    begin_run(
        store,
        "run-0",  # it counts also if both are published within a millisecond
        kinds=[kind_record(schema=with_redaction(SCHEMA, ["token"], ()))],
    )
    text = browser.post(path(store, job_id, "/edit")).text
    assert "_live" not in text
    assert "Arguments to change" in text
    fields = {"arguments": '{"page": 9}', "some": "1"}
    assert "_live" not in browser.post(path(store, job_id, "/replay"), fields).text
    browser.post(path(store, job_id, "/replay"), {**fields, "sure": "1"})
    new = store.find(Filter())[0]
    assert store.payload(new.id) == '{"page":9,"token":"sk\u202e_live"}'.encode()


def test_a_viewer_edits_and_replays_nothing(browser, store, job_id):
    browser.access.role = Role.VIEWER
    for verb in ("edit", "replay"):
        fields = {"arguments": '{"page": 8}'}
        answer = browser.post(path(store, job_id, f"/{verb}"), fields)
        assert answer.status_code == 403
        assert "_live" not in answer.text
    assert store.count(Filter()) == 1
    assert actions(store) == ["refused", "refused"]
