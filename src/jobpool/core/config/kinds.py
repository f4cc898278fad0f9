"""What the configuration says of kinds, matched to those that there are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from jobpool.core.application.handler_spec import AppReport, HandlerSpec
from jobpool.core.config.layers import nearest
from jobpool.core.config.settings import KindSettings, Settings
from jobpool.errors import ConfigError

_NEARLY = 0.85
"""So much alike are a name and a slip in it."""


def names_of(report: AppReport) -> set[str]:
    """Return the kinds of an application, former names included."""
    return {name for spec in report.handlers for name in (spec.kind, *spec.aliases)}


def name_in(settings: Settings, spec: HandlerSpec) -> str:
    """Return under which of its names the configuration has a kind; its own if none.

    Its own name comes before its former ones.
    """
    names = (spec.kind, *spec.aliases)
    return next((name for name in names if name in settings.kinds), spec.kind)


def settings_of(settings: Settings, spec: HandlerSpec) -> KindSettings:
    """Return what the configuration says of a kind."""
    return settings.kinds.get(name_in(settings, spec)) or KindSettings()


def unknown_kinds(
    settings: Settings, report: AppReport, known: Iterable[str] = ()
) -> Iterator[str]:
    """Yield words about each ``[kinds."K"]`` that is nobody's: a slip, surely.

    Several applications may share a configuration and a store: what any of their
    supervisors has published is known. So is what the application had before a reload.
    Where the configuration is another application's, only what is nearly a known kind
    is a slip.

    Args:
        settings: the operator's.
        report: what the application declares.
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
