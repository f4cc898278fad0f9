"""Settings of kinds, matched to the kinds that exist; and commands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.command import RESULT_BYTES, Command
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.config.layers import nearest, quoted
from jobpool.core.config.settings import KindSettings, Settings
from jobpool.core.config.sources import Sources, Value, named_tables
from jobpool.errors import ConfigError

_NEEDED = ("argv", "pool")
_NEARLY = 0.85
"""Similarity from which an unknown name is taken for a typing mistake."""


def names_of(report: AppReport) -> set[str]:
    """Return the kinds of an application, former names included."""
    return {name for spec in report.handlers for name in (spec.kind, *spec.aliases)}


def name_in(settings: Settings, spec: HandlerSpec) -> str:
    """Return the name under which the configuration has a kind; its own if none.

    Its own name takes precedence over its former ones.
    """
    names = (spec.kind, *spec.aliases)
    return next((name for name in names if name in settings.kinds), spec.kind)


def settings_of(settings: Settings, spec: HandlerSpec) -> KindSettings:
    """Return the configured settings of a kind."""
    return settings.kinds.get(name_in(settings, spec)) or KindSettings()


def unknown_kinds(
    settings: Settings, report: AppReport, known: Iterable[str] = ()
) -> Iterator[str]:
    """Yield a message for each ``[kinds."K"]`` that names no kind: surely a mistake.

    Several applications may share a configuration and a store, so the kinds that any of
    their supervisors has published are known. So are those that the application had
    before a reload. If the configuration is another application's, only a name that is
    nearly a known kind is a mistake.

    Args:
        settings: the operator's.
        report: the application's declarations.
        known: the kinds that it had, and those that supervisors have published.
    """
    names = names_of(report) | {*known}
    for kind in settings.kinds:
        if kind in names:
            continue
        if settings.kinds_shared and not get_close_matches(
            kind, names, n=1, cutoff=_NEARLY
        ):
            continue
        yield (
            f'[kinds."{kind}"]: neither the application nor any supervisor of this '
            f"store has this kind (start another application's first); "
            f"{nearest(kind, names)}"
        )


def refuse_unknown_kinds(
    settings: Settings, report: AppReport, known: Iterable[str] = ()
) -> None:
    """Refuse what `unknown_kinds` finds.

    Raises:
        ConfigError: there is such a kind.
    """
    if problems := list(unknown_kinds(settings, report, known)):
        raise ConfigError("; ".join(problems))


def commands_of(sources: Sources, values: dict[str, Value]) -> Iterator[Command]:
    """Yield the commands, and add their values to *values*.

    Raises:
        ConfigError: a value is wrong, or one that is needed is missing.
    """
    for kind, found in named_tables(sources, "commands", values):
        for name in _NEEDED:
            if name not in found:
                raise ConfigError(
                    f"[commands.{quoted(kind)}]: {name} is missing; write what is run, "
                    'and in which pool: argv = ["pandoc", "{src}"], pool = "cpu"'
                )
        result_bytes = found.pop("result", RESULT_BYTES)
        yield Command(kind=kind, result_bytes=result_bytes, **found)
