r"""Untrusted text made safe to print: no escapes, no forged lines, no flooding.

The text of a job, a kind or an exception can hold terminal escapes, line breaks or
characters that reverse its direction. Here they become visible (``\x1b``, ``\n``), so
that a log line is one line and a terminal is not controlled by it.
"""

from __future__ import annotations

import re

MESSAGE_MAX_CHARS = 300
"""Cap on an exception's message in a reason or a log line; `show` has all of it."""
_UNSAFE = (
    r"\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0"
    r"\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
"""Controls, and what Unicode says is not to be seen, but for the selectors that choose
between two looks of the character before them."""
_HIDDEN = re.compile(f"[{_UNSAFE}]")
_HIDDEN_BUT_LINES = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def one_line(text: str, max_chars: int = 2000) -> str:
    """Return *text* as one harmless line, capped with a mark if it was longer."""
    text = capped(text, max_chars)
    return text if _is_plain(text) else _HIDDEN.sub(_visible, text)


def message_line(message: str) -> str:
    """Return an exception's message as one line, for reasons and log lines."""
    return one_line(message.strip(), MESSAGE_MAX_CHARS)


def unexpected(exc: Exception) -> str:
    """Say what nobody expected to be raised, where, and what to do; in one line.

    For where the log alone can say it, since whatever has met it goes on.
    """
    said, at = message_line(f"{type(exc).__name__}: {exc}"), exc.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is not None:
        file = at.tb_frame.f_code.co_filename.rpartition("/")[2]
        said += f" ({file}:{at.tb_lineno})"
    return f"{said}, which jobpool did not expect: please report it"


def unstated_error(
    reason: str | None, error_class: str | None, error: str | None
) -> str:
    """Return ``Class: message`` of an error, or "" if its reason includes it."""
    if reason and one_line((error or "").strip(), len(error or "")) in reason:
        return ""
    return ": ".join(filter(None, (error_class, error)))


def lines(text: str, max_chars: int = 100_000) -> str:
    """Return *text* made harmless, line breaks and tabs kept; its end if longer."""
    if len(text) > max_chars:
        text = (
            f"[{len(text) - max_chars} characters before this left out]\n"
            f"{text[-max_chars:]}"
        )
    return _HIDDEN_BUT_LINES.sub(_visible, text.replace("\r\n", "\n"))


def capped(text: str, max_chars: int) -> str:
    """Return the first *max_chars* characters, with a mark if there were more."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}… [{len(text) - max_chars} more characters]"


def json_text(encoded: str) -> str:
    """Escape what is valid in encoded JSON but unsafe in a terminal or a log."""
    return encoded if _is_plain(encoded) else _HIDDEN.sub(_json_escape, encoded)


def whole(text: str) -> str:
    """Replace what cannot be encoded as UTF-8 (lone surrogates) by U+FFFD."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _is_plain(text: str) -> bool:
    """Return whether there is surely nothing to escape; far faster than a search."""
    return text.isascii() and text.isprintable()


def _visible(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if code <= 0xFF:  # noqa: PLR2004 - two hexadecimal digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - four


def _json_escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFFFF:  # noqa: PLR2004 - the basic plane
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
