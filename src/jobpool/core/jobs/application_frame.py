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
from typing import NamedTuple

_FRAME = re.compile(
    r'^[ |+]*File "([^"\n]+)", line (\d+),? in (.+)$(?:\n[ |+]{4,}(?!File )(\S.*)$)?',
    re.MULTILINE,
)
_TRACEBACK = "Traceback (most recent call last):"
_CURRENT_THREAD = "Current thread "
_STDLIB = f"{Path(enum.__file__).parent}/"
_OURS = (f"{Path(__file__).parents[__name__.count('.') - 1]}/", "<")
"""Prefixes of jobpool's own paths and of code without a file (``<frozen …>``)."""
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_FRAME_MAX_CHARS = 500


class Frame(NamedTuple):
    """A call in progress."""

    path: str
    line: int
    function: str
    code: str | None
    """The text of the line; None: it is not known."""

    @property
    def is_own(self) -> bool:
        """Whether it is neither Python's, nor jobpool's, nor an installed package's."""
        others = self.path.startswith((*_OURS, _STDLIB))
        return not others and _INSTALLED.search(self.path) is None


def frames(traceback: str | None, stack: str | None) -> list[Frame]:
    """Return the calls in progress when an attempt ended, innermost first.

    Args:
        traceback: of the exception that ended the attempt, if any.
        stack: all threads' stacks at the kill; the interrupted thread's is used.
    """
    if traceback:
        found = _FRAME.findall(traceback.rpartition(_TRACEBACK)[2])[::-1]
    elif stack:
        thread = stack.partition(_CURRENT_THREAD)[2] or stack
        found = _FRAME.findall(thread.partition("\n\n")[0])
    else:
        return []
    return [
        Frame(path, int(line), function, code or None)
        for path, line, function, code in found
    ]


def own_frame(traceback: str | None, stack: str | None) -> str | None:
    """Return the application's innermost frame: ``/srv/jobs.py:41 charge``.

    Arguments are those of `frames`.
    """
    installed = None
    for one in frames(traceback, stack):
        frame = f"{one.path}:{one.line} {one.function}"[:_FRAME_MAX_CHARS]
        if one.path.startswith(_OURS):
            if installed:
                break  # the outer frames are only jobpool and the standard library
        elif _INSTALLED.search(one.path):
            installed = frame
        elif one.is_own:
            return frame
    return installed
