"""A program's words, with the places of a job's arguments.

``["pandoc", "{src}", "-o", "{dst}"]``: each word stays one word whatever is put into
it, and no shell reads it. The program itself and its options are the declaration's.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from itertools import pairwise
from string import Formatter
from typing import Annotated, Any

import msgspec

from jobpool.client.payload.strict_json import NO_NUL, NO_OPTION, NO_OPTION_AND_SOME
from jobpool.errors import ConfigError

_WORD = Annotated[str, msgspec.Meta(pattern=NO_NUL)] | int | float
_FIRST = (
    Annotated[str, msgspec.Meta(pattern=NO_OPTION)]
    | Annotated[int, msgspec.Meta(ge=0)]
    | Annotated[float, msgspec.Meta(ge=0)]
)
"""Of a place that begins its word: no value may be taken for an option."""
_FIRST_AND_SOME = (
    Annotated[str, msgspec.Meta(pattern=NO_OPTION_AND_SOME)]
    | Annotated[int, msgspec.Meta(ge=0)]
    | Annotated[float, msgspec.Meta(ge=0)]
)
"""Likewise, if the word would be an option without it, as in ``{name}-{n}``."""
_RULES: list[Any] = [_WORD, _FIRST, _FIRST_AND_SOME]
"""The strictest comes last: an argument may have several places."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"})
_SHORT_OPTIONS = re.compile("-[^-]")
_Part = tuple[str, str | None]
"""Text, and the argument that follows it, if any."""


class Template:
    """The words of a command, read.

    Args:
        argv: the program and its words. ``{name}`` is the place of an argument;
            ``{{`` and ``}}`` are braces.
        stdin: the argument whose text the program reads from its standard input, if
            any.
        defaults: values of arguments that a job may leave out.

    Raises:
        ConfigError: it is not a list of words, a place is wrong, or a default is of no
            argument.
    """

    def __init__(
        self,
        argv: Sequence[str],
        stdin: str | None,
        defaults: Mapping[str, str | float],
    ) -> None:
        if isinstance(argv, (str, bytes)) or not isinstance(argv, Iterable):
            raise ConfigError(
                f"command: expected a list of words, got {type(argv).__name__}; write "
                '["pandoc", "{src}", "-o", "{dst}"]: nothing splits a text into words'
            )
        self._words = [_parts(word) for word in argv]
        if not self._words or self._words[0] == []:
            raise ConfigError(
                "command: the first word must be a program; there is none"
            )
        if any(name is not None for _, name in self._words[0]):
            raise ConfigError(
                f"command: the program {argv[0]!r:.60} has a place for an argument; "
                "which program runs is never up to a job: declare one command each"
            )
        self.program: str = "".join(text for text, _ in self._words[0])
        """What is run: a name that is looked up on PATH, or a path."""
        self._stdin = stdin
        self.types = self._types()
        """What each argument may be, in the order of their places."""
        if unknown := sorted(defaults.keys() - self.types.keys()):
            raise ConfigError(
                f"command: a default is given for {unknown[0]!r}, which has no place; "
                f"the arguments are {', '.join(self.types) or 'none'}"
            )
        # Those without a default come first, as in any signature.
        self.signature = Signature(
            [
                Parameter(
                    name,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=defaults.get(name, Parameter.empty),
                    annotation=str if name == stdin else str | int | float,
                )
                for name in sorted(self.types, key=lambda name: name in defaults)
            ],
            return_annotation=str,
        )
        """A parameter for each of them, for people; `types` is stricter."""

    def filled(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the words with the arguments in their places."""
        return [
            "".join(
                text if name is None else f"{text}{_put(arguments[name])}"
                for text, name in word
            )
            for word in self._words
        ]

    def stdin_of(self, arguments: Mapping[str, Any]) -> bytes | None:
        """Return what the program reads, as UTF-8; None: nothing."""
        return None if self._stdin is None else arguments[self._stdin].encode()

    def _types(self) -> dict[str, Any]:
        types: dict[str, Any] = {}
        is_option = True
        for before, word in pairwise([[], *self._words]):
            is_option &= before != [("--", None)]
            if any(name for _, name in word) and self._is_script(before):
                raise ConfigError(
                    "command: the shell would run what a job puts into its script; "
                    'give it as a word of its own: ["sh", "-c", \'wc -l "$1"\', "sh", '
                    '"{file}"]'
                )
            for text, name in word:
                if name is not None:
                    begins = is_option and word[0] == (text, name) == ("", name)
                    rule = _rule_at_the_beginning(word) if begins else _WORD
                    types[name] = max(types.get(name, _WORD), rule, key=_RULES.index)
        if self._stdin is not None:
            _check_name(self._stdin, "stdin")
            if self._stdin in types:
                raise ConfigError(
                    f"command: {self._stdin!r} is both a word and the standard input; "
                    "name two arguments"
                )
            types[self._stdin] = str
        return types

    def _is_script(self, before: list[_Part]) -> bool:
        """Return whether the word after this one is a script for a shell."""
        option = "".join(text for text, _ in before)
        return (
            self.program.rpartition("/")[2] in _SHELLS
            and _SHORT_OPTIONS.match(option) is not None
            and "c" in option
        )


def _rule_at_the_beginning(word: list[_Part]) -> Any:
    """Return what the first of a word's places may hold, which begins the word."""
    follows = word[1:2]
    is_harmless = all(text and not text.startswith("-") for text, _ in follows)
    return _FIRST if is_harmless else _FIRST_AND_SOME


def _put(value: str | float) -> str | float:
    """Return what is written into a word: -0.0 is no number below 0, but an option."""
    return value if isinstance(value, str) else value + 0


def _parts(word: object) -> list[_Part]:
    if not isinstance(word, str):
        raise ConfigError(
            f"command: expected text for each word, got {type(word).__name__}; write "
            f"{str(word)!r:.40}"
        )
    if "\0" in word:
        raise ConfigError("command: a word holds a NUL, which no program can be given")
    parts: list[_Part] = []
    try:
        for text, name, spec, conversion in Formatter().parse(word):
            if name is not None:
                _check_name(name, repr(word))
                if spec or conversion:
                    raise ConfigError(
                        f"command: {word!r:.60} formats {name!r}; a place is its name "
                        "alone, as in {src}"
                    )
            parts.append((text, name))
    except ValueError as exc:
        raise ConfigError(
            f"command: {word!r:.60} cannot be read ({exc}); write {{{{ and }}}} for "
            "braces that are no place"
        ) from None
    return parts


def _check_name(name: object, what: str) -> None:
    if (
        not isinstance(name, str)
        or not name.isidentifier()
        or keyword.iskeyword(name)
        or name.startswith("_")
    ):
        raise ConfigError(
            f"command: {what:.60} has a place {str(name)!r:.40}, which cannot be the "
            "name of an argument; use letters, digits and _, as in {src}"
        )
