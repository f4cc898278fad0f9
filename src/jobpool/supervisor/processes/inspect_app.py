"""`inspect_app`: loads an application in a process of its own and reports on it."""

from __future__ import annotations

import selectors
import time
import uuid

from jobpool.core.application.app_report import AppReport
from jobpool.core.config.settings import Settings
from jobpool.core.config.store_url import refuse_other_store
from jobpool.errors import AppError
from jobpool.sandbox.handles.zygote import Zygote
from jobpool.sandbox.protocol.messages import FrameError, Loaded, LoadFailed
from jobpool.supervisor.machine.registry import Registry


def inspect_app(settings: Settings) -> AppReport:
    """Load the application as a supervisor would, and check it against the settings.

    Args:
        settings: which application, and the pools that it must fit.

    Returns:
        What the application declares.

    Raises:
        AppError: it does not load; with its traceback.
        ConfigError: it asks for what the settings do not have.
    """
    report = load_app(settings)
    Registry(settings, report)
    return report


def load_app(settings: Settings) -> AppReport:
    """Load the application as a supervisor would; return what it declares.

    Raises:
        AppError: it does not load; with its traceback.
        ConfigError: it names another store.
    """
    pool = settings.pools[0]
    zygote = Zygote.start(
        pool=pool.name,
        run_id=uuid.uuid4().hex,
        app=settings.app,
        directory=settings.app_directory,
        preload=pool.preload,
        env=pool.env,
        commands=settings.commands,
    )
    try:
        report = _report(zygote, settings)
    finally:
        zygote.kill()
        zygote.close()
    refuse_other_store(settings, report.store)
    return report


def _report(zygote: Zygote, settings: Settings) -> AppReport:
    until_s = time.monotonic() + settings.app_timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(zygote, selectors.EVENT_READ)
        while selector.select(max(0.0, until_s - time.monotonic())):
            try:
                frames = zygote.receive()
            except FrameError as exc:
                raise AppError(f"loading {settings.app} failed: {exc}") from exc
            if frames is None:
                raise AppError(
                    f"the process that loaded {settings.app} ended by itself"
                )
            for frame in frames:
                if isinstance(frame, Loaded):
                    return frame.report
                if isinstance(frame, LoadFailed):
                    raise AppError(frame.message, frame.traceback)
    raise AppError(
        f"application {settings.app} did not load within {settings.app_timeout_s:g} s; "
        "it must not wait for anything while it is imported (or raise app_timeout)"
    )
