"""Where a setting is set, and what is said about an unknown name."""

import pytest

from jobpool.core.config.layers import misspelled_variables, nearest, per_pool
from jobpool.errors import ConfigError


def test_a_variable_that_looks_misspelled_is_reported():
    """A name unlike any of ours may belong to another program."""
    env = {
        "JOBPOOL_STOER": "x",
        "JOBPOOL_DRIAN": "x",
        "JOBPOOL_STORE": "x",
        "JOBPOOL_ZZZZZZZZZZ": "x",
        "STOER": "x",
    }
    assert list(misspelled_variables(env)) == [
        "JOBPOOL_DRIAN is set but has no effect; did you mean JOBPOOL_DRAIN?",
        "JOBPOOL_STOER is set but has no effect; did you mean JOBPOOL_STORE?",
    ]


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("tiemout", ["timeout", "memory"], "did you mean 'timeout'?"),
        ("zzz", ["timeout", "memory"], "expected one of memory, timeout"),
        ("zzz", [], "there are none"),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(word, known, said):
    """The nearest one, or all."""
    assert nearest(word, known) == said


def test_values_by_pool_are_parsed():
    """One grammar: names, equals signs, commas; blanks do not count."""
    assert per_pool(" cpu = 4 , io=2..8", "--pools") == {"cpu": "4", "io": "2..8"}
    for wrong in ("", "cpu", "cpu=", "=4", "cpu=4,", "cpu=4,cpu=5", "c d=4"):
        with pytest.raises(ConfigError):
            per_pool(wrong, "--pools")
