"""Every page, as people see it: for readers of all kinds, on any screen."""

from html.parser import HTMLParser

import pytest

from support.browser.judges import faults_for_readers, faults_of_html
from support.browser.places import IDS, PAGES, address_of
from support.browser.visit import PHONE

pytestmark = pytest.mark.timeout(300)
OVERFLOW = """() => [...document.querySelectorAll("body *")].filter(one => {
  const box = one.getBoundingClientRect();
  if (box.right <= innerWidth + 1 || !box.width) return false;
  for (let at = one; at; at = at.parentElement)
    if (getComputedStyle(at).overflowX != "visible") return false;
  return true;
}).map(one => one.outerHTML.slice(0, 160))"""
"""What sticks out at the right, where nothing can be scrolled by itself."""
FOCUS = """() => {
  const at = document.activeElement, style = getComputedStyle(at);
  const seen = style.outlineStyle != "none" || style.boxShadow != "none";
  return at === document.body || seen ? "" : at.outerHTML;
}"""
"""What has the focus, if that cannot be seen."""
STOPS = 8
LINKS_MAX = 120
every_page = pytest.mark.parametrize("route", PAGES, ids=IDS)


class Links(HTMLParser):
    """The links of a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found.append(dict(attributes)["href"])


def links_of(html):
    """Return the paths that a page's links lead to; each is of the dashboard."""
    links = Links()
    links.feed(html)
    paths = [link.partition("#")[0] for link in links.found]
    assert [path for path in paths if path and not path.startswith("/")] == []
    return [path for path in paths if path]


@pytest.fixture
def address(site, route):
    with site.opened() as store:
        return address_of(store, route)


@every_page
def test_readers_of_all_kinds_find_no_fault(visit, address):
    """Axe has none: names, roles, order of headings, contrast in light and dark.

    By keyboard the first stop skips the navigation, and each stop can be seen.
    """
    page = visit(address)
    visit.hold(page)
    assert faults_for_readers(page) == []
    page.emulate_media(color_scheme="dark")
    assert faults_for_readers(page, "color-contrast") == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#main"
    for _ in range(STOPS):
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUS) == ""


@every_page
def test_a_phone_shows_it_also_without_scripts(visit, address):
    """What is wide scrolls within its own part; scripts only keep it fresh."""
    page = visit(address, width="phone", scripts=False)
    assert page.inner_text("main h1")
    assert page.evaluate(OVERFLOW) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_html_validate_finds_no_fault_in_any(site):
    with site.opened() as store:
        found = {route.name: address_of(store, route) for route in PAGES}
    pages = [(name, site.get(path).text) for name, path in found.items()]
    assert faults_of_html(pages) == []


def test_every_link_leads_to_a_page(site):
    """From page to page, as far as there are any: all of them are ours."""
    seen, left = set(), ["/"]
    while left and len(seen) < LINKS_MAX:
        path = left.pop(0)
        if path in seen:
            continue
        seen.add(path)
        answer = site.get(path)
        assert answer.status_code == 200, path
        if answer.headers["content-type"].startswith("text/html"):
            left += links_of(answer.text)
    assert len(seen) > len(PAGES) / 2
