"""Batches as parameters, and texts that every database can store."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.store.statements import parameters
from jobpool.store.statements.parameters import Blobs, as_json, chunks
from jobpool.store.statements.validation import clean_text
from support.store.storing import new_job


@given(st.lists(st.binary(max_size=20) | st.none()))
def test_each_blob_is_found_at_its_recorded_place(parts):
    """By its first byte, counted from 1, and its length."""
    blobs = Blobs()
    places = [blobs.add(part) for part in parts]
    whole = blobs.joined()
    assert whole
    for part, (first, length) in zip(parts, places, strict=True):
        if part is None:
            assert (first, length) == (None, None)
        else:
            assert whole[first - 1 : first - 1 + length] == part


@given(st.lists(st.integers(0, 30), max_size=50), st.integers(1, 7), st.integers(1, 60))
def test_chunks_are_bounded_and_lose_nothing(sizes, jobs_max, bytes_max):
    """In number and in bytes, unless one job alone is larger; no job is split."""
    jobs = [new_job(payload=b"x" * size) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parameters, "CHUNK_JOBS", jobs_max)
        patch.setattr(parameters, "CHUNK_BYTES", bytes_max)
        found = [list(chunk) for chunk in chunks(jobs)]
    assert [job for chunk in found for job in chunk] == jobs
    for chunk, following in itertools.pairwise(found):
        with_one_more = sum(len(job.payload) for job in (*chunk, following[0]))
        assert len(chunk) == jobs_max or with_one_more > bytes_max, "no reason to end"
    for chunk in found:
        assert 0 < len(chunk) <= jobs_max
        assert len(chunk) == 1 or sum(len(job.payload) for job in chunk) <= bytes_max


def test_a_statement_takes_a_thousand_jobs_and_32_mebibytes():
    """Neither many small jobs nor a few large ones block other writers."""
    assert (parameters.CHUNK_JOBS, parameters.CHUNK_BYTES) == (1000, 33_554_432)


@given(st.text(st.characters()))
def test_a_cleaned_text_can_be_stored_anywhere(text):
    """No NUL, no lone surrogate; cleaning twice changes nothing more."""
    cleaned = clean_text(text)
    assert "\0" not in cleaned
    assert json.loads(as_json([cleaned])) == [cleaned]
    assert clean_text(cleaned) == cleaned


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_valid_text_is_kept_as_it_is(text):
    """Every other character is unchanged."""
    assert clean_text(text) == text


def test_no_text_stays_none():
    """None is not an empty text."""
    assert clean_text(None) is None
