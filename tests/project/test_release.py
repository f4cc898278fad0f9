"""What is released: one version, all that is needed, nothing else, and its licences."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import jobpool
from jobpool.manual import pages

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
WHEEL_BYTES_MAX = 4 * 2**20
LEFT_OUT = {"__pycache__"}
# Archives are built in ten seconds of a processor, which others want as well.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The archives, as scripts/release makes and checks them."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [ROOT / "scripts/release", "--any-tree", folder],
        check=True,
        capture_output=True,
        text=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(released):
    (path,) = released.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_the_archives_have_the_version_that_is_in_one_place(released, wheel):
    (metadata,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    assert Parser().parsestr(wheel.read(metadata).decode())["Version"] == (
        jobpool.__version__
    )
    names = {path.name for path in released.iterdir()}
    assert names == {
        f"jobpool-{jobpool.__version__}-py3-none-any.whl",
        f"jobpool-{jobpool.__version__}.tar.gz",
    }
    assert "version" not in re.findall(r"(?m)^(\w+) =", project_table())


def project_table():
    text = (ROOT / "pyproject.toml").read_text()
    return text.partition("[project]")[2].partition("\n[")[0]


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    """SQL, templates, pages of the manual and py.typed are there; tests are not."""
    wanted = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "jobpool").rglob("*")
        if path.is_file() and not LEFT_OUT.intersection(path.parts)
    }
    wanted |= {f"jobpool/conf/{name}" for name in pages.ready_made()}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == wanted
    assert len(wanted) > 500
    assert sum(info.compress_size for info in wheel.infolist()) < WHEEL_BYTES_MAX


def test_nothing_of_others_is_shipped_without_its_licence(wheel):
    """All of it is ours: no minified script, nothing in a folder of others' files."""
    names = wheel.namelist()
    licences = [name for name in names if "/licenses/" in name]
    assert [name.rpartition("/")[2] for name in licences] == ["LICENSE"]
    assert not [
        name for name in names if re.search(r"vendor/|\.min\.|\.(map|so)$", name)
    ]


def test_the_source_archive_builds_and_holds_its_tests(released):
    """The wheel was made from it; nothing of a working copy is in it."""
    (path,) = released.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "tests/project/test_release.py",
        "scripts/test",
        "conf/jobpool.toml",
    } <= names
    assert not [name for name in names if re.search(r"\.venv|__pycache__|\.db$", name)]


def test_the_wheel_runs_without_the_repository(released, tmp_path):
    """Installed elsewhere it finds its own files: a starter, the manual, its SQL."""
    (path,) = released.glob("*.whl")
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--target", installed, path], check=True)

    def run(*words):
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert run("-c", "import jobpool; print(jobpool.__file__)").startswith(
        str(tmp_path)
    )
    assert "jobs.py" in run("-m", "jobpool", "init")
    assert "ten minutes" in run("-m", "jobpool", "manual", "start")
    assert "CREATE ROLE" in run("-m", "jobpool", "manual", "--file", "roles.sql")
    assert "enqueued 1" in run("-m", "jobpool", "enqueue", "example.greet", '["ann"]')
