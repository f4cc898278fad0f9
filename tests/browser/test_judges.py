"""The judges of web pages work here, and can find fault."""

import pytest

from support.browser.judges import faults_for_readers, faults_of_html

# The first test on a machine fetches the browser and the judges.
pytestmark = pytest.mark.timeout(300)

GOOD = """<!doctype html>
<html lang="en">
<head><title>Jobs</title></head>
<body><main><h1>Jobs</h1><p>None.</p></main></body>
</html>
"""
FAULTS = {
    "no language": (GOOD.replace(' lang="en"', ""), "html-has-lang"),
    "pale": (GOOD.replace("<p>", '<p style="color:#ccc">'), "color-contrast"),
    "a field without a name": (GOOD.replace("<p>", "<p><input>"), "label"),
}
FORGIVEN = {
    "close-order": GOOD.replace("</p>", "</p></b>"),
    "no-dup-id": GOOD.replace("<p>", '<p id="a"></p><p id="a">'),
    "no-inline-style": GOOD.replace("<p>", '<p style="color:red">'),
}
"""By the rule of html-validate that finds it."""


@pytest.fixture(scope="module")
def said_of_html():
    """What html-validate says of pages: one start of it for all of them."""
    return faults_of_html([("good", GOOD), *FORGIVEN.items()])


def shown(browser, html):
    """Return what axe says of a page."""
    with browser.new_page() as page:
        page.set_content(html)
        return faults_for_readers(page)


def test_a_page_without_fault_is_without_fault(browser, said_of_html):
    assert [said for said in said_of_html if said.startswith("good:")] == []
    assert shown(browser, GOOD) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_axe_sees_what_readers_would_miss(browser, fault):
    html, rule = FAULTS[fault]
    assert [one.split(":")[0] for one in shown(browser, html)] == [rule]


@pytest.mark.parametrize("rule", FORGIVEN)
def test_html_validate_sees_what_browsers_forgive(said_of_html, rule):
    found = next(said for said in said_of_html if said.startswith(f"{rule}:"))
    assert found.startswith(f"{rule}:4:")
    assert f" {rule}: " in found
