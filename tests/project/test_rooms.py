"""Packages: few entries, no cycles, and a docstring that says what each is for."""

import ast
import functools
import re
import runpy
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
PACKAGE = SRC / "jobpool"
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py")})
ENTRIES_MAX = 13
ROOT_ENTRIES_MAX = 16
WITH_CODE = {
    PACKAGE,
    PACKAGE / "cli",
    PACKAGE / "integrations" / "django",
    PACKAGE / "testing",
}
"""The public names, the entry point of the command, and what settings name."""
EVERYBODYS = {"errors"}
"""What every package may import without naming it."""
GUIDES = [SRC / "README.md", ROOT / "tests" / "README.md"]


def name_of(path):
    """Return the dotted name of a module, or of a package by its folder."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def imports_of(module):
    """Yield the modules of ours that one imports, late imports included."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in inner]
        else:
            continue
        yield from (name for name in names if name in MODULES)


@functools.cache
def imports():
    """Return what each module imports; found out once, where it is needed."""
    return {module: set(imports_of(module)) - {module} for module in MODULES}


def entries_of(folder):
    """Return a folder's entries, except `__init__`."""
    return [
        path
        for path in folder.iterdir()
        if (path.suffix == ".py" and path.name != "__init__.py")
        or (path.is_dir() and any(path.rglob("*.py")))
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_folder_has_few_entries(folder):
    """About a dozen entries: more call for another package."""
    most = ROOT_ENTRIES_MAX if folder == PACKAGE else ENTRIES_MAX
    assert len(entries_of(folder)) <= most


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_the_entries_of_a_folder_import_one_another_without_cycles(folder):
    """Neither files nor packages: everything can be read from the bottom up."""
    package = name_of(folder)
    graph = {name_of(path): set() for path in entries_of(folder)}

    def entry_of(module):
        rest = module.removeprefix(f"{package}.")
        return None if rest == module else f"{package}.{rest.partition('.')[0]}"

    for module, imported in imports().items():
        if (above := entry_of(module)) is None:
            continue
        below = {entry for name in imported if (entry := entry_of(name))}
        graph[above] |= below - {above}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        pytest.fail(" -> ".join(exc.args[1]))


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_an_init_file_has_a_docstring_and_no_code(folder):
    """Whatever it imported would be loaded by every child that needs one file of it."""
    tree = ast.parse((folder / "__init__.py").read_text())
    assert ast.get_docstring(tree)
    if folder not in WITH_CODE:
        assert len(tree.body) == 1


def below(package, module):
    """Return the package that a module is in, as seen from a package: the nearest."""
    ours, theirs = package.split("."), module.split(".")
    depth = 1
    while theirs[depth : depth + 1] == ours[depth : depth + 1]:
        depth += 1
    return ".".join(theirs[1 : depth + 1])


@pytest.mark.parametrize(
    "folder", [folder for folder in FOLDERS if folder != PACKAGE], ids=name_of
)
def test_a_package_says_what_it_imports(folder):
    """The "May import" line names exactly what its files import."""
    package = name_of(folder)
    inside = {name for name in MODULES if f"{name}.".startswith(f"{package}.")}
    imported = set().union(*(imports()[name] for name in inside)) - inside - {"jobpool"}
    text = " ".join(ast.get_docstring(ast.parse(MODULES[package].read_text())).split())
    said = re.search(r"May import: (.*?)\.(?: |$)", text)[1]
    found = {below(package, name) for name in imported} - EVERYBODYS
    assert said == (", ".join(sorted(found)) or "nothing of ours")


def paths_named(guide):
    """Return the paths in backticks that a guide names."""
    words = re.findall(r"`([^`\s]+)`", guide.read_text())
    links = re.findall(r"\]\(([^)#]+)", guide.read_text())
    return {word for word in words if "/" in word or word.endswith(".py")}, links


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.parent.name)
def test_every_path_in_the_guides_exists(guide):
    """A guide with dead paths is worse than none."""
    words, links = paths_named(guide)
    assert len(words) > 20
    places = (PACKAGE, ROOT, guide.parent)
    gone = [word for word in words if not any((at / word).exists() for at in places)]
    gone += [link for link in links if not (guide.parent / link).exists()]
    assert sorted(gone) == []


def test_every_file_that_goes_first_exists():
    """A file that was renamed would be run last again, alone."""
    first = runpy.run_path(str(ROOT / "tests" / "conftest.py"))["LONGEST"]
    assert [name for name in first if not (ROOT / "tests" / name).exists()] == []
