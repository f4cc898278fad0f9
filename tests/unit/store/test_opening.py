"""Which store a URL names."""

import sys

import pytest

from jobpool.errors import ConfigError
from jobpool.store.opening import open_store, run_root


@pytest.mark.parametrize("odd", ["\0", "?", "#", "\ud800"], ids=ascii)
def test_a_path_that_no_file_can_have_is_refused(tmp_path, odd):
    """It is refused as a setting, before anything is made."""
    with pytest.raises(ConfigError, match="a character that a path here cannot have"):
        open_store(f"sqlite:///{tmp_path}/a{odd}b.db")
    assert list(tmp_path.iterdir()) == []


def test_postgresql_without_its_driver_is_named(monkeypatch):
    """The remedy is one command."""
    monkeypatch.setitem(sys.modules, "jobpool.store.postgres.store", None)
    with pytest.raises(ConfigError, match=r"pip install 'jobpool\[postgres\]'"):
        open_store("postgresql://u@h/d")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u:secret@h/d", "'mysql://…@h/d' is not the URL of a store"),
        ("u:secret@h", "'…@h' is not the URL of a store"),
        ("jobs.db", "'jobs.db' is not the URL of a store"),
        ("sqlite:///", "names no file"),
        ("sqlite:////", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///a/", "names no file"),
    ],
)
def test_a_url_of_no_store_is_named_without_its_password(url, said):
    """With what was expected."""
    with pytest.raises(ConfigError) as refused:
        open_store(url)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_run_directory_of_a_store(tmp_path):
    """Beside the file that the path leads to; a server's have a place of their own."""
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    beside = run_root(f"sqlite:///{tmp_path}/jobs.db")
    assert run_root(f"sqlite:///{tmp_path}/link.db") == beside
    assert beside.parent == tmp_path
    assert run_root("postgresql://h/d") == run_root("postgres://other/d")
    assert run_root("postgresql://h/d") != beside
