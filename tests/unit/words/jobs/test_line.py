"""What is said of a job in one line of a list."""

from types import SimpleNamespace

import pytest

from jobpool.words.jobs.line import progress_words


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (None, ""),
        (b"0.42", "progress 42%"),
        (b'"3 of 9 pages"', "progress 3 of 9 pages"),
        (b'{"done":138,"total":1904}', "progress done 138, total 1904"),
        (b'{"pages":[1,2]}', 'progress {"pages":[1,2]}'),
        (b'{"is_late":true}', 'progress {"is_late":true}'),
        (b"17", "progress 17"),
        (b'"a\\u001b[31mb"', "progress a\\x1b[31mb"),
    ],
)
def test_a_progress_is_said_as_people_would_write_it(progress, said):
    """And nothing of it moves a terminal's cursor."""
    assert progress_words(SimpleNamespace(progress=progress)) == said
