"""Which command lines start the zygote first."""

import pytest

from jobpool.cli import _is_start


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run", True),
        ("run --burst", True),
        ("--pools cpu=1", True),
        ("--pools=cpu=1 --burst", True),
        ("", False),
        ("run --help", False),
        ("--pools cpu=1 -h", False),
        ("enqueue run", False),
        ("status", False),
    ],
)
def test_only_a_start_has_a_zygote(line, expected):
    """Anything else would start a process for nothing."""
    assert _is_start(line.split()) is expected
