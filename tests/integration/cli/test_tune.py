"""`jobpool tune`: what fits, what it would have done, and the edit of the file."""

import json
import os
import tomllib
from collections import Counter
from contextlib import closing

import pytest

from jobpool.cli.diagnose.tune.edit import Edit, draft, write
from jobpool.core.rules.run_report import KindReport, RunReport
from jobpool.core.rules.usage.sketch import Measure, buckets_of
from jobpool.errors import ConfigError
from jobpool.store.opening import open_store
from jobpool.store.records.reading import SketchRow
from support.store.cli_store import KIND, RUN, enqueue, run, stored, url_of
from support.store.storing import kind_record, succeeded

MIB = 2**20
CONFIG = """\
# Ours.
[pools.cpu]
size = 8  # one a core
memory = "1GiB"

[kinds."shop.thumbnail"]
max_attempts = 3  # they are cheap
"""


def add(store, kind, values, *, measure=Measure.MEMORY, pool="cpu", killed=0):
    """Add attempts, and some that were ended at their limit of 512 MiB."""
    for values_, censored in ((values, 0), ([512 * MIB] * killed, 1)):
        counts = Counter(buckets_of(values_))
        store.add_sketches(
            SketchRow(
                kind=kind,
                pool=pool,
                measure=measure,
                bucket=bucket,
                attempts=attempts,
                censored=attempts * censored,
            )
            for bucket, attempts in counts.items()
        )


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Where the command is started."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shop(tmp_path):
    """A day's work: thumbnails are small, reports are killed, few mails."""
    (tmp_path / "jobpool.toml").write_text(CONFIG)
    with closing(stored(tmp_path)) as store:
        store.begin_run(
            RUN,
            [KIND, kind_record("shop.report", memory_bytes=512 * MIB, timeout_s=60)],
            60.0,
        )
        add(store, KIND.kind, [60 * MIB] * 12_405 + [130 * MIB] * 3)
        add(store, KIND.kind, [20.0] * 12_408, measure=Measure.DURATION)
        add(store, "shop.report", [300 * MIB] * 1000, killed=200)
        add(store, "shop.report", [20_000.0] * 1200, measure=Measure.DURATION)
        add(store, "shop.mail", [50 * MIB] * 12)
    return tmp_path


def tune(*args, stdin=None, exit_code=0):
    done = run("tune", *args, stdin=stdin)
    assert done.exit_code == exit_code, done.output
    return done


def test_it_proposes_and_says_what_that_would_have_done(shop):
    """Nothing is changed."""
    said = tune().stdout
    thumbnail = next(line for line in said.splitlines() if KIND.kind in line)
    assert "12,408" in thumbnail
    assert "would have ended 3 of 12,408" in thumbnail
    report = next(line for line in said.splitlines() if "shop.report" in line)
    assert "200 of 1,200 were ended early" in report
    assert "768MiB" in report
    assert "shop.mail (12)" in said
    assert "3 limits would change" in said  # 2 of thumbnails, memory of reports
    assert (shop / "jobpool.toml").read_text() == CONFIG


def test_the_sum_of_a_pool_counts_its_largest_kind(shop):
    """Reports grow: eight slots may take more than before."""
    said = tune().stdout
    assert "pool cpu  8 slots  up to 4GiB now, 6GiB then: 2GiB more" in said


def test_what_is_freed_is_room_for_slots(tmp_path):
    with closing(stored(tmp_path)) as store:
        add(store, KIND.kind, [100 * MIB] * 5000)
    (tmp_path / "jobpool.toml").write_text(CONFIG)
    found = json.loads(tune("--json").stdout)
    (cpu, *_) = found["pools"]
    limit = found["kinds"][0]["memory_bytes"]["proposed"]
    assert cpu["reserved_bytes"] == 8 * 512 * MIB
    assert cpu["proposed_bytes"] == 8 * limit
    assert cpu["room_for"] == int(8 * (512 * MIB - limit) // limit) > 20


def test_write_edits_the_file_and_keeps_comments(shop):
    done = tune("--write", "--yes")
    assert "+memory = " in done.stdout
    text = (shop / "jobpool.toml").read_text()
    for line in CONFIG.splitlines():
        assert line in text
    values = tomllib.loads(text)["kinds"]
    assert values["shop.report"] == {"memory": "768MiB"}
    assert values[KIND.kind]["timeout"] == "10s"
    assert values[KIND.kind]["max_attempts"] == 3
    checked = tune("--write", "--yes")
    assert "says all this already" in checked.stdout


@pytest.mark.parametrize("name", ["pyproject.toml", "jobpool.toml"])
def test_write_goes_to_the_file_that_is_used(shop, name):
    (shop / "jobpool.toml").unlink()
    if name == "pyproject.toml":
        (shop / name).write_text("[project]\nname = 'shop'\n[tool.jobpool]\n")
    tune("--write", "--yes")
    found = tomllib.loads((shop / name).read_text())
    if name == "pyproject.toml":
        assert found["project"] == {"name": "shop"}
        found = found["tool"]["jobpool"]
    assert found["kinds"]["shop.report"]["memory"] == "768MiB"


def test_without_an_answer_nothing_is_written(shop):
    refused = tune("--write", stdin="n\n", exit_code=1)
    assert "Write this to" in refused.stderr
    assert (shop / "jobpool.toml").read_text() == CONFIG


def test_a_file_of_another_shape_is_refused(shop):
    bad = 'kinds."shop.thumbnail" = "none"\n'
    (shop / "jobpool.toml").write_text(bad)
    said = tune("--write", "--yes", exit_code=2).stderr
    assert 'kinds."shop.thumbnail" must be a table' in said
    assert (shop / "jobpool.toml").read_text() == bad


def test_a_table_in_the_way_is_refused(tmp_path):
    path = tmp_path / "jobpool.toml"
    path.write_text("kinds = 3\n")
    with pytest.raises(ConfigError, match="kinds is not a table"):
        draft(path, [Edit(("kinds", "shop.mail"), "memory", "64MiB")])


EDITS = [Edit(("kinds", "a.b"), "memory", "64MiB"), Edit(("pools", "io"), "recycle", 9)]


def test_line_ends_stay(tmp_path):
    """A file from Windows is not made anew: the diff shows each line that changes."""
    path = tmp_path / "jobpool.toml"
    path.write_bytes(b"# Ours.\r\n[pools.io]\r\nsize = 4\r\n")
    made = draft(path, EDITS)
    write(made)
    written = path.read_bytes()
    assert written.startswith(b"# Ours.\r\n[pools.io]\r\nsize = 4\r\nrecycle = 9\r\n")
    assert written.count(b"\n") == written.count(b"\r\n")
    assert [line for line in made.diff.splitlines()[3:] if line[0] == "-"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_that_root_writes_keeps_its_owner_and_mode(tmp_path):
    """Else the supervisor, which is not root, could not read it any more."""
    path = tmp_path / "jobpool.toml"
    path.write_text(CONFIG)
    path.chmod(0o640)
    os.chown(path, 4321, 1234)
    write(draft(path, EDITS))
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4321, 1234, 0o640)


def test_an_inline_table_that_cannot_be_edited_is_refused(tmp_path):
    path = tmp_path / "jobpool.toml"
    path.write_text("kinds = {}\n")
    with pytest.raises(ConfigError, match=r"cannot be edited.*nothing was changed"):
        draft(path, EDITS)


def test_tables_that_are_apart_are_edited_where_they_are(tmp_path):
    """So are those of most projects: other tools' tables lie between."""
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.ruff]\n[project]\n[tool.jobpool.pools.io]\nsize = 4\n")
    write(draft(path, EDITS))
    found = tomllib.loads(path.read_text())
    ours = {"kinds": {"a.b": {"memory": "64MiB"}}}
    ours["pools"] = {"io": {"size": 4, "recycle": 9}}
    assert found == {"tool": {"ruff": {}, "jobpool": ours}, "project": {}}


def test_a_file_that_was_changed_meanwhile_is_left_alone(shop):
    """The diff that somebody has agreed to was of another file."""
    path = shop / "jobpool.toml"
    made = draft(path, [Edit(("kinds", "shop.mail"), "memory", "64MiB")])
    path.write_text(theirs := CONFIG + "# Mine.\n")
    with pytest.raises(ConfigError, match="changed meanwhile"):
        write(made)
    assert path.read_text() == theirs
    assert [one.name for one in shop.glob(".jobpool-*")] == []


def test_a_leak_is_named_and_its_pool_recycles_sooner(shop):
    """At 1 MiB a job, half of its room is gone after some."""
    report = RunReport(kinds={KIND.kind: KindReport(grown_bytes=MIB)})
    with closing(open_store(url_of(shop))) as store:
        store.put_report(RUN.id, report)
    said = tune("--kind", KIND.kind).stdout
    assert "leaks: each job leaves about 1MiB behind" in said
    assert "instead of 10000" in said
    (pool, *_) = json.loads(tune("--json").stdout)["pools"]
    assert (pool["leaking"], pool["recycle_proposed"] < 50) == (KIND.kind, True)


def test_memory_that_follows_the_arguments_is_said(tmp_path):
    with closing(stored(tmp_path)) as store:
        for size in range(150):
            enqueue(store, payload=b'{"path": "' + b"x" * size + b'"}')
        leases = store.lease(RUN.id, {"cpu": 150}, {"cpu": [KIND.kind]}).leases
        store.settle(
            [
                succeeded(one, peak_rss_bytes=(50 + size) * MIB, duration_s=1.0)
                for size, one in enumerate(leases)
            ]
        )
        add(store, KIND.kind, [(50 + size) * MIB for size in range(150)])
    said = tune().stdout
    assert "its memory follows the size of its arguments" in said
    assert "uncertain: P99 is from" in said


def test_kinds_that_are_hardly_known_are_not_said_to_fit(shop):
    """A bomb that is killed at its limit at once, for one."""
    said = tune("--kind", "shop.mail").stdout
    assert "nothing to change: of 1 kind, 0 are known well enough to say so" in said
    assert "all limits fit" not in said


def test_an_empty_store_says_when_there_will_be_something(tmp_path):
    stored(tmp_path).close()
    assert "no attempt has been counted yet " in tune().stdout


def test_a_filter_that_no_attempt_fits_is_not_called_an_empty_store(shop):
    """Whoever mistypes a kind is not told that nothing was counted at all."""
    said = tune("--kind", "shop.thumbnial").stdout
    assert "counted yet of what --kind, --pool or --weeks names" in said


@pytest.mark.parametrize("args", [("--yes",), ("--write", "--json")])
def test_flags_that_contradict_one_another_are_refused(shop, args):
    tune(*args, exit_code=2)
