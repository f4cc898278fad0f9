"""Removing trees that were made to be hard to remove."""

import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

from jobpool.sandbox.system.remove_tree import remove_tree
from support.site.nesting import cleared, nest

NOBODY = 65534


def test_depth_and_length_do_not_stop_a_removal(tmp_path):
    """A tree deeper than the recursion limit and longer than a path is removed."""
    with cleared(tmp_path / "tree") as tree:
        tree.mkdir()
        nest(tree, 1100, "deep")
        nest(tree, 50, "n" * 255)
        for number in range(100):
            (tree / "wide" / str(number) / "d").mkdir(parents=True)
        assert remove_tree(tree)
        assert list(tmp_path.iterdir()) == []


def test_links_are_not_followed(tmp_path):
    """A link is removed, never its target; also in place of the tree itself."""
    kept = tmp_path / "kept" / "inner"
    kept.mkdir(parents=True)
    (kept / "file").touch()
    tree = tmp_path / "tree"
    (tree / "d").mkdir(parents=True)
    for place in (tree, tree / "d"):
        (place / "to a directory").symlink_to(kept.parent)
        (place / "to a file").symlink_to(kept / "file")
        (place / "to nothing").symlink_to("nowhere")
    link = tmp_path / "link"
    link.symlink_to(kept.parent)
    assert remove_tree(tree)
    assert remove_tree(link)
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]
    assert (kept / "file").exists()


def test_a_file_in_place_of_the_tree_is_removed(tmp_path):
    """A file or a FIFO is removed too; a missing path counts as removed."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    assert remove_tree(tmp_path / "file")
    assert remove_tree(tmp_path / "fifo")
    assert remove_tree(tmp_path / "missing")
    assert remove_tree(str(tmp_path / "missing" / "inner"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def own_place():
    """Provide a directory of an ordinary user; the test runs as that user meanwhile."""
    place = Path(tempfile.mkdtemp())
    user = os.geteuid()
    if user == 0:
        os.chown(place, NOBODY, -1)
        os.seteuid(NOBODY)
    yield place
    os.seteuid(user)
    place.chmod(0o700)
    shutil.rmtree(place)


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o500, 0o300])
def test_inaccessible_directories_are_removed(own_place, mode):
    """Directories made inaccessible to the job's own user are removed all the same."""
    tree = own_place / "tree"
    for path in ("full/inner/file", "empty", "outer/full/file"):
        (tree / path).mkdir(parents=True)
    for path in ("full/inner", "full", "empty", "outer/full", "outer", "."):
        (tree / path).chmod(mode)
    assert remove_tree(tree)
    assert list(own_place.iterdir()) == []


def test_what_cannot_be_removed_is_reported(own_place):
    """In a read-only directory it stays, and nothing is raised."""
    (own_place / "tree" / "d").mkdir(parents=True)
    own_place.chmod(0o500)
    assert not remove_tree(own_place / "tree")
    own_place.chmod(0o000)
    assert not remove_tree(own_place / "tree")


def test_two_removals_at_once_do_not_fail(tmp_path):
    """Entries that vanish meanwhile are no error."""
    tree = tmp_path / "tree"
    for number in range(300):
        (tree / str(number) / "d" / "d").mkdir(parents=True)
        (tree / str(number) / "file").touch()
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(remove_tree(tree)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(threads)
    assert True in answers
    assert not tree.exists()
