"""One host of many: a network, a run directory, and a supervisor for a while."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.postgres.cutting_proxy import CuttingProxy
from support.site.service import Service

APP = Path(__file__).with_name("app.py")


class Host(Service):
    """A real supervisor, alone in its run directory, behind a proxy of its own.

    Args:
        name: short and unlike others; the handlers write it down.
        directory: for its log and its run directory.
        port: the server's.
        url: the store.
        ttl: of leases, as the command line wants it.
    """

    def __init__(
        self, name: str, directory: Path, port: int, url: str, ttl: str
    ) -> None:
        self.proxy = CuttingProxy(port)
        flags = ["--pools", "cpu=4", "--app", str(APP), "--lease-ttl", ttl]
        flags += ["--log-format", "json", "--drain", "10s"]
        super().__init__(
            name,
            [sys.executable, "-m", "jobpool", *flags],
            directory=directory,
            env=os.environ
            | {
                "JOBPOOL_STORE": self.proxy.url(url),
                "JOBPOOL_RUN_DIR": str(directory / f"run-{name}"),
                "MANY_HOSTS_HOST": name,
            },
        )

    def stop(self) -> str | None:
        """Let the supervisor drain; return what was wrong with its end."""
        self.proxy.heal()
        return super().stop()

    def close(self) -> None:
        """End everything at once."""
        super().close()
        self.proxy.close()
