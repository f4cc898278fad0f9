"""A stack as the interpreter has dumped it, in frames: the outermost first. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import msgspec

_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
_LIBRARIES = ("site-packages", "dist-packages", "vendor", "<frozen", "/lib/python")
_PARTS = 2
"""Parts of a path that say which file it is."""
_FRAMES_MAX = 60


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    place: str
    """``shop/pdf.py:88``."""
    path: str
    """The whole path."""
    name: str
    is_library: bool
    """It is not the application's own code, as far as its path can tell."""


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a thread, the innermost last."""

    frames: tuple[Frame, ...]
    left_out: int = 0


def stacks_of(dump: str) -> list[Stack]:
    """Return the stacks of a dump, one a thread; none: it is no such dump."""
    stacks: list[list[Frame]] = []
    for line in dump.splitlines():
        found = _FRAME.fullmatch(line)
        if found is None:
            if not stacks or stacks[-1]:
                stacks.append([])
            continue
        if not stacks:
            stacks.append([])
        path = found["file"]
        short = "/".join(PurePosixPath(path).parts[-_PARTS:]).lstrip("/")
        stacks[-1].append(
            Frame(
                place=f"{short}:{found['line']}",
                path=f"{path}:{found['line']}",
                name=found["name"],
                is_library=any(part in path for part in _LIBRARIES),
            )
        )
    return [
        Stack(
            frames=tuple(reversed(frames[:_FRAMES_MAX])),
            left_out=max(0, len(frames) - _FRAMES_MAX),
        )
        for frames in stacks
        if frames
    ]
