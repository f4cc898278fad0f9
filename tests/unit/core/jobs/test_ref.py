"""Refs: ids that cannot be guessed."""

from __future__ import annotations

import pytest

from jobpool.core.jobs.ref import flow_id_of, flow_ref_of, id_of, ref_of

KEY = b"k" * 16


@pytest.mark.parametrize("job_id", [1, 142, 2**62])
def test_a_ref_leads_back_to_its_id(job_id):
    """And to no other one."""
    assert id_of(ref_of(job_id, KEY), KEY) == job_id


def test_a_ref_is_the_same_each_time_and_short_plain_text():
    """It can stand in a URL as it is."""
    ref = ref_of(142, KEY)
    assert ref == ref_of(142, KEY)
    assert ref.replace("-", "").isalnum()
    assert len(ref) == len("142-") + 26


def test_another_stores_key_gives_another_ref():
    """Whoever knows all ids still knows no ref."""
    assert ref_of(142, KEY) != ref_of(142, b"x" * 16)
    assert id_of(ref_of(142, KEY), b"x" * 16) is None


def test_a_ref_is_not_transferred_to_another_id():
    """The digest is the id's own."""
    _, _, digest = ref_of(142, KEY).partition("-")
    assert id_of(f"143-{digest}", KEY) is None
    assert id_of(f"0142-{digest}", KEY) is None


@pytest.mark.parametrize(
    "text",
    ["", "-", "142", "142-", "x-y", "-1-abc", "9" * 5000 + "-a", "١٤٢-a", "1-\ud800"],
)
def test_other_text_is_no_ref(text):
    """However long or foreign: None, without an error."""
    assert id_of(text, KEY) is None


def test_a_flow_has_another_ref_than_the_job_with_its_number():
    """Neither is taken for the other, also with the other's digest."""
    job, flow = ref_of(7, KEY), flow_ref_of(7, KEY)
    assert flow_id_of(flow, KEY) == 7
    assert id_of(flow, KEY) is flow_id_of(job, KEY) is None
    assert flow_id_of(f"flow-{job}", KEY) is None
    assert id_of(flow.removeprefix("flow-"), KEY) is None
    assert flow_id_of(flow, b"x" * 16) is None
