"""The shop of `jobpool demo orders`, whose supervisor is killed midway."""

import contextlib
import os
import sqlite3
import subprocess
import sys

import pytest

from support.store.cli_store import run as in_process

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(sys.platform != "linux", reason="supervisors run on Linux"),
]
ORDERS = 14
RUN_S = 300


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "jobpool", "demo", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )


def rows(path, query):
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as one:
        return one.execute(query).fetchall()


def test_every_order_is_accounted_for_though_the_supervisor_is_killed(tmp_path):
    """Counted here by plain SQL, without any of the demo's own code."""
    done = run("orders", "--orders", ORDERS, "--dir", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every order is accounted for, once; nothing is left." in done.stdout
    assert "supervisor killed:" in done.stderr
    runs = "SELECT count(*) FROM jobpool_runs"
    assert rows(tmp_path / "demo.db", runs) == [(2,)]
    flows = "SELECT state, count(*) FROM jobpool_flows GROUP BY state ORDER BY state"
    # 5 and 10: an address that kills. 14: asks second, and is not approved.
    assert rows(tmp_path / "demo.db", flows) == [("failed", 3), ("succeeded", 11)]
    whats = "SELECT what, count(*) FROM entries GROUP BY what"
    counts = dict(rows(tmp_path / "ledger.db", whats))
    assert counts == {
        "charged": 13,
        "reserved": 13,
        "invoiced": 13,
        "shipped": 11,
        "mailed": 11,
        "refunded": 2,
    }
    (earned,) = rows(tmp_path / "ledger.db", "SELECT sum(cents) FROM entries")[0]
    assert f"earned {earned / 100:,.2f}, as the settlement says" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--keep", "orders"), "--keep belongs behind 'orders'"),
        (("orders", "--orders", "13"), "--orders"),
        (("orders", "--dir", "."), "is not empty"),
    ],
)
def test_what_would_be_ignored_or_overwritten_is_refused(
    arguments, word, tmp_path, monkeypatch
):
    """Nothing is written among what is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").write_text("mine")
    done = in_process("demo", *arguments)
    assert done.exit_code == 2
    assert word in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
