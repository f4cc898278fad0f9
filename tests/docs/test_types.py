"""Type checkers see the public API as it is meant."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_public_api_is_typed():
    """Strict mypy agrees with every assert_type, and with every marked mistake."""
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "tests/typing/public_api.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    problems = [line for line in run.stdout.splitlines() if line.startswith("tests/")]
    assert "1 source file" in run.stdout, run.stdout + run.stderr
    assert problems == [], run.stdout
