"""The files for Prometheus and Grafana in conf/ are right, and name what is there."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

import jobpool
from jobpool.monitoring.metrics.attempts import AttemptMetrics
from jobpool.monitoring.metrics.catalogue import CATALOGUE, Kind
from jobpool.monitoring.metrics.fleet import FleetMetrics
from support.promtool import run
from support.store.cli_store import stored

CONF = Path(__file__).parents[3] / "conf"
RULES = CONF / "prometheus" / "rules.yml"
TESTS = CONF / "prometheus" / "tests.yml"
DASHBOARD = json.loads((CONF / "grafana" / "jobpool.json").read_text())
PAGE = Path(jobpool.__file__).parent / "manual" / "alerts.md"
ALERTS = [
    rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
]
NAMES = {
    metric.name + suffix
    for metric in CATALOGUE
    for suffix in (
        ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
    )
}
LABELS = {metric.name: set(metric.labels) for metric in CATALOGUE}
_NAME = re.compile(r"\bjobpool_[a-z0-9_]+")
_SELECTOR = re.compile(r"\b(jobpool_[a-z0-9_]+)\{([^}]*)\}")


def expressions():
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("where", "text"), list(expressions()))
def test_every_metric_and_label_that_is_asked_for_is_exported(where, text):
    """A rule on a name that nobody exports never fires, and nobody notices."""
    assert set(_NAME.findall(text)) <= NAMES
    for name, inside in _SELECTOR.findall(text):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))
        assert asked <= LABELS.get(name, LABELS.get(base, set())) | {"le"}, where


def test_prometheus_takes_the_rules_and_the_configuration():
    code, said = run("check", "rules", RULES)
    assert code == 0, said
    code, said = run("check", "config", CONF / "prometheus" / "prometheus.yml")
    assert code == 0, said


def test_each_alert_fires_for_what_it_is_about_and_nothing_else():
    code, said = run("test", "rules", TESTS)
    assert code == 0, said
    tested = {one["name"] for one in yaml.safe_load(TESTS.read_text())["tests"]}
    assert tested == {rule["alert"] for rule in ALERTS}


def test_a_scrape_is_clean(tmp_path):
    """By Prometheus's own checker: names, types, help, units."""
    stored(tmp_path).close()
    registry = CollectorRegistry()
    registry.register(AttemptMetrics())
    from jobpool.store.opening import open_store

    fleet = FleetMetrics(lambda: open_store(f"sqlite:///{tmp_path}/jobpool.db"))
    fleet.start()
    try:
        registry.register(fleet)
        text = generate_latest(registry).decode()
    finally:
        fleet.close()
    code, said = run("check", "metrics", text=text)
    assert (code, said) == (0, "")


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_links_a_section_that_says_what_is_safe_and_what_is_not(rule):
    page, _, section = rule["annotations"]["runbook"].partition("#")
    assert page == "jobpool manual alerts"
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = {one.splitlines()[0].lower().replace(" ", "-"): one for one in sections}
    text = found[section]
    assert f"`{rule['alert']}`" in text
    assert "- Safe: " in text
    assert "- Unsafe: " in text


def test_the_dashboard_s_panels_ask_a_question_and_are_in_their_places():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken = set()
    for panel in DASHBOARD["panels"]:
        assert panel["title"].endswith("?")
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        taken |= cells
