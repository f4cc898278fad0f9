"""The database file: where a queue may be, and what is refused with a remedy."""

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jobpool.errors import (
    ConfigError,
    JobpoolError,
    StoreRefused,
    StoreUnavailable,
)
from jobpool.store.opening import open_store, run_root
from jobpool.store.records.operating import Filter
from jobpool.store.sqlite.connection import connect, location
from support.store.storing import begin_run, lease, new_job

EVERYTHING = Filter()


def url_of(path):
    return f"sqlite:///{path}"


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o777])
def test_a_new_store_is_private_to_its_owner(tmp_path, umask):
    """The file, its log and its lock, whatever the umask."""
    path = tmp_path / "jobs.db"
    before = os.umask(umask)
    try:
        store = open_store(url_of(path))
        store.enqueue([new_job()])
    finally:
        os.umask(before)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [
        "jobs.db",
        "jobs.db-jobpool-lock",
        "jobs.db-shm",
        "jobs.db-wal",
    ]
    assert [mode_of(file) for file in files] == [0o600] * 4
    store.close()


def test_everyone_who_may_write_the_database_may_lock_it(tmp_path):
    """The lock file has the database's group permissions."""
    path = tmp_path / "jobs.db"
    sqlite3.connect(path).close()
    path.touch()
    path.chmod(0o660)
    open_store(url_of(path)).close()
    assert mode_of(tmp_path / "jobs.db-jobpool-lock") == 0o660


def test_the_journal_mode_and_syncs_are_as_promised(store_factory):
    """Write-ahead log, and every commit on disk."""
    store = store_factory()
    assert store.concerns() == []
    facts = store.describe()
    assert (facts["journal_mode"], facts["synchronous"]) == ("wal", "FULL")
    assert facts["permissions"] == "-rw-------"


def test_every_connection_is_set_up(database_path):
    """No temporary files or mapped memory, and a log that shrinks again."""
    open_store(url_of(database_path)).close()
    session, _ = connect.connect(str(database_path))
    pragmas = {
        "synchronous": 2,
        "temp_store": 2,
        "mmap_size": 0,
        "journal_size_limit": 64 * 2**20,
        "wal_autocheckpoint": 4000,
    }
    found = {
        name: session.connection.execute(f"PRAGMA {name}").fetchall()
        for name in pragmas
    }
    session.connection.close()
    assert found == {name: [(value,)] for name, value in pragmas.items()}


def test_file_names_may_have_special_characters(tmp_path):
    """A path is a path: nothing in it is an option."""
    path = tmp_path / "a b%41&mode=ro;é.db"
    store = open_store(url_of(path))
    store.enqueue([new_job()])
    assert store.url == url_of(path)
    store.close()
    assert path.exists()


def test_a_relative_path_is_relative_to_the_working_directory(tmp_path, monkeypatch):
    """The store reports the absolute path."""
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///jobs.db")
    assert store.url == url_of(tmp_path / "jobs.db")
    assert run_root("sqlite:///jobs.db") == tmp_path / "jobs.db.run"
    store.close()


def test_a_symbolic_link_leads_to_one_store(tmp_path):
    """With one log, one lock and one run directory."""
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real.db")
    store = open_store(url_of(link))
    store.enqueue([new_job()])
    assert store.url == url_of(tmp_path / "real.db")
    assert run_root(url_of(link)) == tmp_path / "real.db.run"
    assert not (tmp_path / "link.db-wal").exists()
    store.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "expected sqlite:///"),
        ("jobs.db", "expected sqlite:///"),
        ("/var/jobs.db", "expected sqlite:///"),
        ("sqlite:jobs.db", "expected sqlite:///"),
        ("sqlite://jobs.db", "expected sqlite:///"),
        ("mysql://me:hunter2@host/jobs", "mysql://…@host/jobs"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:////var/lib/", "names no file"),
        ("sqlite:///jobs.db?mode=ro", "no options"),
        ("sqlite:///a\0b", "NUL"),
    ],
)
def test_a_url_that_names_no_store_is_refused(url, message):
    """The error says what was seen and how a URL looks; never a password."""
    with pytest.raises(ConfigError) as refused:
        open_store(url)
    assert message in str(refused.value)
    assert "such as sqlite:///jobpool.db" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_missing_directory_is_refused(tmp_path):
    """Nothing is made; the remedy is named."""
    with pytest.raises(StoreRefused, match="create it"):
        open_store(url_of(tmp_path / "none" / "jobs.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_refused_as_a_database(tmp_path):
    """The error suggests a file in it."""
    with pytest.raises(StoreRefused, match=r"is a directory.*jobpool\.db"):
        open_store(url_of(tmp_path))


def test_a_device_is_refused_as_a_database(tmp_path):
    """Nor a FIFO: opening it would wait forever."""
    os.mkfifo(tmp_path / "jobs.db")
    with pytest.raises(StoreRefused, match="not a regular file"):
        open_store(url_of(tmp_path / "jobs.db"))


def test_hard_links_are_refused(tmp_path):
    """Two names would have two logs."""
    path = tmp_path / "jobs.db"
    open_store(url_of(path)).close()
    (tmp_path / "second.db").hardlink_to(path)
    with pytest.raises(StoreRefused, match="2 hard links"):
        open_store(url_of(path))


@pytest.mark.parametrize(
    "content", [b"hello, this is a text file\n" * 100, b"\0" * 4096]
)
def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path, content):
    """A file that is not a database stays as it is."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreRefused, match=r"name another file|damaged"):
        open_store(url_of(path))
    assert path.read_bytes() == content


def test_opening_without_create_changes_nothing(tmp_path):
    """create=False: neither a file nor tables in another database."""
    path = tmp_path / "jobs.db"
    with pytest.raises(StoreRefused, match="there is no store"):
        open_store(url_of(path), create=False)
    assert not path.exists()
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE orders (name TEXT)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match="holds no jobpool queue"):
        open_store(url_of(path), create=False)
    assert path.read_bytes() == before


@pytest.fixture
def open_folder():
    """A folder that every user can reach; pytest's own is private to its owner."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_read_only_place_is_refused(open_folder, what):
    """As an ordinary user, for whom permissions apply."""
    home = open_folder / "home"
    home.mkdir()
    path = home / "jobs.db"
    open_store(url_of(path)).close()
    path.chmod(0o444 if what == "file" else 0o666)
    home.chmod(0o777 if what == "file" else 0o555)
    code = (
        "import os, sys\n"
        "from jobpool.errors import StoreRefused\n"
        "from jobpool.store.opening import open_store\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: open_store(sys.argv[1])\n"
        "except StoreRefused as error: print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, url_of(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    message = "is read-only" if what == "file" else "may not write to its directory"
    assert message in run.stdout
    assert "give" in run.stdout


def test_a_network_file_system_is_refused_unless_forced(tmp_path, monkeypatch):
    """SQLite's locks do not work there."""
    monkeypatch.setattr(location, "filesystem_of", lambda path: "nfs4")
    with pytest.raises(StoreRefused, match=r"nfs4.*JOBPOOL_ALLOW_NETWORK_FS=1"):
        open_store(url_of(tmp_path / "jobs.db"))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("JOBPOOL_ALLOW_NETWORK_FS", "1")
    open_store(url_of(tmp_path / "jobs.db")).close()


def test_an_old_sqlite_is_refused():
    """It has no RETURNING; the error says which version is needed."""
    with pytest.raises(StoreRefused, match=r"SQLite 3\.34\.1.*3\.35"):
        connect.check_library((3, 34, 1))
    connect.check_library((3, 35, 0))


@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_a_replaced_or_deleted_file_acknowledges_nothing(
    store, tmp_path, database_path, fate
):
    """SQLite itself would write to a deleted file without an error."""
    store.enqueue([new_job()])
    other = open_store(url_of(tmp_path / "other.db"))
    other.enqueue([new_job("shop.other")])
    other.close()
    database_path.unlink()
    for suffix in ("-wal", "-shm"):
        database_path.with_name(f"jobs.db{suffix}").unlink()
    if fate == "replaced":
        (tmp_path / "other.db").rename(database_path)
    with pytest.raises(StoreUnavailable, match="was replaced, moved or deleted"):
        store.enqueue([new_job()])
    if fate == "replaced":
        assert [job.kind for job in store.find(EVERYTHING)] == ["shop.other"]
    else:
        for _ in range(2):  # No empty queue takes its place.
            with pytest.raises(StoreUnavailable, match="deleted"):
                store.count(EVERYTHING)
        assert not database_path.exists()


def test_a_file_replaced_within_a_transaction_fails_its_commit(
    store, tmp_path, database_path
):
    """Before anything of it is acknowledged."""
    with pytest.raises(StoreUnavailable, match="replaced"), store.transaction():  # noqa: PT012 - the error comes on leaving
        store.enqueue([new_job()])
        database_path.rename(tmp_path / "away.db")
    (tmp_path / "away.db").rename(database_path)
    assert store.count(EVERYTHING) == 0
    store.enqueue([new_job()])
    assert store.count(EVERYTHING) == 1


def test_a_file_replaced_during_its_commit_is_noticed(store, tmp_path, database_path):
    """The file is checked before and after the commit."""

    def replace(statement):
        if statement == "COMMIT":
            database_path.rename(tmp_path / "away.db")

    store._database._session.connection.set_trace_callback(replace)
    with pytest.raises(StoreUnavailable, match="replaced"):
        store.enqueue([new_job()])
    assert not database_path.exists()


def test_other_tables_in_the_same_file_are_left_alone(tmp_path):
    """They are left alone, and so is the file's application id."""
    path = tmp_path / "shop.db"
    theirs = sqlite3.connect(path, isolation_level=None)
    theirs.execute("PRAGMA application_id = 77")
    theirs.execute("CREATE TABLE jobs (id TEXT)")
    theirs.execute("INSERT INTO jobs VALUES ('mine')")
    store = open_store(url_of(path))
    begin_run(store)
    store.enqueue([new_job()])
    assert len(lease(store)) == 1
    assert theirs.execute("PRAGMA application_id").fetchone() == (77,)
    assert theirs.execute("SELECT * FROM jobs").fetchall() == [("mine",)]
    theirs.close()
    store.close()


def test_every_refusal_to_open_is_a_store_error(tmp_path):
    """open_store raises no sqlite3 error."""
    path = tmp_path / "jobs.db"
    open_store(url_of(path)).close()
    whole = path.read_bytes()
    for cut in (1, 99, 100, 101, 512, 4095):
        path.write_bytes(whole[:cut] + b"\xff" * 50)
        with pytest.raises(JobpoolError):
            open_store(url_of(path))


def test_the_database_is_never_readable_by_others(database_path, monkeypatch):
    """It is created with its final mode."""
    modes = []

    def record(fd, mode, chmod=os.fchmod):
        modes.append(os.fstat(fd).st_mode & 0o777)
        chmod(fd, mode)

    monkeypatch.setattr(os, "fchmod", record)
    open_store(url_of(database_path)).close()
    assert modes[0] & 0o177 == 0
    assert database_path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("level", "name"), [(0, "OFF"), (1, "NORMAL"), (2, "FULL"), (3, "EXTRA")]
)
def test_an_operator_is_told_how_commits_are_written(store, level, name):
    """The actual setting, not the intended one."""
    with store._file.reading() as session:
        session.connection.execute(f"PRAGMA synchronous = {level}")
    assert store.describe()["synchronous"] == name
