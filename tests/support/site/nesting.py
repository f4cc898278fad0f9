"""Makes directories that no path reaches."""

import contextlib
import os
import subprocess


@contextlib.contextmanager
def cleared(directory):
    """Remove it at the end: pytest cannot, and fails then in every later run."""
    try:
        yield directory
    finally:
        subprocess.run(["rm", "-rf", "--", str(directory)], check=True)


def nest(directory, depth, name="d"):
    """Make *depth* directories, each in the one before."""
    here = os.open(directory, os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=here))
    os.close(here)
