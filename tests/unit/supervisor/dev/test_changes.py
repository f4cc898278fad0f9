"""Which changes of files start `jobpool dev` anew."""

import os
import sys

import pytest

from jobpool.core.config.settings import Settings
from jobpool.supervisor.dev.changes import Changes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An application of a package and a file beside it, imported."""
    package = tmp_path / "shop_of_changes"
    package.mkdir()
    for file in (package / "__init__.py", package / "jobs.py", tmp_path / "other.py"):
        file.write_text("")
    (tmp_path / "jobpool.toml").write_text("")
    (tmp_path / "unimported").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    __import__("shop_of_changes.jobs")
    yield tmp_path
    for name in ("shop_of_changes", "shop_of_changes.jobs"):
        sys.modules.pop(name, None)


@pytest.fixture
def changes(folder):
    settings = Settings(
        store="", app="shop_of_changes.jobs", app_directory=str(folder), pools=()
    )
    return Changes(settings, [str(folder / "jobpool.toml")])


@pytest.mark.parametrize(
    "name",
    ["shop_of_changes/jobs.py", "other.py", "jobpool.toml", "shop_of_changes/new.py"],
)
def test_a_file_that_is_written_is_a_change(folder, changes, name):
    assert changes.changed() == []
    (folder / name).write_text("x = 1")
    assert changes.changed() == [str(folder / name)]


def test_a_file_of_the_same_size_is_told_by_its_time(folder, changes):
    os.utime(folder / "other.py", ns=(1, 1))
    assert changes.changed() == [str(folder / "other.py")]


def test_a_file_that_is_gone_is_a_change(folder, changes):
    (folder / "other.py").unlink()
    assert changes.changed() == [str(folder / "other.py")]


@pytest.mark.parametrize("name", ["unimported/x.py", "data.json"])
def test_what_is_not_the_applications_source_is_none(folder, changes, name):
    (folder / name).write_text("")
    assert changes.changed() == []
