"""Layering: imports only go down, files stay short, modules have docstrings."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "src" / "jobpool").rglob("*")
    if path.suffix in {".py", ".sql"}
)
MODULES = [path for path in SOURCES if path.endswith(".py")]
LINES_MAX = 400
DOCSTRING = re.compile(r'r?"""\S')


@pytest.mark.timeout(300)  # it reads all modules, beside all that computes here
def test_every_import_contract_is_kept():
    """The contracts of [tool.importlinter] in pyproject.toml hold."""
    lint_imports = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run(
        [lint_imports, "--no-logo", "--no-cache"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout


def test_there_are_sources_to_check():
    """The two rules below do not hold because the wrong directory was checked."""
    assert "src/jobpool/__init__.py" in MODULES


def test_no_file_has_more_than_400_lines_of_code():
    """A file too long to keep in mind must be split.

    Comments and docstrings do not count.
    """
    found = {}
    for path in SOURCES:
        text = (ROOT / path).read_text()
        if text.count("\n") <= LINES_MAX:
            continue  # Not parsed: that would take seconds for all of them.
        lines = _code_lines(text) if path in MODULES else _statement_lines(text)
        found[path] = len(lines)
    assert {path: count for path, count in found.items() if count > LINES_MAX} == {}


def _code_lines(text):
    """Return the numbers of a module's lines that are neither blank nor prose."""
    prose = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    return {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in prose
    }


def _statement_lines(text):
    return [
        line for line in text.splitlines() if line.strip() and not line.startswith("--")
    ]


def test_every_module_says_what_it_is_for():
    """Each module begins with a docstring."""
    texts = {path: (ROOT / path).read_text() for path in MODULES}
    assert [path for path, text in texts.items() if not DOCSTRING.match(text)] == []
