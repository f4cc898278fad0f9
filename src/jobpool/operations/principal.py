"""Who acts, with which rights, and from where."""

from __future__ import annotations

import os
from enum import IntEnum

import msgspec

NAME_MAX = 255
"""Characters of a name or an origin that are kept."""


class Role(IntEnum):
    """What somebody may do; each role may do all that the ones below it may."""

    VIEWER = 0
    """Read."""
    OPERATOR = 1
    """Change what becomes of jobs."""
    ADMIN = 2
    """Delete what cannot be brought back."""

    @property
    def text(self) -> str:
        """The role as it is stored and shown."""
        return self.name.lower()


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who acts."""

    who: str
    role: Role
    origin: str
    """From where: a program on a host, or a request."""


def local_principal(program: str) -> Principal:
    """Return the operating system's user that this process runs as.

    A process that can write the store's file, or log in to its database, can do
    everything there with any tool: its rights are decided there, so its role is the
    highest. Behind sudo its name has both users, as sudo has put it in the environment.

    Args:
        program: what is used, such as ``jobpool retry``.
    """
    if not hasattr(os, "geteuid"):  # on Windows
        where = os.environ.get("COMPUTERNAME", "this machine")
        return _principal(os.getlogin(), f"{program} on {where}, pid {os.getpid()}")
    uid = os.geteuid()
    who = user_name(uid)
    behind = os.environ.get("SUDO_USER")
    if behind and behind != who:
        who = f"{who} (sudo by {behind[:NAME_MAX]})"
    origin = f"{program} on {os.uname().nodename}, uid {uid}, pid {os.getpid()}"
    return _principal(who, origin)


def _principal(who: str, origin: str) -> Principal:
    return Principal(who=who[:NAME_MAX], role=Role.ADMIN, origin=origin[:NAME_MAX])


def user_name(uid: int) -> str:
    """Return the name of a user; one without a name is called by its number."""
    import pwd  # noqa: PLC0415 - Windows has none

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
