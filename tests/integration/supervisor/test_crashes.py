"""Crashes, poison and failures: what is charged, set aside, and left alone."""

import json
import time

import pytest

from jobpool.store.records.operating import Filter
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
class Vendor(Exception):
    pass


class Refused(Vendor):
    pass


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")


@jobs.job("cpu", kind="canary", max_attempts=1)
def canary():
    time.sleep(0.005)


@jobs.job("io", kind="canary.io", max_attempts=1)
def canary_io():
    time.sleep(0.005)


@jobs.job("cpu", kind="segv", retry=AT_ONCE)
def segv(note: str):
    print("about to die:", note)
    if (HERE / "fixed").exists():
        return "works now"
    segfault()


@jobs.job("cpu", kind="once", max_crashes=1)
def once(how: str):
    if how == "os._exit":
        os._exit(0)
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "abort":
        os.abort()


@jobs.job("cpu", kind="last_words", max_crashes=1)
def last_words():
    for number in range(300):
        current().heartbeat(progress=number, checkpoint=number)
    os._exit(1)


@jobs.job("cpu", kind="leave", max_attempts=1)
def leave(how: str):
    if how == "sys.exit":
        sys.exit(3)
    if how == "mute":
        raise Mute
    if how == "not_json":
        return object()
    if how == "too_large":
        return "x" * 3000
    if how == "nan":
        return float("nan")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "recursion":
        return leave(how)
    raise GiveUp("never works")


@jobs.job("cpu", kind="give_up")
def give_up(picture: str = ""):
    raise GiveUp("no such picture")


@jobs.job("cpu", kind="charge", redact=["card.number"])
def charge(card: dict):
    print("paying with", card)
    try:
        raise KeyError(card["number"])
    except KeyError:
        raise GiveUp(f"the bank refuses {card['number']}")


@jobs.job("cpu", kind="large", retry={ValueError: ["1ms"], "failed": ["1ms"]})
def large():
    witness("large")
    return "x" * 3000


@jobs.job("cpu", kind="later", max_attempts=3)
def later(delay: float):
    raise RetryLater(delay, "the vendor sleeps")


@jobs.job("cpu", kind="patient", max_attempts=1, rerun="never")
def patient():
    if not (HERE / "awake").exists():
        attempt = current()
        attempt.heartbeat(checkpoint=(attempt.checkpoint or 0) + 1)
        raise Snooze("1s", "the vendor sleeps")
    return [current().attempt, current().checkpoint]


@jobs.job("cpu", kind="usual")
def usual():
    raise ValueError("as usual")


@jobs.job("cpu", kind="rules", max_attempts=2,
          retry={"Vendor": Retry(["1ms"], max_attempts=4), ValueError: "never",
                 KeyError: ["1ms"]})
def rules(error: str):
    raise {"Refused": Refused, "ValueError": ValueError, "KeyError": KeyError}[error]


@jobs.job("cpu", kind="revived", max_attempts=2, retry=AT_ONCE)
def revived():
    if not (HERE / "repaired").exists():
        raise ValueError("not yet")
    return current().attempt


@jobs.job("cpu", kind="counted", max_attempts=2, retry=AT_ONCE)
def counted():
    raise ValueError(current().attempt)


@jobs.job("cpu", kind="never_again", rerun="never")
def never_again():
    witness("never_again")
    segfault()


@jobs.on_quarantine
def quarantined(job):
    with open(HERE / "hooks", "a") as file:
        print("quarantined", job.id, job.kind, job.outcome, file=file)


@jobs.on_dead
def died(job):
    with open(HERE / "hooks", "a") as file:
        print("dead", job.id, job.kind, job.error_class, file=file)
        if job.key is not None:
            print("with", job.key, job.tenant, job.arguments, file=file)
"""
CONFIG = 'result_max = "2000B"\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("crashes"), APP, config=CONFIG) as site:
        site.start("cpu=2,io=1")
        yield site
        site.supervisors[0].stop()


def hook_line(site, line):
    """Wait until a hook has written a line."""
    path = site.folder / "hooks"
    wait_until(
        lambda: path.exists() and line in path.read_text().splitlines(),
        PATIENCE_S,
        f"the hook's line {line!r}",
    )


def end_of(site, kind, arguments=None):
    """Run a job to its end; return it and its last unsuccessful attempt."""
    job = site.finish(site.add(kind, arguments))
    return job, site.store.attempts(job.id)[-1]


def test_three_crashes_quarantine_with_evidence(site):
    """A poison pill is quarantined and named at level ERROR, and its hook runs."""
    job = site.finish(site.add("segv", {"note": "farewell"}))
    assert (job.state, job.attempt) == ("quarantined", 3)
    assert (job.failures, job.crashes, job.interruptions) == (3, 3, 0)
    assert "crash 3 of 3" in job.reason
    attempts = site.store.attempts(job.id)
    assert [one.outcome for one in attempts] == ["crashed"] * 3
    for one in attempts:
        assert (one.signal, one.exit_code) == (11, None)
        assert one.output == "about to die: farewell\n"
        assert "in segfault" in one.stack
        assert one.peak_rss_bytes > 2**20
        assert one.slot.startswith("cpu/")
    line = site.supervisors[0].wait_event("job_quarantined", id=job.id)
    assert line["level"] == "error"
    hook_line(site, f"quarantined {job.id} segv crashed")


@pytest.mark.parametrize(
    ("how", "signum", "exit_code"),
    [("os._exit", None, 0), ("sigkill", 9, None), ("abort", 6, None)],
)
def test_a_process_that_is_gone_has_crashed(site, how, signum, exit_code):
    """However it ended, exit code 0 included: without a result it is a crash."""
    job, attempt = end_of(site, "once", {"how": how})
    assert (job.state, job.crashes) == ("quarantined", 1)
    assert attempt.outcome == "crashed"
    assert (attempt.signal, attempt.exit_code) == (signum, exit_code)


@pytest.mark.parametrize(
    ("how", "error_class", "error"),
    [
        ("sys.exit", "SystemExit", "3"),
        ("mute", "Mute", ""),
        ("not_json", "TypeError", "object"),
        ("too_large", "ResultTooLarge", "2,000"),
        ("nan", "TypeError", "nan"),
        ("interrupt", "KeyboardInterrupt", ""),
        ("recursion", "RecursionError", "recursion"),
    ],
)
def test_any_exception_from_a_handler_is_a_failure(site, how, error_class, error):
    """It is not a crash: the child lives, and the error is kept."""
    job, attempt = end_of(site, "leave", {"how": how})
    assert (job.state, job.failures, job.crashes) == ("dead", 1, 0)
    assert attempt.outcome == "failed"
    assert attempt.error_class.rpartition(".")[2] == error_class
    assert error in attempt.error.lower()
    assert job.result is None


def test_a_result_that_is_too_large_is_not_made_again(site):
    """The next one would be as large.

    The job is dead at once, whatever may be retried.
    """
    job, attempt = end_of(site, "large")
    assert (job.state, job.attempt, job.failures) == ("dead", 1, 1)
    assert len([one for one in site.witnesses("large") if one.job == job.id]) == 1
    for text in (job.reason, attempt.reason, attempt.error):
        assert "3,002 bytes" in text
        assert "2,000" in text
    hook_line(site, f"dead {job.id} large jobpool.errors.ResultTooLarge")


def test_what_a_kind_redacts_is_in_no_text(site):
    """Neither in the error, traceback and output that are kept, nor in the log."""
    secret = "4711 0815"
    job, attempt = end_of(site, "charge", {"card": {"number": secret}})
    assert job.error == "the bank refuses [redacted]"
    assert "KeyError: '[redacted]'" in attempt.traceback
    assert attempt.output == "paying with {'number': '[redacted]'}\n"
    hook_line(site, f"dead {job.id} charge jobpool.errors.GiveUp")
    assert secret.encode() in site.store.payload(job.id)
    assert secret not in f"{job} {attempt} {site.supervisors[0].said()}"


def test_give_up_is_dead_at_once_and_its_hook_runs(site):
    """No attempts are spent on what can never succeed."""
    job, attempt = end_of(site, "give_up")
    assert (job.state, job.attempt, job.failures) == ("dead", 1, 1)
    assert "gave up" in job.reason
    assert attempt.error == "no such picture"
    hook_line(site, f"dead {job.id} give_up jobpool.errors.GiveUp")
    site.add("give_up", {"picture": "a.png"}, key="evt-1", tenant="ada")
    hook_line(site, "with evt-1 ada {'picture': 'a.png'}")
    of_tenant = site.store.find(Filter(tenant="ada"))
    kinds = [job.kind for job in of_tenant]
    assert kinds == ["jobpool:on_dead", "give_up"], "whose data it holds"


def test_retry_later_waits_as_it_says_and_spends_attempts(site):
    """The handler sets the delay; the job's budget still counts."""
    soon, late = site.add("later", {"delay": 0.01}), site.add("later", {"delay": 300})
    job = site.finish(soon)
    assert (job.state, job.attempt, job.failures) == ("dead", 3, 3)
    (attempt,) = site.attempts(late)
    job, now_ms = site.job(late), time.time() * 1000
    assert (job.state, job.shown_state) == ("pending", "retryable")
    # It is counted from when the end is stored.
    assert attempt.finished_at_ms <= job.run_at_ms - 300_000 <= now_ms
    assert attempt.error == "the vendor sleeps"


def test_a_snooze_waits_as_it_says_and_costs_nothing(site):
    """The log does not call it a failure; saved state is there at the next call."""
    job_id = site.add("patient")
    wait_until(lambda: site.job(job_id).snoozes >= 2, PATIENCE_S, "two snoozes")
    site.open_gate("awake")
    job = site.finish(job_id)
    assert (job.state, job.attempt, job.failures) == ("succeeded", 1, 0)
    assert json.loads(job.result) == [1, job.snoozes]
    assert site.store.attempts(job_id) == []
    (supervisor,) = site.supervisors
    supervisor.wait_event("job_snoozed", id=job_id, snoozes=job.snoozes)
    said = supervisor.events("job_snoozed", id=job_id)
    assert [one["snoozes"] for one in said] == list(range(1, job.snoozes + 1))
    assert {(one["level"], one["delay_s"], one["reason"]) for one in said} == {
        ("info", 1.0, "not yet: the vendor sleeps")
    }
    assert supervisor.events("job_ended", id=job_id) == []


def test_the_usual_back_off_is_half_a_minute_and_jitter(site):
    """After the first failure a job waits 30 s, a fifth more or less."""
    job_id = site.add("usual")
    (attempt,) = site.attempts(job_id)
    run_at_ms, now_ms = site.job(job_id).run_at_ms, time.time() * 1000
    # It is counted from when the end is stored.
    assert run_at_ms - attempt.finished_at_ms >= 24_000
    assert run_at_ms - now_ms <= 36_000


@pytest.mark.parametrize(
    ("error", "attempts", "reason"),
    [
        ("Refused", 4, "failure 4 of 4 under Vendor"),
        ("KeyError", 2, "failure 2 of 2"),
        ("ValueError", 1, "never retried after ValueError"),
    ],
)
def test_retry_rules_go_by_the_error_class(site, error, attempts, reason):
    """Base classes count by name; a rule has its own delays and its own budget."""
    job, _attempt = end_of(site, "rules", {"error": error})
    assert (job.state, job.attempt) == ("dead", attempts)
    assert reason in job.reason


def test_the_log_says_why(site):
    """Both log lines of a dead job have the message, the limits and its frame."""
    job = site.finish(site.add("give_up", key="order-7", tenant="acme"))
    ended, gone = (
        site.supervisors[0].wait_event(name, id=job.id)
        for name in ("job_ended", "job_dead")
    )
    source = (site.folder / "jobs.py").read_text().splitlines()
    line = source.index('    raise GiveUp("no such picture")') + 1
    for said in (ended, gone):
        assert said["reason"] == job.reason == "gave up: no such picture"
        assert said["error_class"] == "jobpool.errors.GiveUp"
        assert said["error"] == "no such picture"
        assert said["frame"] == f"{site.folder}/jobs.py:{line} give_up"
        assert (said["attempt"], said["outcome"]) == (1, "failed")
        assert (said["key"], said["tenant"]) == ("order-7", "acme")
        assert (said["timeout_s"], said["memory_bytes"]) == (600.0, 2**30)
    assert ended["spent"] == [{"budget": "failure", "count": 1, "of": 5, "rule": None}]


def test_the_log_says_where_a_killed_job_was(site):
    """A crash has no traceback: the frame comes from the stack dump."""
    job, _attempt = end_of(site, "once", {"how": "abort"})
    said = site.supervisors[0].wait_event("job_quarantined", id=job.id)
    assert said["frame"].startswith(f"{site.folder}/jobs.py:")
    assert said["frame"].endswith(" once")
    assert said["reason"].startswith("killed by SIGABRT")


def test_attempt_numbers_continue_after_a_retry_and_budgets_do_not(site):
    """After a retry the numbers go on, the budget begins anew; `show` says so."""
    job_id = site.add("counted")
    assert site.finish(job_id).state == "dead"
    assert site.cli("retry", job_id)[0]["retried"] == 1
    site.supervisors[0].wait_event("job_ended", id=job_id, attempt=4)
    lines = site.supervisors[0].events("job_ended", id=job_id)
    counted = [
        (line["attempt"], line["spent"][0]["count"], line["counters_reset"])
        for line in lines
    ]
    assert counted == [(1, 1, False), (2, 2, False), (3, 1, True), (4, 2, True)]


def test_an_at_most_once_job_is_never_started_again(site):
    """With rerun="never" a crash ends the job, with that reason."""
    job, _attempt = end_of(site, "never_again")
    assert (job.state, job.attempt) == ("dead", 1)
    assert 'rerun="never"' in job.reason
    assert len(site.witnesses("never_again")) == 1


def test_retry_brings_a_dead_job_back_with_fresh_counters(site):
    """The history stays, the budget is whole again."""
    job_id = site.add("revived")
    assert site.finish(job_id).state == "dead"
    assert site.cli("retry", job_id)[0]["retried"] == 1
    wait_until(lambda: site.job(job_id).attempt == 4, PATIENCE_S, "4 attempts")
    assert (site.finish(job_id).state, site.job(job_id).failures) == ("dead", 2)
    assert len(site.store.attempts(job_id)) == 4
    site.open_gate("repaired")
    site.cli("retry", job_id)
    job = site.in_state(job_id, "succeeded")
    assert (job.failures, json.loads(job.result)) == (0, 5)


def test_release_brings_a_quarantined_job_back(site):
    """After the fix it runs as if it were new, and its history is kept."""
    job = site.finish(site.add("segv", {"note": "first"}))
    site.open_gate("fixed")
    try:
        site.cli("release", job.id)
        job = site.in_state(job.id, "succeeded")
    finally:
        (site.folder / "fixed").unlink()
    assert (job.failures, job.crashes, job.attempt) == (0, 0, 4)
    assert len(site.store.attempts(job.id)) == 3


def test_the_last_message_of_a_dying_child_is_read(site):
    """Its last message and its death may arrive together."""
    jobs = site.finish_all(site.add_many("last_words", [None] * 40))
    assert {job.state for job in jobs} == {"quarantined"}
    assert {job.checkpoint for job in jobs} == {b"299"}
    assert site.supervisors[0].process.poll() is None


def test_no_job_is_charged_for_a_neighbour(site):
    """Jobs beside the poison, in its pool and another, need one attempt each."""
    poison = [site.add("segv", {"note": "x"}) for _ in range(3)]
    poison += [site.add("once", {"how": "os._exit"}) for _ in range(5)]
    canaries = site.add_many("canary", [None] * 60)
    canaries += site.add_many("canary.io", [None] * 60, pool="io")
    for job in site.finish_all(canaries):
        assert (job.state, job.attempt) == ("succeeded", 1)
        assert (job.failures, job.crashes, job.interruptions) == (0, 0, 0)
    for job in site.finish_all(poison):
        assert job.state == "quarantined"


def test_groups_show_what_is_set_aside(site):
    """`list --group-by kind,reason` shows the poison at a glance."""
    site.finish(site.add("once", {"how": "abort"}))
    groups = site.cli("list", "--group-by", "kind,reason", "--state", "quarantined")
    assert "once" in {group["kind"] for group in groups}
