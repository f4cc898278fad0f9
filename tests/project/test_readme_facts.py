"""README.md and the manual agree with the code: tables, commands, options, names.

What must be documented is in one of them, and whatever they say is true.
"""

import ast
import inspect
import itertools
import re
import sqlite3
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import jobpool
from jobpool.cli.exits import MEANING
from jobpool.cli.launch.launch import run
from jobpool.cli.root import cli
from jobpool.core.config.options import ENVIRONMENT
from jobpool.core.config.settings import DRAIN_S
from jobpool.core.events import sentences
from jobpool.core.events.event import Event, Level
from jobpool.core.isolation.measures import MEASURES
from jobpool.core.jobs import outcome
from jobpool.core.jobs.outcome import CHARGES, Charge
from jobpool.core.rules import policy
from jobpool.core.rules.lifecycle import TRANSITIONS
from jobpool.core.rules.quotas.gcra import pace
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.core.units import show_duration
from jobpool.integrations.fernet import KEYS_VARIABLE
from jobpool.monitoring.metrics.catalogue import CATALOGUE
from jobpool.store.opening import ALLOW_NETWORK, open_store
from jobpool.store.postgres.connection.run_root import BASE_VARIABLE
from support.postgres.server import query_of, server
from support.readme import DOCUMENTS, README

ROLES_SQL = README.parent / "conf" / "postgres" / "roles.sql"
TEXT = "\n".join(document.read_text() for document in DOCUMENTS)
ROOT = click.Context(cli, info_name="jobpool")
COMMANDS = {name: cli.get_command(ROOT, name) for name in cli.list_commands(ROOT)}
COMMANDS |= {
    f"{name} {below}": command
    for name, group in COMMANDS.items()
    if isinstance(group, click.Group)
    for below, command in group.commands.items()
}
# Of other programs, which are named as well.
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
OF_A_SCRIPT = re.compile(r"scripts/[^`\n]*")
FOREIGN_OPTIONS = {
    *("--encoding", "--template"),
    *("--reload", "--verbosity", "--backend"),  # of manage.py jobpool
}
# `jobpool.toml`, `jobpool.db` and modules look like tables.
NO_TABLES = {"toml", "db", "errors", "testing"}
SPAN_ATTRIBUTES = set(
    re.findall(
        r'"jobpool\.(\w+)"',
        (README.parent / "src/jobpool/monitoring/tracing/spans.py").read_text(),
    )
)
FIXTURES = {"jobpool_queue", "jobpool_inline"}
OTHER_VARIABLES = {
    ALLOW_NETWORK,
    BASE_VARIABLE,
    KEYS_VARIABLE,
    "JOBPOOL_CONFIG",
    "JOBPOOL_RUN",
}


def meanings():
    """Return what the source says of each outcome, from the text below its name."""
    (body,) = [
        node.body
        for node in ast.parse(inspect.getsource(outcome)).body
        if isinstance(node, ast.ClassDef) and node.name == "Outcome"
    ]
    return {
        ast.literal_eval(name.value): ast.literal_eval(text.value)
        for name, text in itertools.pairwise(body)
        if isinstance(name, ast.Assign) and isinstance(text, ast.Expr)
    }


def outcome_table():
    """Return the rows of the table of outcomes, from CHARGES."""
    said = meanings()
    return [
        f"| `{found}` | {said[found]} | "
        + " | ".join("1" if cost else "" for cost in charge)
        + " |"
        for found, charge in CHARGES.items()
    ]


def diagram():
    """Return the diagram of states, from TRANSITIONS."""
    begin = ("pending", "runnable", "waiting")
    lines = ["stateDiagram-v2", *(f"    [*] --> {state}" for state in begin)]
    for state, row in TRANSITIONS.items():
        targets = {}
        for event, following in row.items():
            if following is not None:
                targets.setdefault(following, []).append(event.value)
        lines += [
            f"    {state} --> {to}: {', '.join(by)}" for to, by in targets.items()
        ]
        if not targets:
            lines.append(f"    {state} --> [*]")
    return lines


def options_of(command):
    """Return a command's options as they are typed."""
    return {
        text
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for text in parameter.opts
        if text.startswith("--")
    }


def test_the_table_of_measures_matches_the_code():
    """The manual promises exactly what children do to themselves."""
    rows = "\n".join(
        f"| {one.name} | `{one.asked_by}` | {one.stops} | {one.may_break} |"
        for one in MEASURES
    )
    assert f"\n|---|---|---|---|\n{rows}\n\n" in TEXT, rows


def test_the_outcome_table_matches_the_code():
    """What each outcome costs is what CHARGES says, in its order."""
    head = f"| outcome | meaning | {' | '.join(Charge._fields)} |".replace("_", " ")
    rows = "\n".join(outcome_table())
    table = f"{head}\n|---|---|{'---|' * len(Charge._fields)}\n{rows}\n"
    assert f"{table}\n" in TEXT, table


def test_the_diagram_matches_the_code():
    """The diagram has every transition of TRANSITIONS and no other."""
    expected = "\n".join(diagram())
    assert f"```mermaid\n{expected}\n```" in TEXT, expected


def test_the_exit_codes_match_the_code():
    """The table of exit codes is what --help shows."""
    rows = "\n".join(f"| {code:d} | {meaning} |" for code, meaning in MEANING.items())
    assert f"| code | meaning |\n|---|---|\n{rows}\n\n" in TEXT, rows


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_manual(name):
    """Every command is documented there."""
    assert re.search(rf"\bjobpool {name}\b|scripts/{name}\b", TEXT)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_option_is_explained(name):
    """Help works for each command, and each of its options is in it or here."""
    command = COMMANDS.get(name, cli)
    answer = CliRunner().invoke(cli, [*name.split(), "--help"])
    assert answer.exit_code == 0, answer.output
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[0] in answer.output
            assert parameter.help or f"{parameter.opts[0]} " in TEXT, parameter.opts


def test_every_named_option_exists():
    """Options in README and manual exist."""
    known = set().union(*map(options_of, (cli, run, *COMMANDS.values())))
    known |= {"--help", *FOREIGN_OPTIONS}
    named = set(OPTION.findall(OF_A_SCRIPT.sub("", TEXT)))
    assert len(named) > len(FOREIGN_OPTIONS)
    assert named <= known


def test_every_named_option_of_a_script_exists():
    """Options of the scripts exist: in the script itself, or in what it runs."""
    scripts = README.parent / "scripts"
    sources = [*(path for path in scripts.iterdir() if path.is_file())]
    sources += [*scripts.glob("lib/**/*.py"), *README.parent.glob("tests/*/*.py")]
    known = {
        option
        for path in sources
        if path.is_file()
        for option in OPTION.findall(path.read_text())
    }
    named = {
        option
        for mention in OF_A_SCRIPT.findall(TEXT)
        for option in OPTION.findall(mention)
    }
    assert named
    assert named <= known


def test_every_named_variable_exists():
    """Environment variables in README and manual exist."""
    named = set(re.findall(r"JOBPOOL_[A-Z_]*[A-Z]", TEXT))
    assert ALLOW_NETWORK in named
    assert named <= {*ENVIRONMENT, *OTHER_VARIABLES}


def test_every_named_table_exists(tmp_path):
    """Tables and views in README and manual exist in a fresh store."""
    open_store(f"sqlite:///{tmp_path / 'jobs.db'}").close()
    connection = sqlite3.connect(tmp_path / "jobs.db")
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    metrics = {one.name for one in CATALOGUE}
    named = set(re.findall(r"\bjobpool_[a-z_]+[a-z]\b", TEXT)) - metrics
    roles = set(re.findall(r"'(jobpool_\w+)',?  ", ROLES_SQL.read_text()))
    assert "jobpool_stats" in named
    assert roles <= named - FIXTURES <= there | roles


def test_every_named_postgresql_view_exists():
    """Views and tables of the PostgreSQL store in the manual exist there."""
    url = server().fresh_url()
    try:
        open_store(url).close()
        with server().connect(url) as connection:
            rows = connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
                " UNION ALL"
                " SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace(%s)",
                [query_of(url)["schema"]] * 2,
            ).fetchall()
    finally:
        server().drop(url)
    named = set(re.findall(r"`jobpool\.([a-z_]+)`", TEXT))
    assert "stats" in named
    named -= {*NO_TABLES, *SPAN_ATTRIBUTES}
    assert named <= {name for (name,) in rows}


def test_every_file_beside_the_database_is_named(tmp_path):
    """Users who back up or delete a store need to know all of its files."""
    (tmp_path / "jobs.py").write_text("import jobpool\njobs = jobpool.JobPool()\n")
    store = open_store(f"sqlite:///{tmp_path / 'jobpool.db'}")
    try:
        subprocess.run(
            [sys.executable, "-m", "jobpool", "--pools", "io=1", "--burst"],
            cwd=tmp_path,
            check=True,
        )
        files = {path.name for path in tmp_path.glob("jobpool.db*")}
    finally:
        store.close()
    page = (README.parent / "src/jobpool/manual/files.md").read_text()
    assert len(files) > len({"jobpool.db", "jobpool.db.run"})
    assert {name for name in files if f"`{name}`" not in page} == {"jobpool.db.run"}
    assert "`jobpool.db.run/`" in page


@pytest.mark.parametrize("name", jobpool.__all__)
def test_every_exported_name_is_documented(name):
    """Each public name has a docstring, and README or manual show it."""
    assert inspect.getdoc(getattr(jobpool, name))
    assert re.search(rf"\b{name}\b", TEXT)


def test_the_manual_lists_the_events_to_alert_on():
    """The events of level error are those that the manual names."""
    lines = [li for li in TEXT.splitlines() if li.startswith("Alert on `")]
    assert lines
    urgent = {
        kind.name
        for kind in vars(sentences).values()
        if isinstance(kind, type)
        and issubclass(kind, Event)
        and kind.level is Level.ERROR
    }
    for line in lines:
        assert set(re.findall(r"`(\w+)`", line)) == urgent


def test_what_rates_allow_matches_the_code():
    """Each row of the table is what the arithmetic of rates makes of its quota."""
    row = re.compile(
        r'^\| `rate="([^"]+)"(?:, burst=(\d+))?`(?: \(burst (\d+)\))? '
        r"\| (\d+) \| (\d+) \| ([\d.]+)/s \|$",
        re.MULTILINE,
    )
    found = row.findall(TEXT)
    assert len(found) >= 3
    for rate, given, usual, *shown in found:
        parsed, burst = parse_rate(rate), int(given or usual)
        if usual:
            assert parsed.default_burst == burst
        most = [str(int(parsed.per_second * span_s + burst)) for span_s in (1, 60)]
        average = 1e6 / pace(parsed, burst).interval_us
        assert shown == [*most, f"{round(average, 2):g}"]


def test_budgets_match_the_code():
    """The numbers of the rules are those in force."""
    usual = policy.Policy()
    hours = usual.crash_window_s / 3600
    waits = [show_duration(policy.backoff_s(nth, 0)) for nth in range(1, 6)]
    for said in (
        f"| failures | `max_attempts`, {usual.max_attempts}; ",
        f"| crashes | `max_crashes`, {usual.max_crashes}, within ",
        f", within `crash_window`, {hours:g} h |",
        f"| recoveries | {usual.max_lost} |",
        f"| interruptions | {policy.INTERRUPTIONS_MAX} |",
        f"±{policy.JITTER:.0%}".replace("%", " %"),
        f"`drain` ({DRAIN_S:g} s)",
    ):
        assert said in TEXT, said
    assert waits == ["30s", "2m00s", "8m00s", "32m00s", "1h00m"]
    assert "after 30 s, 2 min, 8 min and 32 min." in TEXT
    assert "are at most 1 h" in TEXT
