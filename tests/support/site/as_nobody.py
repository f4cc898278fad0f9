"""A place that ordinary users may use, from tests that run as root.

Python, its packages and this project may lie below a directory that only root may
enter, such as /root. The program then gets a mount namespace of its own, in which an
empty directory with just these in it stands in that place.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534
PROJECT = Path(__file__).parents[3]


def obstacle():
    """Return why there can be no such place, or nothing. For root to ask."""
    if not shutil.which("setpriv") or not shutil.which("unshare"):
        return "there are no setpriv and unshare (util-linux)"
    done = subprocess.run(["unshare", "--mount", "true"], check=False, timeout=60)
    return "mount namespaces are not to be had" if done.returncode else ""


@contextlib.contextmanager
def open_place(user: int = 0) -> Iterator[tuple[Path, list[str]]]:
    """Yield a directory of a user's, and the words that begin each of its commands."""
    base = Path(tempfile.mkdtemp(prefix="jobpool-nobody-"))
    try:
        base.chmod(0o755)
        own = base / "own"
        own.mkdir()
        os.chown(own, user, user)
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        yield own, ["unshare", "--mount", "sh", "-c", _script(base), "sh", *become]
    finally:
        shutil.rmtree(base)


def _script(base):
    """Return a shell script that makes everything visible and goes on as "$@"."""
    steps = ["set -eu"]
    needed = sorted({sys.base_prefix, sys.prefix, str(PROJECT)})
    closed = {path: gate for path in needed if (gate := _closed_part(Path(path)))}
    for number, path in enumerate(closed):
        stage = base / str(number)
        stage.mkdir()
        steps.append(f"mount --bind '{path}' '{stage}'")
    steps += [
        f"mount -t tmpfs -o mode=755 none '{gate}'"
        for gate in sorted(set(closed.values()))
    ]
    for number, path in enumerate(closed):
        steps.append(
            f"mkdir -p '{path}' && mount --bind '{base / str(number)}' '{path}'"
        )
    return "\n".join([*steps, 'exec "$@"'])


def _closed_part(path):
    """Return the outermost directory on the way that others may not enter."""
    way = [*reversed(path.parents), path]
    return next((str(p) for p in way if not p.stat().st_mode & 0o001), None)
