"""README.md: what a stranger sees first."""

from readme import blocks

FIRST_CODE_LINE_MAX = 25


def test_first_code_comes_early():
    """Whoever opens the README sees code without scrolling."""
    first = blocks()[0]
    assert first.language == "python"
    assert first.line <= FIRST_CODE_LINE_MAX
