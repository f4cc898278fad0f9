"""The manual's pages: short, listed, linked; each begins with its answer."""

import ast
import re
import unicodedata

import pytest

from jobpool.manual import pages
from support.readme import DOCUMENTS, PAGES, ROOT

WORDS_MAX = 1200
LONG = {"figures", "changes"}
"""Reference pages, which are not read from beginning to end."""
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PARAGRAPH = re.compile(r"""[A-Za-z`"'(\[]|\*\*""")


def prose(document):
    """Return a document without its blocks."""
    return _FENCED.sub("", document.read_text())


def anchors(document):
    """Return the names by which a document's sections are linked, as GitHub does."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE):
        text = unicodedata.normalize("NFC", heading).lower().replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


def name_of(document):
    return document.stem


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document):
    """To an existing file, and to an existing section."""
    for target in _LINK.findall(prose(document)):
        if target.startswith("https://"):
            continue
        path, _, section = target.partition("#")
        place = (document.parent / path).resolve() if path else document
        assert place.exists(), target
        assert not section or section in anchors(place), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_links_only_to_what_the_package_contains(page):
    """A page is read on a machine with the package and without the repository."""
    for target in _LINK.findall(prose(page)):
        assert re.match(r"https://|#|[\w-]+\.(md(#|$)|svg$|png$)", target), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_opens_with_its_answer(page):
    """A title, then a paragraph: no heading, list, table or code comes before it."""
    title, blank, first, *_ = page.read_text().splitlines()
    assert re.fullmatch(r"# \S.*", title)
    assert not blank
    assert _PARAGRAPH.match(first), first


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_read_in_one_sitting(page):
    """At most 1,200 words, including code; the rules of tables do not count."""
    words = re.findall(r"\S*\w\S*", page.read_text())
    assert page.stem in LONG or len(words) <= WORDS_MAX


def test_the_list_has_every_page_once():
    """One line each, and no missing page."""
    topics = [entry.topic for entry in pages.entries()]
    assert len(topics) == len(set(topics))
    assert set(topics) == {page.stem for page in PAGES} - {pages.INDEX}


def test_the_list_is_a_page():
    """The code that reads the list parses each of its lines."""
    lines = pages.text_of(pages.INDEX).splitlines()
    assert sum(line.startswith("- ") for line in lines) == len(pages.entries())
    assert all(entry.group and entry.summary for entry in pages.entries())


def test_every_page_that_a_message_names_exists():
    """Errors, `show` and help name pages by the command that shows them."""
    texts = [document.read_text() for document in DOCUMENTS]
    for path in (ROOT / "src").rglob("*.py"):
        if "manual" not in (code := path.read_text()):
            continue
        # Parsed, because a message may be split between two lines of code.
        nodes = ast.walk(ast.parse(code))
        texts += [
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    named = {
        topic
        for text in texts
        for topic in re.findall(r"\bjobpool manual ([a-z][\w-]*)", text)
    }
    assert {"tuning", "retries", "isolation"} <= named
    assert named <= {page.stem for page in PAGES}
