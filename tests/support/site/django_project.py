"""A Django project: its data in a folder, its database in a file or a server."""

import contextlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

from psycopg import sql

from support.postgres.server import server

PROJECT = Path(__file__).parents[2] / "integration" / "django" / "project"
COMMAND_S = 250


class Project:
    """The project in ``project``, with its data in a folder.

    Args:
        folder: of its own.
        database: host, port, name and user in PostgreSQL; "": a file.
        password: for it.
    """

    def __init__(self, folder, database="", password=""):
        self.folder = folder
        mine = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
        self.env = mine | {"SITE": str(folder), "JOBPOOL_PROBATION": "200ms"}
        if database:
            self.env |= {"SITE_DATABASE": database, "SITE_PASSWORD": password}

    def command(self, *words):
        """Return the words of a command of manage.py."""
        return [sys.executable, str(PROJECT / "manage.py"), *words]

    def manage(self, *words, code=0):
        """Run a command of manage.py; return what it has said."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout


@contextlib.contextmanager
def in_postgres(folder):
    """Yield a project with a database of its own in the tests' server."""
    place, name = server(), f"shop_{secrets.token_hex(4)}"
    with place.connect(place.url) as connection:
        info = connection.info
        where = f"{info.host} {info.port} {name} {info.user}"
        owner, password = sql.Identifier(info.user), info.password
    with place.connect(place.admin_url) as admin:
        create = sql.SQL("CREATE DATABASE {} OWNER {}")
        admin.execute(create.format(sql.Identifier(name), owner))
    try:
        yield Project(folder, where, password)
    finally:
        with place.connect(place.admin_url) as admin:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            admin.execute(drop.format(sql.Identifier(name)))
