"""Django's tasks as jobs: the backend for ``TASKS``, and an app with a command.

May import: client, core, integrations.serving, operations, store. Start with
`backend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobpool.integrations.django.backend import JobpoolBackend as JobpoolBackend

__all__ = ["JobpoolBackend"]


def __getattr__(name: str) -> Any:
    """Import the backend when settings name it: the app alone does not need tasks."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jobpool.integrations.django import backend  # noqa: PLC0415 - see above

    return getattr(backend, name)
