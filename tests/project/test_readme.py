"""README.md: what a new reader sees first."""

from support.readme import README, blocks

FIRST_CODE_LINE_MAX = 25
LINES_MAX, WORDS_MAX = 250, 1500


def test_the_readme_shows_code_early():
    """A reader sees code without scrolling."""
    first = blocks()[0]
    assert first.language == "python"
    assert first.line <= FIRST_CODE_LINE_MAX


def test_the_readme_is_read_in_five_minutes():
    """Everything else is a page of the manual."""
    text = README.read_text()
    assert text.count("\n") <= LINES_MAX
    assert len(text.split()) <= WORDS_MAX


def test_the_readme_leads_to_every_page():
    """By a link, or through the list of pages."""
    text = README.read_text()
    assert "`jobpool manual`" in text
    assert "(src/jobpool/manual/index.md)" in text
    assert "`jobpool --pools cpu=4,io=16`" in text
