"""The line of the application's code at which an attempt ended.

It is read from the traceback, which ends with the innermost frame, or from
faulthandler's stack dump, where each thread begins with it. Frames in the standard
library, in installed packages and in jobpool are skipped. If the application is an
installed package itself, its handler's frame is used. Pure, except that it depends on
where Python and jobpool are installed.
"""

from __future__ import annotations

import enum
import re
from pathlib import Path

_FRAME = re.compile(r'^[ |+]*File "([^"\n]+)", line (\d+),? in (.+)$', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_CURRENT_THREAD = "Current thread "
_STDLIB = f"{Path(enum.__file__).parent}/"
_OURS = (f"{Path(__file__).parents[__name__.count('.') - 1]}/", "<")
"""Prefixes of jobpool's own paths and of code without a file (``<frozen …>``)."""
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_FRAME_MAX_CHARS = 500


def own_frame(traceback: str | None, stack: str | None) -> str | None:
    """Return the application's innermost frame: ``/srv/jobs.py:41 charge``.

    Args:
        traceback: of the exception that ended the attempt, if any.
        stack: all threads' stacks at the kill; the interrupted thread's is used.
    """
    if traceback:
        inner_first = _FRAME.findall(traceback.rpartition(_TRACEBACK)[2])[::-1]
    elif stack:
        thread = stack.partition(_CURRENT_THREAD)[2] or stack
        inner_first = _FRAME.findall(thread.partition("\n\n")[0])
    else:
        return None
    installed = None
    for path, line, function in inner_first:
        frame = f"{path}:{line} {function}"[:_FRAME_MAX_CHARS]
        if path.startswith(_OURS):
            if installed:
                break  # the outer frames are only jobpool and the standard library
        elif _INSTALLED.search(path):
            installed = frame
        elif not path.startswith(_STDLIB):
            return frame
    return installed
