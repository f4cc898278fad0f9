"""What others say of a page: axe of its accessibility, html-validate of its HTML."""

import json

from support.browser.npm import modules, run_node

VALIDATE = """
const { HtmlValidate, StaticConfigLoader } = require("html-validate");
const pages = JSON.parse(require("fs").readFileSync(0, "utf8"));
const judge = new HtmlValidate(new StaticConfigLoader({
  root: true,
  extends: ["html-validate:recommended", "html-validate:document"],
  rules: JSON.parse(process.argv[1]),
}));
const found = pages.flatMap(([name, html]) =>
  judge.validateStringSync(html).results.flatMap(one => one.messages.map(
    said => `${name}:${said.line}:${said.column} ${said.ruleId}: ${said.message}`)));
console.log(JSON.stringify(found));
"""
RULES = {
    # Templates keep HTML's own freedom here: no reader and no browser sees it.
    "no-trailing-whitespace": "off",
    "void-style": "off",
    "doctype-style": "off",
    # htmx and data-… attributes are checked by what they do.
    "long-title": "off",
    # What comes from the dashboard itself needs no proof that it is the same.
    "require-sri": ["error", {"target": "crossorigin"}],
}


def faults_of_html(pages):
    """Return what html-validate finds wrong, a line each.

    Args:
        pages: each a name and its HTML, as the server has sent it.
    """
    text = json.dumps(list(pages))
    return json.loads(run_node(VALIDATE, text, json.dumps(RULES)))


def faults_for_readers(page, *rules):
    """Return what axe finds wrong with what a browser shows, a line each.

    The script goes in through the browser's own tools: the page's policy for content
    stays as it is.

    Args:
        page: shown.
        rules: only these of axe's; none: all.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate((modules() / "axe-core" / "axe.min.js").read_text())
    options = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    found = page.evaluate(
        "async options => (await axe.run(document, options)).violations", options
    )
    return [
        f"{one['id']}: {one['help']}: {node['html'][:200]} ({node['failureSummary']})"
        for one in found
        for node in one["nodes"]
    ]
