"""Reads README.md and does what it shows, so that nothing in it is only claimed.

Blocks are worked off in their order, in one directory: files are written under the
name in their first line, sessions are typed into a shell, queries are put to the
store. Before outputs are compared, times, measured sizes, process numbers and slots
are masked on both sides; log lines are compared without their order, since children
run at the same time.
"""

import os
import re
import secrets
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from psycopg import sql

from postgres_server import DATABASE, binaries, server
from waiting import wait_until

README = Path(__file__).parents[1] / "README.md"
SHOWN_DIRECTORY = "/srv/words"
SHOWN_DATABASE = "postgresql://shop@db.example.com/shop"
STEP_S = 60
"""No step takes so long, however busy the machine is."""
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CLOCK = re.compile(r"^\d\d:\d\d:\d\d ")
_MASKS = (
    (_CLOCK, "<clock> "),
    (re.compile(r"\bsupervisor \d+"), "supervisor <pid>"),
    (re.compile(r"\b(cpu|io)/\d+"), r"\1/<slot>"),
    # Measured, unless a limit or a rule says it: those must be as they are shown.
    (
        re.compile(
            r"(?<![\d.m])(?<!limit of )(?<!again in )(?<!running get )"
            r"\d+(?:\.\d+)?(?:e-\d+)?(?:ms|s)\b"
        ),
        "<seconds>",
    ),
    (
        re.compile(
            r"(?<![\d.])(?<!limit of )(?<!memory  )(?<!asked for )"
            r"\d+(?:\.\d+)?[KM]iB"
        ),
        "<size>",
    ),
)


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str
    line: int


class Step(NamedTuple):
    """A command of a session and what it shows."""

    command: str
    before: list[str]
    """Lines until Ctrl-C, or all of them."""
    after: list[str] | None
    """Lines after Ctrl-C; None: nobody types it."""


class Answer(NamedTuple):
    """What is shown beside what there was."""

    what: str
    shown: list[str]
    seen: list[str]


def blocks() -> list[Block]:
    """Return the README's fenced blocks, in order."""
    text = README.read_text()
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(text)
    ]


def steps_of(session: str) -> list[Step]:
    """Split a console block at its ``$ `` prompts and at ``^C``."""
    steps: list[Step] = []
    for line in session.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], [], None))
        elif line == "^C":
            steps[-1] = steps[-1]._replace(after=[])
        else:
            step = steps[-1]
            (step.before if step.after is None else step.after).append(line)
    return steps


def masked(lines: list[str]) -> list[str]:
    """Return lines without what differs from run to run; a log's lines sorted."""
    found = []
    for line in lines:
        text = re.sub(r"\s{2,}", "  ", line.strip())
        for pattern, mask in _MASKS:
            text = pattern.sub(mask, text)
        found.append(text)
    is_log = any(_CLOCK.match(line) for line in lines)
    return sorted(found) if is_log else found


class Walk:
    """One reader who does everything that the README shows.

    Args:
        directory: an empty directory to do it in.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        mine = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
        mine.pop("PYTEST_ADDOPTS", None)
        self._environment = mine | {
            "PATH": os.pathsep.join(
                (str(Path(sys.executable).parent), os.environ["PATH"], str(binaries()))
            ),
            # The sessions show what a terminal shows; here there is none.
            "JOBPOOL_LOG_FORMAT": "human",
            "SHOP_DATABASE": self._make_database(),
        }
        sessions = "\n".join(b.text for b in blocks() if b.language == "console")
        self._typed = sessions

    def _make_database(self) -> str:
        """Make a database in which a stranger's schema would be the first."""
        self._database = f"readme_{secrets.token_hex(4)}"
        with server().connect(server().url) as connection:
            owner = sql.Identifier(connection.info.user)
        self._database_command("CREATE DATABASE {} OWNER {}", owner)
        return server().url.replace(f"/{DATABASE}", f"/{self._database}", 1)

    def _database_command(self, text: str, *names: sql.Identifier) -> None:
        database = sql.Identifier(self._database)
        with server().connect(server().admin_url) as admin:
            admin.execute(sql.SQL(text).format(database, *names))

    def close(self) -> None:
        """Remove what was made outside of the directory."""
        self._database_command("DROP DATABASE {} WITH (FORCE)")

    def store_files(self) -> set[str]:
        """Return what lies beside the database, and itself."""
        return {path.name for path in self._directory.glob("jobpool.db*")}

    def answers(self, block: Block) -> list[Answer]:
        """Do what a block shows; return what is to be compared."""
        match block.language:
            case "python" | "toml":
                return self._write(block)
            case "console":
                return [self._type(step) for step in steps_of(block.text)]
            case "sql":
                return self._query(block.text)
            case _:
                return []

    def _write(self, block: Block) -> list[Answer]:
        """Write a file; run it as well, unless a session does."""
        name = block.text.partition("\n")[0].removeprefix("# ")
        (self._directory / name).write_text(block.text)
        if block.language != "python" or name in self._typed:
            return []
        return [self._type(Step(f"python {name}", [], None))]

    def _type(self, step: Step) -> Answer:
        log = self._directory / ".session"
        with log.open("w") as stream:
            process = subprocess.Popen(
                ["bash", "-c", step.command],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                if step.after is not None:
                    self._interrupt(process, log, step.before)
                process.wait(STEP_S)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        said = self._shown(log)
        return Answer(
            step.command,
            masked(step.before + (step.after or [])),
            masked(said.splitlines()),
        )

    def _shown(self, log: Path) -> str:
        """Return what was said, with the names of places that the README has."""
        said = log.read_text().replace(str(self._directory), SHOWN_DIRECTORY)
        return said.replace(self._environment["SHOP_DATABASE"], SHOWN_DATABASE)

    def _interrupt(
        self, process: subprocess.Popen[bytes], log: Path, before: list[str]
    ) -> None:
        """Type Ctrl-C once everything is there that is shown before it."""
        expected = Counter(masked(before))

        def is_there() -> bool:
            said = self._shown(log)
            return process.poll() is not None or not (
                expected - Counter(masked(said.splitlines()))
            )

        # If they do not come, the comparison of what did says more than the wait.
        with suppress(pytest.fail.Exception):
            wait_until(is_there, STEP_S / 2, "the lines before ^C")
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)

    def _query(self, text: str) -> list[Answer]:
        """Put statements to a copy of the store; each SELECT must find something."""
        answers = []
        origin = sqlite3.connect(self._directory / "jobpool.db")
        copy = sqlite3.connect(":memory:")
        origin.backup(copy)
        origin.close()
        for statement in filter(str.strip, text.split(";")):
            rows = copy.execute(statement).fetchall()
            if "SELECT" in statement:
                found = "some rows" if rows else "no row"
                answers.append(Answer(statement.strip(), ["some rows"], [found]))
        copy.close()
        return answers
