"""An application's version is a hash of its own source files, equal on every host."""

import importlib
import os
import shutil
import sys
import types

import pytest

from jobpool.sandbox.zygote.source_hash import source_hash


@pytest.fixture
def deployed(tmp_path, monkeypatch):
    """Return a function that deploys an application, imports it and hashes it."""

    def deploy(name="one", app="shop.jobs", **files):
        root = tmp_path / name
        (root / "shop").mkdir(parents=True, exist_ok=True)
        sources = {"shop/__init__": "", "shop/jobs": "import helper", "helper": "X = 1"}
        for module, text in {**sources, **files}.items():
            path = root / f"{module}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for module in [m for m in sys.modules if m.split(".")[0] in {"shop", "helper"}]:
            del sys.modules[module]
        importlib.invalidate_caches()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.syspath_prepend(root)
            importlib.import_module("shop.jobs")
        return source_hash(app, str(root))

    yield deploy
    for module in [m for m in sys.modules if m.split(".")[0] in {"shop", "helper"}]:
        del sys.modules[module]


def test_the_same_files_elsewhere_and_touched_are_the_same_version(deployed, tmp_path):
    version = deployed("one")
    assert len(version) == 12
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for path in (tmp_path / "two").rglob("*.py"):
        os.utime(path, (1, 1))
    assert deployed("two") == version


@pytest.mark.parametrize("changed", ["shop/jobs", "helper"])
def test_a_changed_file_is_another_version(deployed, changed):
    """Its own package's, or another one in the launch directory."""
    assert deployed("two", **{changed: "import helper  # 2"}) != deployed("one")


def test_a_file_that_is_not_imported_does_not_count(deployed):
    assert deployed("two", **{"shop/unused": "Y = 1"}) == deployed("one")


@pytest.mark.parametrize("place", ["venv/lib/site-packages", "elsewhere"])
def test_installed_packages_do_not_count(deployed, tmp_path, monkeypatch, place):
    """Even in an environment within the launch directory: they have versions."""
    version = deployed("one")
    folder = tmp_path / ("one" if place != "elsewhere" else "") / place
    folder.mkdir(parents=True)
    (folder / "vendored.py").write_text("Z = 1")
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("vendored")
    try:
        assert source_hash("shop.jobs", str(tmp_path / "one")) == version
    finally:
        del sys.modules["vendored"]


def test_an_application_that_is_installed_counts_itself(deployed, tmp_path):
    """Its package is found by its name, wherever the launch directory is."""
    one = deployed("a/site-packages")
    other = deployed("b/site-packages", **{"shop/jobs": "import helper  # 2"})
    apart = source_hash("shop.jobs", str(tmp_path / "launch"))
    assert one != other
    assert apart != source_hash("another.jobs", str(tmp_path / "launch"))


def test_a_lazy_module_is_not_loaded_for_it(deployed, monkeypatch):
    class Lazy(types.ModuleType):
        def __getattribute__(self, name):
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "odd", object())
    assert deployed("one")


def test_a_file_that_is_gone_counts_by_its_name(deployed, tmp_path):
    version = deployed("one")
    (tmp_path / "one" / "helper.py").unlink()
    assert source_hash("shop.jobs", str(tmp_path / "one")) != version
