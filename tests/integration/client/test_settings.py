"""Clients obey the configuration as supervisors do, where it concerns them."""

import os

import msgspec
import pytest

from jobpool import ArgumentsRejected, JobPool, QueueFull, StoreRefused
from jobpool.cli.context import read_file
from jobpool.core.config.load import configure, read_sources
from jobpool.core.config.options import ALIAS, CLIENT, TOP
from jobpool.core.config.settings import ClientSettings
from jobpool.core.config.sources import field_of
from jobpool.store.opening import open_store
from jobpool.store.sqlite.connection import location
from jobpool.testing import run_now, running
from support.configuring import BIG

OF_SUPERVISORS = {
    "app",
    "app_version",
    "memory_budget",
    "memory_admission",
    "app_timeout",
    "lease_ttl",
    "probation",
    "unknown_for",
}
"""What no client needs: each of the others has its probe below."""


def stores_elsewhere(jobs, work, folder):
    work.enqueue("a")
    assert (folder / "elsewhere.db").exists()
    assert not (folder / "jobpool.db").exists()


def refuses_large_payloads(jobs, work, folder):
    for enqueue in (
        work.enqueue,
        work.options(priority=1).enqueue,
        work.call,
        lambda text: jobs.enqueue_many(work, [{"text": text}]),
        lambda text: run_now(work, text),
    ):
        enqueue("x" * 189)
        with pytest.raises(ArgumentsRejected, match=r"at most 200 .*payload_max"):
            enqueue("x" * 190)


def refuses_large_results(jobs, work, folder):
    assert run_now(work, "x" * 98) == "x" * 98
    with pytest.raises(ValueError, match=r"at most 100.*result_max"):
        run_now(work, "x" * 99)
    with running() as rehearsal, pytest.raises(ValueError, match="at most 100"):
        rehearsal.complete(None, "x" * 99)


def refuses_what_is_too_much(jobs, work, folder):
    work.enqueue("a")
    work.enqueue("b")
    with pytest.raises(QueueFull, match=r"jobpool status.*raise depth_max"):
        work.enqueue("c")
    with pytest.raises(QueueFull):
        jobs.enqueue_many(work.call(letter) for letter in "de")


HOLDS = {
    "store": ("sqlite:///elsewhere.db", stores_elsewhere),
    "payload_max": ("200", refuses_large_payloads),
    "result_max": ("100", refuses_large_results),
    ALIAS: ("2", refuses_what_is_too_much),
}
"""Every setting of a client's: a value that is not the default, and how it shows."""
NAMES = {"pool_names"}
"""No settings, but who has some: that clients know the pools that the configuration
names is in tests/unit/client/test_other_pools.py."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("JOBPOOL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def jobs():
    jobs = JobPool()
    yield jobs
    jobs.close()


def test_every_setting_belongs_to_clients_or_to_supervisors():
    """A new setting must be assigned to one side, with a test that clients obey it."""
    assert set(TOP) == {*CLIENT, *OF_SUPERVISORS, ALIAS}
    assert set(HOLDS) == {*CLIENT, ALIAS}
    fields = {field.name for field in msgspec.structs.fields(ClientSettings)}
    assert fields - NAMES == {
        *(field_of(ClientSettings, key) for key in CLIENT),
        "admission",
    }


@pytest.mark.parametrize("layer", ["file", "variable", "variable over file"])
@pytest.mark.parametrize("key", HOLDS)
def test_a_client_obeys_what_a_supervisor_obeys(folder, monkeypatch, jobs, key, layer):
    """From the same layers. Nothing is read while the pool is constructed."""
    value, holds = HOLDS[key]
    work = jobs.job("cpu", kind="work")(lambda text: text)
    if layer != "variable":
        written = value if layer == "file" else {"store": "x.db"}.get(key, "1000000")
        (folder / "jobpool.toml").write_text(f"{key} = {written!r}")
    if layer != "file":
        monkeypatch.setenv(f"JOBPOOL_{key.upper()}", value)
    holds(jobs, work, folder)
    sources = read_sources(
        {}, env=os.environ, directory=str(folder), read_file=read_file
    )
    theirs = configure(sources, machine=BIG, has_jobs_file=True).settings
    field = "admission" if key == ALIAS else field_of(ClientSettings, key)
    assert getattr(theirs, field) == getattr(jobs._gateway._lazy.settings, field)


def test_what_the_application_names_overrides_the_configuration(folder, monkeypatch):
    """True for the store and for the size of payloads."""
    monkeypatch.setenv("JOBPOOL_PAYLOAD_MAX", "10")
    monkeypatch.setenv("JOBPOOL_STORE", "sqlite:///other.db")
    jobs = JobPool("sqlite:///named.db", payload_max="1KiB")
    jobs.job("cpu", kind="work")(lambda text: text).enqueue("x" * 500)
    jobs.close()
    assert [path.name for path in folder.glob("*.db")] == ["named.db"]


def test_a_closed_pool_finds_its_settings_anew(folder, monkeypatch):
    """As it finds its store: a corrected configuration takes effect."""
    monkeypatch.setenv("JOBPOOL_PAYLOAD_MAX", "10")
    jobs = JobPool()
    work = jobs.job("cpu", kind="work")(lambda text: text)
    with pytest.raises(ArgumentsRejected):
        work.enqueue("x" * 500)
    jobs.close()
    monkeypatch.setenv("JOBPOOL_PAYLOAD_MAX", "1KiB")
    work.enqueue("x" * 500)
    jobs.close()


def test_a_network_file_system_is_allowed_to_all_by_one_variable(folder, monkeypatch):
    """An application may use what its supervisor may use."""
    monkeypatch.setattr(location, "filesystem_of", lambda path: "nfs4")
    jobs = JobPool()
    work = jobs.job("cpu", kind="work")(lambda: None)
    with pytest.raises(StoreRefused, match="JOBPOOL_ALLOW_NETWORK_FS=1"):
        work.enqueue()
    monkeypatch.setenv("JOBPOOL_ALLOW_NETWORK_FS", "1")
    assert work.enqueue().created
    open_store("sqlite:///jobpool.db", create=False).close()
    jobs.close()
