"""Flows as applications use them: built, run by real supervisors, read and acted on."""

import datetime as dt
import sqlite3
from contextlib import closing, suppress
from functools import partial

import psycopg
import pytest

import jobpool
from jobpool import FlowUnsuccessful, JobPool, UsageError
from jobpool.core.jobs.flow import FlowState, StepState
from jobpool.store.records.operating import Filter
from jobpool.testing import running
from support.postgres.server import libpq_url, server
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

SHOP = """
import contextlib, dataclasses, datetime as dt, sqlite3

import jobpool


@dataclasses.dataclass
class Page:
    customer: str
    day: dt.date
    words: int


def heard(what):
    with open(HERE / "ledger", "ab", buffering=0) as file:
        file.write(f"{what}\\n".encode())


@jobs.job("io", kind="render")
def render(customer: str, day: dt.date) -> Page:
    return Page(customer, day, len(customer))


@jobs.job("io", kind="total")
def total(pages: list[Page], *, extra: int = 0) -> int:
    read = list(current().results(render))
    assert read == pages and all(type(page.day) is dt.date for page in pages)
    assert [value["words"] for _, value in current().results()] == [
        page.words for page in pages
    ]
    return sum(page.words for page in pages) + extra


@jobs.job("io", kind="publish")
async def publish(words: int, title: str = "report") -> str:
    return f"{title}: {words}"


@jobs.job("io", kind="dies", max_crashes=1, retry=AT_ONCE)
def dies(how: str) -> int:
    if how == "segfault":
        segfault()
    raise GiveUp(how)


@jobs.job("io", kind="hear")
def hear(what: str, more: str = "") -> str:
    heard(what + more)
    return what + more


@jobs.job("io", kind="once")
def once() -> None:
    if not (HERE / "refused").exists():
        (HERE / "refused").touch()
        heard("refused")
        raise GiveUp("refused")


@jobs.job("io", kind="crawl", max_crashes=3, retry=AT_ONCE)
def crawl(page: str, links: list[str], fails: str = "") -> str:
    heard(page)
    added = current().flow.add_many(crawl.call(page + link, []) for link in links)
    assert added == len(links)
    if fails and current().attempt == 1:
        if fails == "segfault":
            segfault()
        raise ValueError(fails)
    return page


@jobs.job("io", kind="gather")
def gather(pages: list[str]) -> list[str]:
    return sorted(pages)


@jobs.job("io", kind="wrong")
def wrong() -> list[str]:
    flow, told = current().flow, []
    many = [crawl.call("x", [])] * 10_000
    flow.add(hear.call("all that is added"))
    for calls in (many, [crawl.call("x" * 60_000, [])] * 100):
        try:
            flow.add_many(calls)
        except jobpool.UsageError as exc:
            told.append(str(exc))
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        try:
            current().complete(connection)
        except jobpool.UsageError as exc:
            told.append(str(exc))
        other = jobs.flow("never")
        other.add(hear.call("never"))
        try:
            other.enqueue(connection=connection)
        except jobpool.UsageError as exc:
            told.append(str(exc))
    return told


@jobs.job("io", kind="plans")
def plans(key: str) -> list:
    found = []
    for _ in range(2):
        flow = jobs.flow("planned", key=key)
        first = flow.add(hear.call("planned"))
        flow.add(hear.call(first.value, more="-then"))
        run = flow.enqueue()
        found.append([run.ref, run.created])
    return found


@jobs.job("io", kind="holds")
def holds(gate: str) -> str:
    hold(gate)
    return gate
"""


CODEC = """
class Reversing:
    name = "reversing"

    def encode(self, data):
        return data[::-1]

    def decode(self, data):
        return data[::-1]


jobs = JobPool(codec=Reversing())
"""


class Application:
    """The site's application in this process."""

    def __init__(self, site):
        source = {"JobPool": partial(JobPool, site.url), "AT_ONCE": {}}
        source["jobs"] = source["JobPool"]()
        source |= {"current": jobpool.current, "GiveUp": jobpool.GiveUp}
        exec(site.app, source)  # noqa: S102 - the text above
        self.__dict__.update(source)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request, tmp_path_factory):
    app = SHOP if request.param == "postgres" else CODEC + SHOP
    with Site(tmp_path_factory.mktemp("shop"), app) as site:
        site.app = app
        if request.param == "postgres":
            site.url = server().store_url()
        site.start("io=2", env={"JOBPOOL_STORE": site.url})
        yield site


@pytest.fixture
def shop(site):
    (site.folder / "ledger").write_text("")
    application = Application(site)
    yield application
    application.jobs.close()


def ledger(site):
    return sorted((site.folder / "ledger").read_text().split())


DAY = dt.date(2026, 11, 26)
NAMES = ["ann", "bo", "charlotte"]


def test_results_become_arguments_of_the_types_that_they_were(shop):
    """Of many steps, lists and dataclasses; also those of a generator's jobs."""
    flow = shop.jobs.flow("report")
    pages = flow.add_many(shop.render.call(name, DAY) for name in NAMES)
    words = flow.add(shop.total.call(pages.value, extra=1))
    published = flow.add(shop.publish.call(words.value))
    run = flow.enqueue()
    assert run.result(timeout=PATIENCE_S) == "report: 15"
    assert run.result(pages) == [shop.Page(n, DAY, len(n)) for n in NAMES]
    assert (run.result(words), run.result(published)) == (15, "report: 15")
    assert list(run.results(shop.render)) == run.result(pages)
    assert [value for _, value in run.results()][3:] == [15, "report: 15"]
    assert run.wait(PATIENCE_S) is run.state is FlowState.SUCCEEDED
    assert run.progress == (5, 0, 5)
    assert shop.jobs.get_flow(run.ref) == run


def test_a_chain_hands_each_result_to_the_next(shop):
    chain = shop.jobs.chain(shop.publish.call(3))
    run = chain.then(shop.hear.rest("-a")).then(shop.hear.rest(more="-b")).enqueue()
    assert run.result(timeout=PATIENCE_S) == "report: 3-a-b"


@pytest.mark.parametrize("how", ["segfault", "gives-up"])
def test_whatever_dies_the_compensation_and_the_hooks_run_once(site, shop, how):
    """What needed it is skipped; what did not goes on to its end."""
    flow = shop.jobs.flow("order")
    paid = flow.add(shop.publish.call(5), name="paid")
    shipped = flow.add(shop.dies.call(how), after=paid, name="shipped")
    mailed = flow.add(shop.hear.call("mailed"), after=shipped, name="mailed")
    refund = shop.hear.call(paid.value)
    flow.add(refund, after=shipped, when="failed", name="refund")
    flow.add(shop.hear.call("swept"), after=mailed, when="finished", name="swept")
    flow.on_success(shop.hear.call("thanked"))
    flow.on_failure(shop.hear.call("told"))
    flow.on_finish(shop.hear.call("cleaned"))
    run = flow.enqueue()
    assert run.wait(PATIENCE_S) is FlowState.FAILED
    assert ledger(site) == sorted(["report:", "5", "swept", "told", "cleaned"])
    with pytest.raises(FlowUnsuccessful, match=r"mailed, which was skipped; failed: s"):
        run.result(mailed)
    assert run.job("mailed").state == "canceled"


def test_a_refund_that_is_not_needed_fails_nothing(site, shop):
    flow = shop.jobs.flow("order")
    shipped = flow.add(shop.publish.call(5))
    refund = flow.add(shop.hear.call("refund"), after=shipped, when="failed")
    flow.on_success(shop.hear.call("thanked"))
    flow.on_failure(shop.hear.call("told"))
    run = flow.enqueue()
    assert run.wait(PATIENCE_S) is FlowState.SUCCEEDED
    assert ledger(site) == ["thanked"]
    with pytest.raises(FlowUnsuccessful, match="hear, which was skipped") as caught:
        run.result(refund)
    assert caught.value.state == "succeeded"


@pytest.mark.parametrize("fails", ["", "segfault", "an error"])
def test_what_an_attempt_adds_is_there_if_it_succeeds(site, shop, fails):
    """Once, however often it was tried; what waits for its step waits for all of it."""
    flow = shop.jobs.flow("crawl", tenant="acme")
    pages = flow.add_many([shop.crawl.call("/", ["a", "b"], fails=fails)])
    flow.add(shop.gather.call(pages.value))
    run = flow.enqueue()
    assert run.result(timeout=PATIENCE_S) == ["/", "/a", "/b"]
    assert list(run.results(shop.crawl)) == ["/", "/a", "/b"]
    assert run.progress.total == 4
    assert {job.tenant for job in site.store.find(Filter(tenant="acme"))} == {"acme"}
    assert ledger(site) == ["/"] * (2 if fails else 1) + ["/a", "/b"]


def test_an_attempt_adds_only_so_many_and_completes_nothing_then(site, shop):
    """What is refused adds nothing of its call; what was added before is."""
    flow = shop.jobs.flow("wrong")
    step = flow.add(shop.wrong.call())
    run = flow.enqueue()
    many, large, completed, joined = run.result(step, timeout=PATIENCE_S)
    assert "at most 10,000 jobs" in many
    assert "4,194,304 bytes" in large
    assert "does not go with current().flow" in completed
    assert "does not go with a flow inside a handler" in joined
    assert ledger(site) == ["added", "all", "is", "that"]


def test_a_job_in_no_flow_adds_nothing(shop):
    job = shop.crawl.options(max_attempts=1).enqueue("/", ["a"])
    with pytest.raises(jobpool.JobUnsuccessful, match="this job is in no flow"):
        job.result(timeout=PATIENCE_S)


def test_the_same_key_is_the_same_flow(shop):
    def order(number):
        flow = shop.jobs.flow("order", key=f"same-{number}")
        flow.add_many(shop.publish.call(n) for n in range(2))
        return flow.enqueue()

    first, again, other = order(1), order(1), order(2)
    assert (first.created, again.created, other.created) == (True, False, True)
    assert first == again != other
    assert first.result(timeout=PATIENCE_S) == ["report: 0", "report: 1"]


def test_a_flow_belongs_to_the_transaction_that_it_is_stored_in(site, shop):
    """It commits or vanishes with the caller's rows."""

    def order(connection):
        flow = shop.jobs.flow("joined", key="joined")
        flow.add(shop.hear.call("joined"))
        return flow.enqueue(connection=connection)

    connection = connected(site)
    with suppress(ZeroDivisionError), shop.jobs.transaction(connection):
        order(connection)
        raise ZeroDivisionError
    with shop.jobs.transaction(connection):
        run = order(connection)
    connection.close()
    assert run.created
    assert run.wait(PATIENCE_S) is FlowState.SUCCEEDED
    assert ledger(site) == ["joined"]


def connected(site):
    if site.url.startswith("sqlite"):
        path = site.url.removeprefix("sqlite:///")
        # Its supervisor writes, too, and that may take long.
        return sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
    return psycopg.connect(libpq_url(site.url), autocommit=True)


@pytest.mark.parametrize("how", ["", "segfault"])
def test_a_flow_within_another_runs_and_whatever_waits_for_it_follows_its_end(
    site, shop, how
):
    """Its results are arguments of what is after it, through the codec as well."""
    report = shop.jobs.flow("report")
    pages = report.add_many(shop.render.call(name, DAY) for name in NAMES)
    report.add(shop.total.call(pages.value, extra=1))
    if how:
        report.add(shop.dies.call(how), after=pages)
    report.on_failure(shop.hear.call("told"))
    report.on_success(shop.hear.call("thanked"))
    inner = shop.jobs.flow("inner")
    row = inner.add(shop.jobs.chain(shop.publish.call(2)).then(shop.hear.rest("-a")))
    inner.add(shop.hear.call(row.value, more="-b"))
    flow = shop.jobs.flow("outer")
    whole = flow.add(report, after=flow.add(inner), name="day")
    if how:
        flow.add(shop.hear.call("next"), after=whole)
    else:
        flow.add(shop.publish.call(whole.value))
    flow.add(shop.hear.call("refund"), after=whole, when="failed")
    run = flow.enqueue()
    state = run.wait(PATIENCE_S)
    heard = ["report:", "2-a", "report:", "2-a-b"]
    if how:
        assert state is FlowState.FAILED
        assert ledger(site) == sorted([*heard, "refund", "told"])
        with pytest.raises(FlowUnsuccessful, match=r"day, which has failed.*day/dies"):
            run.result(whole)
    else:
        assert state is FlowState.SUCCEEDED
        assert ledger(site) == sorted([*heard, "thanked"])
        assert run.result("day") == run.result(whole) == run.result("day/total") == 15
        assert run.result() == "report: 15"
        assert run.result("inner") == "report: 2-a-b"


def test_people_end_a_step_that_waits_for_them(shop):
    """Once it is reached, and once; the result is what they say."""
    flow = shop.jobs.flow("pay")
    asked = flow.add(shop.publish.call(1))
    approval = flow.wait_for("approval", after=asked, timeout="1h")
    flow.add(shop.publish.call(approval.value, title="paid"))
    run = flow.enqueue()
    assert run.result(asked, timeout=PATIENCE_S) == "report: 1"
    wait_until(
        lambda: run.info().steps[1].state is StepState.READY, PATIENCE_S, "a question"
    )
    ref = run.job("approval").ref
    assert shop.jobs.approve(ref, 42, note="as agreed") is True
    assert run.result(timeout=PATIENCE_S) == "paid: 42"
    assert shop.jobs.approve(ref, 43) is False
    with pytest.raises(UsageError):
        shop.jobs.approve(run.job(asked).id)
    with pytest.raises(jobpool.JobNotFound, match=r"a flow's; run\.job\(step\)\.ref"):
        shop.jobs.approve(run.ref)


def test_an_approval_that_does_not_come_in_time_is_a_failure(site, shop):
    flow = shop.jobs.flow("pay")
    approval = flow.wait_for("approval", timeout="100ms")
    flow.add(shop.hear.call("paid"), after=approval)
    flow.on_failure(shop.hear.call("told"))
    run = flow.enqueue()
    assert run.wait(PATIENCE_S) is FlowState.FAILED
    assert ledger(site) == ["told"]
    assert "nobody approved it" in run.job(approval).info().reason


def test_a_paused_flow_begins_nothing_and_a_canceled_one_ends(site, shop):
    flow = shop.jobs.flow("held")
    first = flow.add(shop.holds.call("gate"))
    flow.add(shop.hear.call("second"), after=first)
    flow.on_failure(shop.hear.call("told"))
    run = flow.enqueue()
    wait_until(lambda: run.job(first).state == "leased", PATIENCE_S, "a start")
    assert run.pause(note="wait")
    assert not run.pause()
    assert run.state is FlowState.PAUSED
    (site.folder / "gate").touch()
    assert run.result(first, timeout=PATIENCE_S) == "gate"
    assert run.resume()
    assert run.wait(PATIENCE_S) is FlowState.SUCCEEDED
    assert ledger(site) == ["second"]

    waits = shop.jobs.flow("canceled")
    waits.wait_for("godot")
    waits.on_success(shop.hear.call("thanked"))
    waits.on_failure(shop.hear.call("told"))
    run = waits.enqueue()
    assert run.cancel(note="enough")
    assert run.wait(PATIENCE_S) is FlowState.CANCELED
    assert not run.cancel()
    assert ledger(site) == ["second", "told"]


def test_a_flow_that_has_ended_goes_on_from_what_failed(site, shop):
    """Whoever canceled it changes their mind: only what had not succeeded runs."""
    flow = shop.jobs.flow("pay")
    asked = flow.add(shop.hear.call("asked"))
    approval = flow.wait_for("approval", after=asked)
    flow.add(shop.hear.call("paid"), after=approval)
    flow.on_failure(shop.hear.call("told"))
    run = flow.enqueue()
    assert run.result(asked, timeout=PATIENCE_S)
    assert not run.retry()
    # Not before: nobody can approve what was canceled before it was reached, and goes
    # on, until it is reached again.
    wait_until(
        lambda: run.info().steps[1].state is StepState.READY, PATIENCE_S, "a question"
    )
    assert run.cancel()
    assert run.wait(PATIENCE_S) is FlowState.CANCELED
    assert run.retry(note="after all")
    assert not run.retry()
    assert run.state is FlowState.OPEN
    assert shop.jobs.approve(run.job(approval).ref)
    assert run.wait(PATIENCE_S) is FlowState.SUCCEEDED
    assert ledger(site) == ["asked", "paid", "told"]


def test_a_job_that_failed_goes_on_while_others_of_its_flow_wait(site, shop):
    """It is named; what comes after it runs when it has succeeded."""
    flow = shop.jobs.flow("pay", failure="continue")
    approval = flow.wait_for("approval")
    once = flow.add(shop.once.call())
    flow.add(shop.hear.call("paid"), after=(approval, once))
    run = flow.enqueue()
    failed = run.job(once)
    with pytest.raises(jobpool.JobUnsuccessful):
        failed.result(timeout=PATIENCE_S)
    with pytest.raises(UsageError, match="expected jobs, got int"):
        run.retry(failed.id)
    assert not run.retry()
    wait_until(lambda: run.info().steps[1].failed, PATIENCE_S, "its step has ended")
    assert run.retry(failed, note="the card is valid now")
    assert failed.result(timeout=PATIENCE_S) is None
    assert shop.jobs.approve(run.job(approval).ref)
    assert run.wait(PATIENCE_S) is FlowState.SUCCEEDED
    assert ledger(site) == ["paid", "refused"]


def test_results_pass_through_the_codec_on_their_way_into_arguments(site, shop):
    """In children alone: what is stored of it stays encoded."""
    flow = shop.jobs.flow("report")
    title = flow.add(shop.publish.call(1, title="secret"))
    flow.add(shop.hear.call(title.value))
    run = flow.enqueue()
    assert run.result(timeout=PATIENCE_S) == "secret: 1"
    if site.url.startswith("sqlite"):  # PostgreSQL's application has no codec
        with closing(connected(site)) as connection:
            stored = connection.execute("SELECT * FROM jobpool_jobs").fetchall()
        assert "encoded:" in repr(stored)
        assert "secret" not in repr(stored)


def test_a_handler_enqueues_a_flow_with_a_key_twice_and_has_the_same_run(site, shop):
    """Its supervisor stores it. An attempt that is repeated finds what is there."""
    once = shop.plans.enqueue("monday").result(timeout=PATIENCE_S)
    again = shop.plans.enqueue("monday").result(timeout=PATIENCE_S)
    (ref, created), *others = once + again
    assert created
    assert others == [[ref, False]] * 3
    run = shop.jobs.get_flow(ref)
    assert run.wait(PATIENCE_S) is FlowState.SUCCEEDED
    assert ledger(site) == ["planned", "planned-then"]


def test_flows_are_read_by_no_handler_and_are_in_no_transaction_of_its_own(shop):
    """A child never opens the store."""
    flow = shop.jobs.flow("inner")
    flow.add(shop.hear.call("x"))
    with running() as rehearsal:
        with pytest.raises(UsageError, match="does not work inside a handler"):
            shop.jobs.get_flow(1)
        with pytest.raises(UsageError, match="Commit first, then enqueue it without"):
            flow.enqueue(connection=object())
        run = flow.enqueue()
        with pytest.raises(UsageError, match="does not work inside a handler"):
            run.wait(0)
    assert [one.name for one in rehearsal.flows] == ["inner"]
    assert [job.kind for job in rehearsal.enqueued] == ["hear"]
