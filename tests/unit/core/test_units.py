"""Durations and sizes as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.units import duration_s, show_duration, show_size, size_bytes
from jobpool.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("7d", 604800),
        ("3w", 3 * 604800),
        ("2", 2),
        (1.5, 1.5),
        (0, 0),
        (timedelta(minutes=2), 120),
        (" 10 m ", 600),
    ],
)
def test_durations(text: str | float | timedelta, expected: float) -> None:
    """Text with units, numbers and timedeltas are seconds."""
    assert duration_s(text) == expected


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "abc",
        "5 parsecs",
        "-1s",
        -1,
        float("nan"),
        float("inf"),
        True,
        None,
        "1e9",
        "9" * 400,
        10**400,
        "101000w",
        b"5s",
    ],
)
def test_bad_durations_are_named(bad: object) -> None:
    """Anything else is refused, and the message names the setting."""
    with pytest.raises(ConfigError, match="timeout"):
        duration_s(bad, "timeout")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512MiB", 512 * 2**20),
        ("1GiB", 2**30),
        ("2G", 2 * 2**30),
        ("800MB", 800_000_000),
        ("1.5KiB", 1536),
        *((f"7{u}", 7 * 1000**n) for n, u in enumerate(("B", "kB", "MB", "GB", "TB"))),
        *((f"7{u}iB", 7 * 1024 ** (n + 1)) for n, u in enumerate("KMGT")),
        *((f"7{u}", 7 * 1024 ** (n + 1)) for n, u in enumerate("kmgt")),
        (4096, 4096),
        ("64", 64),
    ],
)
def test_sizes(text: str | int, expected: int) -> None:
    """Binary and decimal units, and bare bytes."""
    assert size_bytes(text) == expected


@pytest.mark.parametrize(
    "bad", ["", "x", "-5MiB", 0, -1, "0", 1.5, True, None, "9" * 40]
)
def test_bad_sizes_are_named(bad: object) -> None:
    """Anything else is refused, and the message names the setting."""
    with pytest.raises(ConfigError, match="memory"):
        size_bytes(bad, "memory")  # type: ignore[arg-type]


@given(st.integers(1, 10**7))
def test_a_shown_duration_can_be_read_again(seconds: int) -> None:
    """A shown duration parses back to within its rounding."""
    again = duration_s(show_duration(seconds))
    assert abs(again - seconds) <= max(3600, 0.001 * seconds)


def test_shown_sizes() -> None:
    """Sizes are shown in binary units."""
    shown = [show_size(n) for n in (5, 2048, 512 * 2**20, 3 * 2**29)]
    assert shown == ["5B", "2KiB", "512MiB", "1.5GiB"]
