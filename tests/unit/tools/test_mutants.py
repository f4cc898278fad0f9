"""scripts/mutants: which faults it makes, and what it reports."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
LIB = TOP / "scripts" / "lib"
TWO_IS_TWO = "tests/test_sums.py::test_two"


@pytest.fixture(scope="module")
def mutants():
    """Import the pure parts, which belong to a script and are in no package of ours."""
    sys.path.insert(0, str(LIB))
    try:
        import mutants.change
        import mutants.python_changes
        import mutants.report
        import mutants.selection
        import mutants.sql_changes
    finally:
        sys.path.remove(str(LIB))
    return mutants


def made(changes):
    return {(change.old, change.new) for change in changes}


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("if a < b: pass", "a < b", "a <= b"),
        ("x = a is None", "a is None", "a is not None"),
        ("x = a and b", "a and b", "(a or b)"),
        ("x = not a", "not a", "(a)"),
        ("x = a + b", "a + b", "(a - b)"),
        ("x = 5", "5", "6"),
        ("x = True", "True", "False"),
        ("x = min(a, b)", "min(a, b)", "max(a, b)"),
        ("if a: pass", "a", "(not a)"),
        ("f(a)", "f(a)", "pass"),
        ("a.b = c", "a.b = c", "pass"),
        ("a += b", "a += b", "a -= b"),
        ("def f(): return a", "return a", "return None"),
        ("def f(): raise A", "raise A", "pass"),
        ("def f(a=1): pass", "1", "2"),
        ("T = {A: B, C: D}", "B", "D"),
        ("T = {A, B}", "{A, B}", "{B}"),
    ],
)
def test_each_sort_of_python_fault_is_made(mutants, code, old, new):
    """Each sort of fault is made in matching code."""
    changes = list(mutants.python_changes.changes_of("f.py", code.encode()))
    assert (old, new) in made(changes)
    for change in changes:
        ast.parse(change.applied_to(code.encode()))


@pytest.mark.parametrize(
    "code",
    [
        '"""Text 5."""',
        "x: Annotated[int, 5] = y",
        "raise A(f'{a + 5}')",
        "from a import b",
        "__all__ = ['a', 'b']",
        "class A(Protocol):\n    b = 5",
        "zip(a, b, strict=True)",
    ],
)
def test_code_without_behaviour_gets_no_fault(mutants, code):
    """Texts for people, types and imports are left alone."""
    found = made(mutants.python_changes.changes_of("f.py", code.encode()))
    assert found <= {(code, "pass")}


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        ("WHERE a <= :b", "<=", "<"),
        ("WHERE a <= :b", "a <= :b", "TRUE"),
        ("  AND a IS NULL", "IS NULL", "IS NOT NULL"),
        ("  AND a IS NULL", "AND a IS NULL", ""),
        ("ORDER BY a, b", "a", "a DESC"),
        ("ORDER BY a DESC", "DESC", ""),
        ("LIMIT :limit", "LIMIT :limit", ""),
        ("LIMIT %(limit)s", "LIMIT %(limit)s", ""),
        ("WHERE a = b + 1", "+", " - "),
        ("FOR UPDATE SKIP LOCKED", "SKIP LOCKED", ""),
        ("SELECT min(a)", "min", "max"),
    ],
)
def test_each_sort_of_sql_fault_is_made(mutants, line, old, new):
    """Each sort of fault is made, and belongs to its named statement."""
    text = f"-- name: one\n-- a = b\n{line}\n".encode()
    changes = list(mutants.sql_changes.changes_of("f.sql", text))
    assert (old, new) in made(changes)
    assert {(change.query, change.line) for change in changes} == {("one", 3)}


def test_an_sql_assignment_is_dropped_not_compared(mutants):
    """`=` after SET is no comparison; the fault drops the assignment."""
    text = b"-- name: one\nUPDATE t\nSET\n  a = b,\n  c = d\nWHERE e = 1\n"
    found = made(mutants.sql_changes.changes_of("f.sql", text))
    assert ("a = b,", "") in found
    assert [old for old, new in found if new == "<>"] == ["="]


def test_two_equal_lines_are_two_mutants(mutants):
    """Each has its own name, which stays the same when other lines move."""
    text = b"x = a < b\nx = a < b\n"
    kinds = mutants.python_changes.changes_of("f.py", text)
    moved = mutants.python_changes.changes_of("f.py", b"\n\n" + text)
    keys = [change.key for change in mutants.change.numbered(kinds)]
    assert len(set(keys)) == len(keys) == 2
    assert [change.key for change in mutants.change.numbered(moved)] == keys


def test_a_judge_tells_a_fault_from_none(tmp_path):
    """In a copy: what is tried there is not what others import."""
    for name in ("src", "tests"):
        tmp_path.joinpath(name).mkdir()
    tmp_path.joinpath("tests/support").symlink_to(TOP / "tests" / "support")
    tmp_path.joinpath("src/sums.py").write_text("TWO = 2\n")
    test = "from sums import TWO\n\n\ndef test_two():\n    assert TWO == 2\n"
    tmp_path.joinpath("tests/test_sums.py").write_text(test)
    trials = [
        {"file": "src/sums.py", "stages": [[TWO_IS_TWO]], "s_max": 250.0}
        | {"source": source, "nth": 1_000_000_000 + nth}
        for nth, source in enumerate(("TWO = 3\n", "TWO = 2\n"))
    ]
    path = os.pathsep.join(map(str, (tmp_path / "src", TOP / "src", LIB)))
    ran = subprocess.run(
        [sys.executable, "-m", "mutants.judge", str(tmp_path)],
        input="".join(json.dumps(one) + "\n" for one in trials),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "MUTANTS_POSTGRES": '["", "", ""]'},
        check=True,
    )
    faulty, whole = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (faulty["verdict"], faulty["seen_by"]) == ("killed", TWO_IS_TWO)
    assert whole["verdict"] == "survived"


def test_another_clone_continues_where_one_has_stopped(mutants, tmp_path):
    """A verdict depends on the files' contents and names, not on their location."""
    hashes = []
    for clone, file, text in (
        ("one", "a.py", "x"),
        ("two", "a.py", "x"),
        ("three", "b.py", "x"),
        ("four", "a.py", "y"),
    ):
        folder = tmp_path / clone / "src"
        folder.mkdir(parents=True)
        (folder / file).write_text(text)
        hashes.append(mutants.selection.hash_of(tmp_path / clone, folder))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_the_score_excludes_equivalents_and_gives_its_uncertainty(mutants):
    """A time-out counts as killed; an equivalent mutant counts neither way."""
    (change,) = mutants.python_changes.changes_of("f.py", b"x = a < b")
    ends = ["killed"] * 80 + ["timed out"] * 5 + ["survived"] * 15 + ["equivalent"] * 9
    figures = mutants.report.as_data(
        [mutants.report.Verdict(change, end, "") for end in ends],
        known=1000,
        controls=Counter(survived=4),
        seed=0,
    )
    assert figures["score"] == 0.85
    # Wilson's interval, as in any table of it.
    assert figures["score_95"] == (0.7672, 0.9069)
    assert (figures["controls"], figures["controls_killed"]) == (4, 0)


def test_every_listed_equivalent_is_a_mutant(mutants):
    """The list of equivalent mutants does not outlive the code that it describes."""
    listed = tomllib.loads((LIB / "mutants" / "equivalents.toml").read_text())
    makers = {".py": mutants.python_changes, ".sql": mutants.sql_changes}
    for entry in listed.get("equivalent", ()):
        known = {
            (change.text, change.summary()["change"])
            for path in (TOP / "src" / "jobpool").glob(entry["file"])
            for change in makers[path.suffix].changes_of("", path.read_bytes())
        }
        assert {(entry["text"], change) for change in entry["changes"]} <= known
        assert entry["why"]
