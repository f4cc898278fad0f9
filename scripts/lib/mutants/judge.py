"""A process with a copy of the repository, that tries one mutant after another in it.

What no mutant changes (pytest, the drivers, …) is imported once; every trial is a fork
of that, in a process group of its own with a deadline and a cap on its memory.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from mutants.picking import Ran

_MEMORY_BYTES = 6 * 2**30
_FILE_BYTES = 2**30
_POLL_S = 0.02
_STAYING = ("hypothesis", "jsonschema", "msgspec", "multiprocess", "psycopg", "pytest")


def main() -> None:
    """Answer each line of the input, a trial, with its verdict."""
    copy = Path(sys.argv[1])
    os.chdir(copy)
    sys.path[:0] = [str(copy / "src"), str(copy / "tests")]
    _import_what_stays()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for order in sys.stdin:
        answers.write(json.dumps(_judge(**json.loads(order))) + "\n")
        answers.flush()


def _import_what_stays() -> None:
    for name in _STAYING:
        importlib.import_module(name)
    _share_the_server()


def _share_the_server() -> None:
    """Let every trial use the one server that the run has started."""
    server = importlib.import_module("support.postgres.server")  # of the copy
    urls = json.loads(os.environ["MUTANTS_POSTGRES"])
    server.server = lambda: server.Server(*urls)  # type: ignore[attr-defined]


def _judge(
    *, file: str, source: str, nth: int, stages: Sequence[Sequence[str]], s_max: float
) -> dict[str, object]:
    """Put a fault into a file, run the tests of each stage, take it out again."""
    path = Path(file)
    kept, times = path.read_bytes(), path.stat()
    path.write_bytes(source.encode())
    # No two mutants have the same time: what is compiled of one is not the next one's.
    os.utime(path, (nth, nth))
    began_s = time.monotonic()
    try:
        verdict, seen_by = "survived", ""
        for tests in stages:
            ran = _forked(tests, s_max)
            if ran is None:
                verdict = "timed out"
                break
            if not ran.passed:
                verdict, seen_by = "killed", ran.seen_by
                break
    finally:
        path.write_bytes(kept)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    seconds = round(time.monotonic() - began_s, 2)
    return {"verdict": verdict, "seen_by": seen_by, "seconds": seconds}


def _forked(tests: Sequence[str], s_max: float) -> Ran | None:
    """Run tests in a child; None: it had to be stopped."""
    with tempfile.TemporaryDirectory(prefix="jobpool-mutant-") as scratch:
        answer = Path(scratch, "answer")
        Path(scratch).chmod(0o755)  # some tests are somebody else
        child = os.fork()
        if not child:
            _be_the_child(tests, answer, Path(scratch))
        ended = _ended_in_time(child, s_max)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.waitpid(child, 0)
        _unmount_below(scratch)
        if not ended:
            return None
        if not answer.exists():
            said = Path(scratch, "said").read_text(errors="replace").splitlines()
            return Ran(passed=False, seen_by=f"the tests' process died: {said[-1:]}")
        return Ran(*json.loads(answer.read_text(encoding="utf-8")))


def _unmount_below(directory: str) -> None:
    """Let go of the small disks of a test that was stopped: they bar the removal."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    for line in mounts.splitlines():
        place = line.split()[1]
        if place.startswith(f"{directory}/"):
            subprocess.run(["umount", "--lazy", place], check=True)


def _be_the_child(tests: Sequence[str], answer: Path, scratch: Path) -> None:
    """Run, answer, end; never return."""
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
        said = os.open(scratch / "said", os.O_WRONLY | os.O_CREAT, 0o600)
        for number in (1, 2):
            os.dup2(said, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        from mutants.picking import run  # noqa: PLC0415 - pytest is the child's

        answer.write_text(json.dumps(run(tests)), encoding="utf-8")
    except BaseException:  # noqa: BLE001 - nothing may return to the parent's work
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _ended_in_time(child: int, s_max: float) -> bool:
    until_s = time.monotonic() + s_max
    while time.monotonic() < until_s:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(_POLL_S)
    return False


if __name__ == "__main__":
    main()
