"""Wrong calls: each is answered by a clear error or does the right thing."""

import datetime as dt
import enum
import os
import sqlite3

import pytest

from jobpool import ArgumentsRejected, ConfigError, JobPool, UsageError
from support.store.cli_store import run

HUGE = 10**30


class Urgency(enum.IntEnum):
    HIGH = 7


class Customer(enum.StrEnum):
    ADA = "ada"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def jobs():
    jobs = JobPool("sqlite:///jobpool.db")
    yield jobs
    jobs.close()


@pytest.fixture
def work(jobs):
    @jobs.job("io", kind="work")
    def work(number: int = 1) -> int:
        return number

    return work


WRONG = {
    "an expiry before the beginning": (
        lambda jobs, work: work.options(run_in="1h", expires_in="1s"),
        UsageError,
        "canceled before it may begin",
    ),
    "an expiry at the beginning": (
        lambda jobs, work: work.options(run_in="1h", expires_in="60m"),
        UsageError,
        "canceled before it may begin",
    ),
    "options twice": (
        lambda jobs, work: work.options(priority=1).options(key="k"),
        UsageError,
        "all options of a job in one call",
    ),
    "a negative wait": (
        lambda jobs, work: work.enqueue().wait(-1),
        UsageError,
        "timeout: -1 is out of range",
    ),
    "a wait for soon": (
        lambda jobs, work: work.enqueue().result("soon"),
        UsageError,
        "timeout: 'soon' is not a duration",
    ),
    "a store without a name": (
        lambda jobs, work: JobPool("").get(1),
        ConfigError,
        "store: expected a URL .* got nothing",
    ),
    "a store of blanks": (
        lambda jobs, work: JobPool(" ").get(1),
        ConfigError,
        "store: expected a URL",
    ),
    "aliases that are a number": (
        lambda jobs, work: jobs.job("io", aliases=5),
        ConfigError,
        "aliases: expected a list of kinds, got int",
    ),
    "a date for a moment": (
        lambda jobs, work: work.options(run_at=dt.date(2030, 1, 1)),
        UsageError,
        "run_at: expected an aware datetime",
    ),
    "a time limit without end": (
        lambda jobs, work: work.options(timeout=float("inf")),
        UsageError,
        "timeout: inf is out of range",
    ),
    "a number of thousands of digits": (
        lambda jobs, work: work.enqueue(10**5000),
        ArgumentsRejected,
        "argument 'number'",
    ),
    "a cursor for a connection": (
        lambda jobs, work: work.options(
            connection=sqlite3.connect("jobpool.db").cursor()
        ).enqueue(),
        UsageError,
        "expected a sqlite3.Connection",
    ),
    "a path for a transaction": (
        lambda jobs, work: jobs.transaction("jobpool.db").__enter__(),
        UsageError,
        "expected a sqlite3.Connection",
    ),
    "an item that is a number": (
        lambda jobs, work: jobs.enqueue_many(work, [{"number": 1}, 5]),
        ArgumentsRejected,
        "item 1 .* expected a dict of arguments by name, got int",
    ),
}


@pytest.mark.parametrize("call", WRONG)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_wrong_call_gets_a_clear_error(jobs, work, call):
    """The error's class says whose mistake it is, its text what was expected."""
    wrong, kind, said = WRONG[call]
    with pytest.raises(kind, match=said):
        wrong(jobs, work)


def test_enum_members_count_as_their_values(jobs, work):
    """An IntEnum counts as a number and a StrEnum as text."""
    bound = work.options(
        priority=Urgency.HIGH,
        tenant=Customer.ADA,
        key=Customer.ADA,
        max_attempts=Urgency.HIGH,
    )
    record = bound.enqueue().info()
    assert (record.priority, record.tenant, record.key) == (7, "ada", "ada")
    assert record.max_attempts == 7


def test_a_str_subclass_that_misbehaves_counts_as_its_text(jobs, work):
    """No overridden method of a str subclass is called."""

    class Odd(str):
        __slots__ = ()

        def encode(self, *_):
            raise ZeroDivisionError

        def __len__(self):
            return 10**9

    assert work.options(key=Odd("k")).enqueue().info().key == "k"


def test_a_functions_own_attributes_do_not_replace_a_handlers(jobs):
    """Nor another handler's: one function may have two kinds."""

    def plain(number: int) -> int:
        return number

    for name in ("_function", "_spec", "_gateway", "arguments", "results", "name"):
        setattr(plain, name, "the function's own")
    plain.note = "kept"
    first = jobs.job("io", kind="first")(plain)
    second = jobs.job("cpu", kind="second")(first)
    assert (first.kind, second.kind, second.pool) == ("first", "second", "cpu")
    assert first.note == "kept"
    assert second(3) == 3
    assert second.enqueue(4).info().kind == "second"
    assert jobs.invoke("second", b'{"number":5}', 100) == b"5"


def test_a_transaction_does_not_outlive_a_fork(jobs, work):
    """Its connection is the parent's; the child may enqueue by itself, afterwards."""
    connection = sqlite3.connect("jobpool.db", isolation_level=None)
    reader, writer = os.pipe()
    work.enqueue()
    with jobs.transaction(connection):
        pid = os.fork()
        if pid == 0:
            try:
                work.options(connection=connection).enqueue(4)
            except UsageError as exc:
                os.write(writer, str(exc).encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        mine = work.options(connection=connection).enqueue(5)
    os.close(writer)
    assert b"begun before this process was forked" in os.read(reader, 1000)
    os.close(reader)
    assert mine.info().state == "runnable"
    connection.close()


APP = """
from jobpool import JobPool
jobs = JobPool()

@jobs.job("io", kind="work")
def work(number: int = 1):
    return number
"""


@pytest.mark.parametrize(
    ("words", "stdin", "code", "said"),
    [
        (["show", "abc"], "", 2, "'abc' is not a valid job's number"),
        (["cancel", "abc"], "", 2, "jobpool show --key KEY"),
        (["enqueue", "work", "-"], "", 0, "stdin was empty: nothing was enqueued"),
        (["enqueue", "work", "--pool", "gpu"], "", 2, "names pool gpu, and no"),
        (["enqueue", "work", "--expires-in", "0"], "", 2, "--expires-in must be"),
        (
            ["enqueue", "work", "--run-in", "5m", "--expires-in", "1s"],
            "",
            2,
            "--expires-in must be longer than 0 and than --run-in",
        ),
        (["enqueue", "z"], "", 1, "expected one of work. To enqueue it"),
        (["enqueue", "wrok"], "", 1, "did you mean 'work'? To enqueue it"),
        (["enqueue", "work", "--key", "\x1b[2J"], "", 2, "printable characters"),
        (["enqueue", "work", '{"number": NaN}'], "", 2, "is not JSON"),
        (["enqueue", "work", "-"], "{}\n[\n", 2, "line 2 of stdin is not JSON"),
        (["list", "--since", "-5"], "", 2, "--since"),
    ],
)
def test_a_wrong_command_gets_a_clear_error(folder, words, stdin, code, said):
    """Errors caused by the caller have the exit code for wrong usage."""
    (folder / "jobs.py").write_text(APP)
    assert run("enqueue", "work").exit_code == 0
    result = run(*words, stdin=stdin)
    assert said in result.stderr
    assert result.exit_code == code


def test_a_kind_is_enqueued_into_another_pool_only_by_force(folder):
    """A future supervisor may run it there."""
    (folder / "jobs.py").write_text(APP)
    forced = run("enqueue", "work", "--pool", "cpu", "--force")
    assert forced.stdout == "enqueued 1\n", forced.output
