"""Type checkers see the public API as intended."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "tests/typing/public_api.py"
WRONG_MIN = 20
# A checker reads everything, in seconds of a processor, which others want as well.
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("checker", "summary"),
    [
        (["mypy", "--strict", PROGRAM], "1 source file"),
        (["pyright", "--pythonpath", sys.executable, "--stats"], "Total files checked"),
    ],
    ids=["mypy", "pyright"],
)
def test_the_public_api_is_typed(checker, summary):
    """It agrees with every assert_type and every marked mistake.

    Both checkers are told to report marks on lines where they see no mistake.
    """
    run = subprocess.run(
        [sys.executable, "-m", *checker],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert summary in run.stdout, run.stdout + run.stderr
    assert run.returncode == 0, run.stdout


def test_mistakes_are_marked_for_both_type_checkers():
    """Mistakes that one of them does not report are known here."""
    lines = (ROOT / PROGRAM).read_text().splitlines()
    for_mypy = [line for line in lines if "# type: ignore[" in line]
    for_pyright = [line for line in lines if "# pyright: ignore[" in line]
    assert for_mypy == for_pyright
    assert len(for_mypy) >= WRONG_MIN
