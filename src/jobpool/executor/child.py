"""The application that the host's children run: it makes pickled calls.

It is imported in the zygote, which stays free of the caller's code: only children
unpickle.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from jobpool.core.application.command import Command
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.rules.policy import Policy, RetryRule
from jobpool.errors import ConfigError
from jobpool.executor.bundles.bundle import make_calls
from jobpool.executor.pickling.pickling import loads
from jobpool.executor.wire import spill_files
from jobpool.executor.wire.messages import Setup
from jobpool.executor.wire.outcomes import error_bytes, unusable_bytes, value_bytes

KIND, BUNDLE_KIND, POOL = "jobpool:call", "jobpool:calls", "cpu"
SETUP_VARIABLE = "JOBPOOL_EXECUTOR_SETUP"
"""Variable with the path of the caller's `Setup`, for the zygote."""
DEATHS_MAX = 1000
_AGAIN_AT_ONCE = RetryRule(delays_s=(0.0,))
_POLICY = Policy(
    # Each call has its own number of attempts; only deaths use them up, because a call
    # that raises has ended as well.
    max_attempts=1,
    max_crashes=DEATHS_MAX + 1,
    retry={
        "crashed": _AGAIN_AT_ONCE,
        "out_of_memory": _AGAIN_AT_ONCE,
        "timed_out": RetryRule(never=True),
    },
)
_OWN_FILES = (str(Path(__file__).parent),)


class CallApplication:
    """The application of one executor.

    Args:
        setup: the caller's; None: no call can be made.
    """

    def __init__(self, setup: Setup | None) -> None:
        self._setup = setup
        self._directories = setup.directories if setup else ()
        self._unusable: bytes | None = None
        """The end of every call in this child, if its initializer failed."""

    def handler_specs(self) -> tuple[HandlerSpec, ...]:
        """Return both kinds: one call, and a bundle of them."""
        return tuple(
            HandlerSpec(kind=kind, pool=POOL, policy=_POLICY)
            for kind in (KIND, BUNDLE_KIND)
        )

    def declared_schedules(self) -> tuple[()]:
        """Return none: calls are made by the caller."""
        return ()

    def declared_quotas(self) -> tuple[()]:
        """Return none: an executor's workers are its only limit."""
        return ()

    def named_codec(self) -> None:
        """Return None: calls are never stored on a disk."""

    def named_store(self) -> str | None:
        """Return None: the host brings the store."""
        return None

    def add_command(self, command: Command) -> None:
        """Refuse: an executor makes calls alone."""
        raise ConfigError(f"an executor has no commands, such as {command.kind}")

    def redacted_texts(self, kind: str, payload: bytes) -> Sequence[str]:  # noqa: ARG002 - the protocol's
        """Return nothing: a call's arguments are pickles, which nobody is shown."""
        return ()

    def start_child(self) -> None:
        """Run the caller's initializer; if it fails, so do all calls that follow."""
        if self._setup is None or self._setup.initializer is None:
            return
        try:
            initializer, arguments = loads(spill_files.unwrap(self._setup.initializer))
            initializer(*arguments)
        except BaseException as exc:  # noqa: BLE001 - the initializer is the user's
            self._unusable = unusable_bytes(exc)

    def invoke(self, kind: str, payload: bytes, result_max_bytes: int) -> bytes:  # noqa: ARG002 - the protocol's
        """Make the call or the bundle of calls; an exception is a result, too."""
        if kind == BUNDLE_KIND:
            return make_calls(payload, self._call)
        return self._call(payload)

    def _call(self, payload: bytes) -> bytes:
        if self._unusable is not None:
            return self._unusable
        try:
            function, arguments, keywords = loads(spill_files.map_in(payload))
            value = function(*arguments, **keywords)
            return value_bytes(value, self._directories)
        except BaseException as exc:  # noqa: BLE001 - every end of a call is data
            return error_bytes(exc, self._directories, _OWN_FILES)


def _from_environment() -> CallApplication:
    """Adopt the caller's module path and working directory."""
    path = os.environ.pop(SETUP_VARIABLE, None)
    if path is None:
        return CallApplication(None)
    setup = msgspec.msgpack.decode(Path(path).read_bytes(), type=Setup)
    sys.path[:] = setup.sys_path
    os.chdir(setup.working_directory)
    for module, authkey in setup.authkeys.items():
        importlib.import_module(module).current_process().authkey = authkey
    return CallApplication(setup)


application = _from_environment()
