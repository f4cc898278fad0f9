"""The table of found bugs names tests that exist, and README.md links to it."""

from pathlib import Path

import pytest

from support.readme import README

TESTS = Path(__file__).parents[1]
TABLE = TESTS / "found_bugs.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.read_text().partition("|---|---|---|---|\n")[2].splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:40])
def test_a_found_bug_has_its_test(row):
    """The test exists under that name; the bug and its repair are described."""
    by, wrong, repair, test = row
    assert by
    assert wrong
    assert repair
    path, _, name = test.strip("`").partition("::")
    assert f"def {name}(" in (TESTS / path).read_text()


def test_the_readme_leads_to_the_tables():
    """The table of found bugs and the table of planted ones."""
    text = README.read_text()
    assert ROWS
    assert "(tests/found_bugs.md)" in text
    assert "(tests/planted_bugs/table.md)" in text
