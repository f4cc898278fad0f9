"""Turns an exception that left a handler into the `Raised` that is sent.

Nothing about the exception is trusted: its ``__str__`` may raise, its text may be huge
or not Unicode. Everything is capped, and cuts are marked.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from jobpool.core.application.redaction import scrubbed
from jobpool.core.rules.policy import SNOOZE_MAX_S
from jobpool.core.safe_text import capped
from jobpool.core.units import duration_s, show_duration
from jobpool.errors import (
    ArgumentsMisfit,
    ConfigError,
    GiveUp,
    RetryLater,
    Snooze,
    SoftTimeout,
    Throttled,
)
from jobpool.sandbox.protocol.messages import OUTPUT_MAX_BYTES, Raised, RunJob

MESSAGE_MAX_CHARS = 8 * 1024
TRACEBACK_MAX_CHARS = 32 * 1024
_CUT_CHARS = 60
"""Room for the mark of a cut."""
CLASSES_MAX = 32
FRAMES_MAX = 100
"""The innermost frames of each traceback are kept."""
_PACKAGE = Path(__file__).parents[__name__.count(".") - 1]
_OWN_FILES = tuple(
    str(_PACKAGE / name) for name in ("sandbox", "client", "integrations", "supervisor")
)
"""The code between what runs attempts and the handler."""


def raised(exc: BaseException, memory_bytes: int = 0) -> Raised:
    """Describe an exception, in a few words if its own are many. Never raises.

    Args:
        exc: the exception.
        memory_bytes: the attempt's memory limit; 0: unknown.
    """
    return _shortened(described(exc, memory_bytes))


def described(exc: BaseException, memory_bytes: int = 0) -> Raised:
    """Describe an exception that ended an attempt, for `redacted`. Never raises.

    Its texts are whole: what is hidden must be found before anything is cut.

    Args:
        exc: the exception.
        memory_bytes: the attempt's memory limit; 0: unknown.
    """
    try:
        return _describe(exc, memory_bytes)
    except BaseException as failure:  # noqa: BLE001 - its text may do anything
        return Raised(
            classes=_classes(exc),
            message=f"<it could not be described: {type(failure).__name__}>",
            traceback="",
        )


def failed(class_name: str, message: str) -> Raised:
    """Describe a failure that jobpool itself detected, such as a bad result."""
    return Raised(classes=[class_name], message=message, traceback="")


def redacted(
    output: bytes,
    error: Raised | None,
    job: RunJob,
    texts_of: Callable[[str, bytes], Sequence[str]],
) -> tuple[bytes, Raised | None]:
    """Return what an attempt has written and raised without what nobody is shown.

    Args:
        output: what it wrote.
        error: what it raised, if anything; in what is returned its texts are short.
        job: its job.
        texts_of: what is to be left out, by kind and payload. If it fails, nothing is
            kept but the classes of the exception.
    """
    if error is None and not output:
        return output, error
    try:
        texts = texts_of(job.kind, job.payload)
    except Exception as failure:  # noqa: BLE001 - a codec's, or no memory is left
        if error is not None:
            text = f"<it could not be redacted: {type(failure).__name__}>"
            error = msgspec.structs.replace(error, message=text, traceback="")
        return b"", error
    if texts:
        text = scrubbed(output.decode("utf-8", "replace"), texts)
        # What stands for a text may be longer than the text.
        output = text.encode("utf-8", "replace")[-OUTPUT_MAX_BYTES:]
    if texts and error is not None:
        error = msgspec.structs.replace(
            error,
            message=scrubbed(error.message, texts),
            traceback=scrubbed(error.traceback, texts),
        )
    return output, None if error is None else _shortened(error)


def _shortened(error: Raised) -> Raised:
    """Return it with texts that can be sent: the message's begin, the stack's end."""
    text = error.traceback
    if len(text) > TRACEBACK_MAX_CHARS:
        cut = len(text) - TRACEBACK_MAX_CHARS + _CUT_CHARS
        text = f"[{cut} characters before this left out]\n{text[cut:]}"
    return msgspec.structs.replace(
        error,
        message=_clean(capped(error.message, MESSAGE_MAX_CHARS)),
        traceback=_clean(text),
    )


def _describe(exc: BaseException, memory_bytes: int) -> Raised:
    message = _message(exc)
    retry_in_s = snooze_s = throttled = None
    try:
        if isinstance(exc, RetryLater) and exc.delay is not None:
            retry_in_s = duration_s(exc.delay, "RetryLater")
        elif isinstance(exc, Snooze):
            snooze_s = _snooze_s(exc)
            if isinstance(exc, Throttled):
                throttled = (str(exc.quota), str(exc.value))
    except ConfigError as error:
        message += f" (its delay is not usable: {error})"
    return Raised(
        classes=_classes(exc),
        message=str.__str__(message),  # else a subclass, whose methods are the user's
        traceback=_traceback(exc),
        give_up=isinstance(exc, GiveUp),
        soft_timeout=_is_soft_timeout(exc),
        retry_in_s=retry_in_s,
        out_of_memory=_memory_limit_reason(exc, memory_bytes),
        snooze_s=snooze_s,
        misfit=isinstance(exc, ArgumentsMisfit),
        throttled=throttled,
    )


def _memory_limit_reason(exc: BaseException, memory_bytes: int) -> str:
    if not memory_bytes:
        return ""
    # It is Linux's, and not for tests elsewhere; a child has imported it already.
    from jobpool.sandbox.child.memory_errors import (  # noqa: PLC0415 - see above
        memory_limit_reason,
    )

    return memory_limit_reason(exc, memory_bytes)


def _snooze_s(exc: Snooze) -> float:
    """Return how long a snooze lasts.

    Raises:
        ConfigError: it is not a duration, or too long.
    """
    if isinstance(exc, Throttled):  # what a server says is no mistake of the handler's
        return min(duration_s(exc.after, "Throttled"), SNOOZE_MAX_S)
    seconds = duration_s(exc.after, "Snooze")
    if seconds > SNOOZE_MAX_S:
        raise ConfigError(
            f"Snooze: {show_duration(seconds)} is out of range; expected at most "
            f"{show_duration(SNOOZE_MAX_S)}"
        )
    return seconds


def _message(exc: BaseException) -> str:
    if isinstance(exc, SystemExit):
        return (
            f"the handler called sys.exit({exc.code!r}); to end a job, return, or "
            "raise an exception"
        )
    try:
        return str(exc)
    except BaseException as failure:  # noqa: BLE001 - anything can happen in a __str__
        return f"<its __str__ raised {type(failure).__name__}>"


def _is_soft_timeout(exc: BaseException) -> bool:
    """Say whether the soft limit ended it, also inside an exception group."""
    if isinstance(exc, BaseExceptionGroup):
        return exc.subgroup(SoftTimeout) is not None
    return isinstance(exc, SoftTimeout)


def _classes(exc: BaseException) -> list[str]:
    """Name its class and bases as a traceback would: builtins without a module."""
    names = []
    of = type.__getattribute__  # a user's metaclass may do anything
    for cls in of(type(exc), "__mro__")[:CLASSES_MAX]:
        if cls is not object and cls is not BaseException:
            module = str(of(cls, "__module__"))
            prefix = "" if module in ("builtins", "") else f"{module}."
            names.append(_clean(capped(f"{prefix}{of(cls, '__qualname__')}", 200)))
    return names or ["BaseException"]


def _traceback(exc: BaseException) -> str:
    """Format its traceback without our own frames."""
    whole = traceback.TracebackException(
        type(exc), exc, _without_ours(exc.__traceback__), limit=-FRAMES_MAX
    )
    return "".join(whole.format())


def _without_ours(tb: TracebackType | None) -> TracebackType | None:
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        tb = tb.tb_next
    return tb


def _clean(text: str) -> str:
    """Return a text that can be sent: lone surrogates become ``?``."""
    return text.encode("utf-8", "replace").decode()
