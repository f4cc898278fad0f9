"""A PostgreSQL with a base backup and archived WAL, and its recovery to a moment."""

import contextlib
import os
import shutil
import subprocess

from support.postgres.server import OwnServer, binaries, server_user
from support.waiting import wait_until

PATIENCE_S = 60.0


class RecoverableServer(OwnServer):
    """Archives its WAL as it goes; `recover` puts it back to an earlier moment."""

    def __init__(self):
        super().__init__(
            settings={
                "archive_mode": "on",
                "archive_command": "cp %p new && mv new ../archive/%f",
                "max_wal_senders": "2",
                "shared_buffers": "16MB",
            }
        )
        self._archive = self.directory / "archive"
        self._archive.mkdir()
        if os.geteuid() == 0:
            user = server_user()
            os.chown(self._archive, user.pw_uid, user.pw_gid)

    def back_up(self):
        """Take a base backup, while the server works."""
        self._run(
            "pg_basebackup",
            f"--pgdata={self.directory}/base",
            f"--host={self.directory}",
            f"--port={self.port}",
            "--username=postgres",
            "--wal-method=none",
            "--checkpoint=fast",
            "--no-sync",
            "--no-manifest",
        )

    def recover(self, until):
        """Crash, and come back under the same address as it was at a moment.

        Args:
            until: as text with a time zone; something must have committed after it.
        """
        with self.connect() as connection:
            ((name,),) = connection.execute(
                "SELECT pg_walfile_name(pg_switch_wal())"
            ).fetchall()
        wait_until((self._archive / name).exists, PATIENCE_S, f"{name} archived")
        self.stop("immediate")
        self.data.rename(self.directory / "lost")
        (self.directory / "base").rename(self.data)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(
                "restore_command = 'cp ../archive/%f %p'\n"
                f"recovery_target_time = '{until}'\n"
                "recovery_target_action = 'promote'\n"
                "archive_mode = 'off'\n"
            )
        signal = self.data / "recovery.signal"
        signal.touch()
        if os.geteuid() == 0:
            user = server_user()
            os.chown(signal, user.pw_uid, user.pw_gid)
        self.start()
        with self.connect() as connection:
            wait_until(
                lambda: (
                    not connection.execute("SELECT pg_is_in_recovery()").fetchone()[0]
                ),
                PATIENCE_S,
                "the promotion",
            )
        shutil.rmtree(self.directory / "lost")

    def _run(self, program, *words):
        identity = {}
        if os.geteuid() == 0:
            user = server_user()
            identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        done = subprocess.run(
            [binaries() / program, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            cwd=self.directory,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"},
            **identity,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def recoverable():
    """Start such a server; at the end nothing is left of it."""
    server = RecoverableServer()
    try:
        yield server
    finally:
        server.close()
