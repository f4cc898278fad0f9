"""Where in the application's own code an attempt ended, from its traceback or stacks.

A traceback ends with the innermost frame, a dump of stacks (faulthandler's) begins
each thread with it. In both, what lies in the standard library, in installed packages
or in jobpool is passed over; of an application that is itself an installed package,
its handler's frame is taken. Pure, but for where Python and jobpool are installed.
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
"""How paths begin that are jobpool's, or no file's at all (``<frozen …>``)."""
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_FRAME_MAX_CHARS = 500


def own_frame(traceback: str | None, stack: str | None) -> str | None:
    """Return the application's innermost frame: ``/srv/jobs.py:41 charge``.

    Args:
        traceback: of the exception that ended the attempt, if one did.
        stack: of all threads when it was killed; the interrupted one's counts.
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
                break  # below are only jobpool and what it runs on
        elif _INSTALLED.search(path):
            installed = frame
        elif not path.startswith(_STDLIB):
            return frame
    return installed
