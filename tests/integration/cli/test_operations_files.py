"""The files in conf/ that operators copy: valid in their formats and for jobpool.

The schemas in tests/schemas are those of Kubernetes, KEDA and Compose themselves.
"""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator

from jobpool.cli.exits import Exit
from jobpool.cli.root import cli
from jobpool.core.config.layers import per_pool
from jobpool.core.config.options import ENVIRONMENT
from jobpool.core.units import duration_s, size_bytes
from jobpool.store.opening import open_store
from support.postgres.server import query_of, server
from support.site.supervising import PATIENCE_S
from support.store.quotas import KIND, publish, quota, stamped
from support.store.storing import begin_run, kind_record, lease, new_job, succeeded

ROOT = Path(__file__).parents[3]
CONF = ROOT / "conf"
SCHEMAS = ROOT / "tests" / "schemas"
UNIT = CONF / "systemd" / "jobpool.service"
DEPLOYMENT = CONF / "kubernetes" / "deployment.yaml"
SCALED = CONF / "keda" / "scaledobject.yaml"
COMPOSE = CONF / "compose.yaml"
FILES = [UNIT, DEPLOYMENT, SCALED, COMPOSE]

DRAIN_S = 25.0
LAST_WRITES_S = 20.0
"""What an end may take after the drain: a store that is slow to take the results."""


def documents(path):
    """Return what a YAML file holds."""
    return list(yaml.safe_load_all(path.read_text()))


def unit():
    """Return the unit's sections; a name that occurs twice has its values joined."""
    found = {}
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return found


def service(name):
    """Return one value of the unit's [Service]."""
    (value,) = unit()["Service"][name]
    return value


def container():
    """Return the deployment's pod and its one container."""
    pod = documents(DEPLOYMENT)[0]["spec"]["template"]["spec"]
    (found,) = pod["containers"]
    return pod, found


def pool_sizes():
    """Return the deployment's slots by pool."""
    env = {one["name"]: one.get("value") for one in container()[1]["env"]}
    return {k: int(v) for k, v in per_pool(env["JOBPOOL_POOLS"], "pools").items()}


# -- their own formats -------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "schema"),
    [(DEPLOYMENT, "deployment"), (SCALED, "keda"), (COMPOSE, "compose")],
)
def test_every_document_is_valid(path, schema):
    """Validated against the reader's own schema, which rejects unknown fields."""
    validator = Draft7Validator(json.loads((SCHEMAS / f"{schema}.json").read_text()))
    for document in documents(path):
        problems = [
            f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in validator.iter_errors(document)
        ]
        assert problems == []


@pytest.mark.parametrize(
    ("path", "schema", "where"),
    [
        (DEPLOYMENT, "deployment", ["spec", "template", "spec"]),
        (SCALED, "keda", ["spec"]),
        (COMPOSE, "compose", ["services", "jobpool"]),
    ],
)
def test_the_schemas_reject_a_misspelt_field(path, schema, where):
    """A misspelt field is rejected, so the schemas do check something."""
    validator = Draft7Validator(json.loads((SCHEMAS / f"{schema}.json").read_text()))
    document = documents(path)[-1]
    place = document
    for name in where:
        place = place[name]
    place["terminationGracePeriodSecond"] = 60
    assert not validator.is_valid(document)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(tmp_path):
    """`systemd-analyze verify` reports nothing, except that the program is missing."""
    copy = tmp_path / UNIT.name
    text = UNIT.read_text()
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_has_its_sections():
    """Checked without systemd as well.

    The settings that jobpool relies on are there.
    """
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(UNIT.read_text())
    assert parser.sections() == ["Unit", "Service", "Install"]
    expected = {
        "Type": "notify",
        "NotifyAccess": "main",
        "KillMode": "mixed",
        "Delegate": "yes",
        "OOMPolicy": "continue",
        "Restart": "always",
    }
    assert {name: service(name) for name in expected} == expected


def test_every_setting_has_a_comment():
    """A comment stands above each block."""
    for path in FILES:
        text = path.read_text()
        comments = len(re.findall(r"(?m)^\s*#", text))
        assert comments >= 0.3 * len(text.splitlines()), path.name


# -- jobpool -----------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_environment_variables_exist_in_jobpool(path):
    """Each one exists in jobpool: a misspelt one would be ignored silently."""
    source = "\n".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"\bJOBPOOL_[A-Z_]+", path.read_text()))
    named -= {"JOBPOOL_PORT"}  # what Kubernetes would set, as the file says
    for name in named - set(ENVIRONMENT):
        stem = re.sub(r"(?<=JOBPOOL_LOG_)\w+", "", name)
        assert f'"{stem}' in source, name


def commands():
    """Yield every command line that the files have jobpool run."""
    yield service("ExecStart").split()
    pod, found = container()
    assert "lifecycle" not in found
    assert "initContainers" not in pod
    yield found["command"]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        yield found[name]["exec"]["command"]
    compose = documents(COMPOSE)[0]["services"]["jobpool"]
    yield compose["command"]
    assert compose["healthcheck"]["test"][0] == "CMD"
    yield compose["healthcheck"]["test"][1:]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_commands_exist(words):
    """They run jobpool itself, with a command and options that it has."""
    assert Path(words[0]).name == "jobpool"
    done = CliRunner().invoke(cli, [*words[1:], "--help"])
    assert done.exit_code == 0, done.output
    assert words[1] in ("run", "alive")
    for word in words[2:]:
        if word.startswith("--"):
            assert word in done.output


@pytest.mark.parametrize(
    "flags",
    sorted({tuple(words[2:]) for words in commands() if words[1] == "alive"}),
    ids=" ".join,
)
def test_the_probes_fail_without_a_supervisor(flags, tmp_path, monkeypatch):
    """They ask only this machine; test_cli_alive covers a real supervisor."""
    monkeypatch.setenv("JOBPOOL_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("JOBPOOL_STORE", "postgresql://nobody@127.0.0.1:1/nothing")
    done = CliRunner().invoke(cli, ["alive", *flags])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)


def test_grace_periods_outlast_the_drain():
    """Every grace period is longer than the drain and the last writes."""
    assert "# drain = " in (CONF / "jobpool.toml").read_text()
    text = (CONF / "jobpool.toml").read_text()
    assert set(re.findall(r'(?m)^# drain = "(.+)"', text)) == {f"{DRAIN_S:g}s"}
    pod, _container = container()
    grace_s = [
        pod["terminationGracePeriodSeconds"],
        duration_s(service("TimeoutStopSec")),
        duration_s(documents(COMPOSE)[0]["services"]["jobpool"]["stop_grace_period"]),
    ]
    assert min(grace_s) > DRAIN_S + LAST_WRITES_S


def test_a_slow_import_is_waited_for():
    """Loading may take a minute; no probe gives up before that."""
    text = (CONF / "jobpool.toml").read_text()
    (app_timeout,) = re.findall(r'(?m)^# app_timeout = "(.+)"', text)
    probe = container()[1]["startupProbe"]
    patience_s = [
        probe["periodSeconds"] * probe["failureThreshold"],
        duration_s(service("TimeoutStartSec")),
    ]
    health = documents(COMPOSE)[0]["services"]["jobpool"]["healthcheck"]
    patience_s.append(duration_s(health["start_period"]))
    assert min(patience_s) > duration_s(app_timeout)


def test_systemd_restarts_only_what_a_restart_can_fix():
    """Not a wrong configuration, a failed load, or a store that went back in time."""
    listed = service("RestartPreventExitStatus")
    assert [*map(int, listed.split())] == [Exit.USAGE, Exit.APP, Exit.WENT_BACK]
    page = ROOT / "src" / "jobpool" / "manual" / "deploying.md"
    assert f"\nRestartPreventExitStatus={listed}\n" in page.read_text()


def test_jobpools_memory_limits_are_reached_before_the_containers():
    """The container's memory is more than its children together may use."""
    _pod, found = container()
    env = {one["name"]: one.get("value") for one in found["env"]}
    memory = per_pool(env["JOBPOOL_MEMORY"], "memory")
    total = sum(n * size_bytes(memory[pool]) for pool, n in pool_sizes().items())
    assert size_bytes(found["resources"]["limits"]["memory"] + "B") > 1.2 * total
    compose = documents(COMPOSE)[0]["services"]["jobpool"]
    assert compose["environment"]["JOBPOOL_MEMORY"] == env["JOBPOOL_MEMORY"]
    assert compose["environment"]["JOBPOOL_POOLS"] == env["JOBPOOL_POOLS"]
    assert compose["mem_limit"] == "4g"


def test_the_deployment_fits_together():
    """Labels select its pods, volumes exist, and run directories are on one of them."""
    (deployment,) = documents(DEPLOYMENT)
    spec = deployment["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    pod, found = container()
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounts = {one["mountPath"]: one["name"] for one in found["volumeMounts"]}
    env = {one["name"]: one for one in found["env"]}
    assert "emptyDir" in volumes[mounts[env["JOBPOOL_RUN_DIR"]["value"]]]
    assert "emptyDir" in volumes[mounts["/tmp"]]
    assert "secretKeyRef" in env["JOBPOOL_STORE"]["valueFrom"]
    assert pod["shareProcessNamespace"] is False


# -- KEDA --------------------------------------------------------------------------


def triggers():
    """Return the triggers by name."""
    return {one["name"]: one for one in documents(SCALED)[-1]["spec"]["triggers"]}


def test_keda_scales_this_deployment():
    """Its name, its pools, its credentials; and down to zero when nothing is due."""
    authentication, scaled = documents(SCALED)
    assert (
        scaled["spec"]["scaleTargetRef"]["name"]
        == (documents(DEPLOYMENT)[0]["metadata"]["name"])
    )
    assert scaled["spec"]["minReplicaCount"] == 0
    for pool in pool_sizes():
        metadata = triggers()[f"{pool}-depth"]["metadata"]
        assert metadata["targetQueryValue"] == "1"
        assert metadata["activationTargetQueryValue"] == "0"
        assert f"pool = '{pool}'" in metadata["query"]
    for one in triggers().values():
        assert one["authenticationRef"]["name"] == authentication["metadata"]["name"]


@pytest.fixture
def store():
    """A store in a schema of its own on a real server."""
    url = server().fresh_url()
    made = open_store(url)
    yield made
    made.close()
    server().drop(url)


def answers(store):
    """Ask the store as KEDA does, by each trigger's own query."""
    schema = query_of(store.url)["schema"]
    found = {}
    with server().connect() as connection:
        for name, trigger in triggers().items():
            query = trigger["metadata"]["query"].replace("jobpool.", f"{schema}.")
            ((found[name],),) = connection.execute(query).fetchall()
    return found


def test_the_queries_return_zero_for_an_empty_queue(store):
    """Zero and not NULL, which KEDA could not read."""
    assert answers(store) == {"cpu-depth": 0.0, "io-depth": 0.0, "oldest-age": 0.0}


def test_the_queries_count_what_more_supervisors_could_run(store):
    """Due jobs of known kinds and running ones.

    Not paused, unknown or finished ones.
    """
    kinds = [kind_record("a", "cpu"), kind_record("b", "io"), kind_record("off", "io")]
    run = begin_run(store, kinds=kinds, pools={"cpu": "2", "io": "8"})
    store.pause(kind="off")
    store.enqueue(
        [new_job("a", "cpu")] * 5
        + [new_job("b", "io")] * 2
        + [new_job("off", "io"), new_job("unknown", "cpu")]
    )
    first, *_others = lease(store, run, 3, "cpu", {"cpu": ["a"]})
    store.settle([succeeded(first)])
    found = answers(store)
    assert (found["cpu-depth"], found["io-depth"]) == (2.0, 1.0)  # 4 of 2, 2 of 8
    assert isinstance(found["cpu-depth"], float)
    assert 0 < found["oldest-age"] < PATIENCE_S


def test_the_queries_do_not_count_what_waits_for_a_quota(store):
    """Supervisors would be added without end, for jobs that may not begin."""
    publish(store, quota(concurrency=1))
    store.enqueue([stamped()] * 5)
    (first,) = lease(store, "run-1", 9, "cpu", {"cpu": [KIND]})
    assert answers(store) == {
        "cpu-depth": 1.0,  # the one that runs
        "io-depth": 0.0,
        "oldest-age": 0.0,
    }
    store.settle([succeeded(first)])
    assert len(lease(store, "run-1", 9, "cpu", {"cpu": [KIND]})) == 1
    assert answers(store)["cpu-depth"] == 1.0
