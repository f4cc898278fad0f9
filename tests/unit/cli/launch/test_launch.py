"""A start of a supervisor: what is set up before it serves."""

from __future__ import annotations

import gc

import pytest

from jobpool.cli.flags import LaunchFlags
from jobpool.cli.launch import launch
from jobpool.cli.launch.log import Both
from jobpool.core.config.settings import Settings
from jobpool.supervisor import serve as serving


def test_a_supervisor_serves_with_the_collector_on_and_its_imports_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Garbage of its long life is collected; what it has imported is not looked at."""
    seen: list[tuple[bool, bool]] = []
    before = gc.get_freeze_count()

    def serve(*_args: object, **_options: object) -> int:
        seen.append((gc.isenabled(), gc.get_freeze_count() > before))
        return 0

    monkeypatch.setattr(serving, "serve", serve)
    settings = Settings(store="x", app="x", app_directory="/", pools=())
    try:
        launch._serve(LaunchFlags(), settings, observer=Both(()))
    finally:
        if not before:  # else the tests themselves are frozen, and should stay so
            gc.unfreeze()
    assert seen == [(True, True)]
