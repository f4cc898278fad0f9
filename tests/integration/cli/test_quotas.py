"""`jobpool quotas` and `tenants`, and what other commands say of what is held back."""

import re

import msgspec
import pytest

from jobpool.core.application.redaction import with_redaction
from jobpool.core.jobs.job import RequestReport, Throttle
from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.definition import Limits, Need, Quota, Tenant, own_cap
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.store.records.operating import AuditFilter
from support.store.cli_store import (
    CLEAR,
    KIND,
    RUN,
    enqueue,
    rows,
    run,
    stored,
    url_of,
)

STRIPE = Quota(name="stripe", rate=parse_rate("100/s"), burst=50, concurrency=2)
FAIR = Quota(name="fair-use", concurrency=1, per="tenant")
IN_TEN_MINUTES = re.compile(r"(next permit|PAUSED, ends) in (10m00s|9m[0-5]\d)")
OWN, OWN_NEED = own_cap(KIND.kind, 7)


def published(quotas, *needs, tenants=()):
    """Return a run and its kind, which needs quotas."""
    limits = Limits(quotas=tuple(quotas), tenants=tuple(tenants))
    run_of = msgspec.structs.replace(RUN, limits=limits)
    return run_of, msgspec.structs.replace(KIND, needs=tuple(needs))


def publish(store, quotas, *needs, tenants=()):
    run_of, kind = published(quotas, *needs, tenants=tenants)
    store.begin_run(run_of, [kind], 60.0)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBPOOL_STORE", url_of(tmp_path))
    store = stored(tmp_path)
    publish(store, [STRIPE], Need("stripe"))
    yield store
    store.close()


def lease(store, most=10):
    """Lease what may begin; return the ids."""
    batch = store.lease(RUN.id, {"cpu": most}, {"cpu": [KIND.kind]})
    return [one.id for one in batch.leases]


def words(result):
    """Return the lines of an output, with single spaces."""
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def acted(store):
    return [(row.action, row.target, row.note) for row in store.audits(AuditFilter())]


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def test_the_list_has_what_is_used_free_and_waiting(store):
    """For people in words, for programs with everything."""
    enqueue(store, 5)
    assert len(lease(store)) == 2
    head, line = words(run("quotas"))
    assert head == "NAME PER CAP RATE BURST USED FREE WAITING FROM STATE"
    assert line.startswith("stripe - 2 100/s 50 2 0 3 code ")
    assert "2" in line.removeprefix("stripe - 2 100/s 50 2 0 3 code ")
    (found,) = rows(run("quotas", "--json"))
    assert (found["quota"], found["used"], found["waiting"]) == ("stripe", 2, 3)
    assert (found["free"], found["closed_buckets"]) == (0, 1)
    assert found["kinds"] == [KIND.kind]


def test_a_quota_is_shown_by_bucket(store):
    """Tenants are its values: made harmless here, and as they are for programs."""
    publish(store, [FAIR], Need("fair-use"))
    for tenant in ("acme", "bolt", CLEAR):
        enqueue(store, 2, tenant=tenant)
    assert len(lease(store)) == 3
    result = run("quotas", "fair-use")
    assert "\x1b" not in result.stdout
    lines = words(result)
    assert lines[0] == "quota fair-use"
    assert "limits 1 at once" in lines
    assert "counts for each tenant by itself" in lines
    assert "tenant USED CAP FREE WAITING STATE" in lines
    assert any(line.startswith("acme 1 1 0 1 ") for line in lines)
    (found,) = rows(run("quotas", "fair-use", "--json"))
    assert {one["value"] for one in found["buckets"]} == {"acme", "bolt", CLEAR}
    assert {one["waiting"] for one in found["buckets"]} == {1}


def test_a_rate_alone_has_no_columns_of_a_cap(store):
    """What would be nothing but dashes takes the room of what one looks for."""
    mail = Quota(name="mail", rate=parse_rate("1/h"))
    publish(store, [mail], Need("mail"))
    enqueue(store, 2)
    assert len(lease(store)) == 1
    lines = words(run("quotas", "mail"))
    assert "FREE WAITING STATE" in lines
    (line,) = [one for one in lines if one.startswith("0 1 next permit in ")]
    assert line.endswith(": its rate has no permit left")


def test_values_of_an_argument_that_is_hidden_are_hidden(store):
    """A bucket would name it; who may see it asks for that."""
    by_card = Quota(
        name="cards", concurrency=1, per="args.card", retry_budget=RetryBudget()
    )
    run_of, kind = published([by_card], Need("cards"))
    schema = with_redaction(KIND.schema, ["card"], [])
    store.begin_run(run_of, [msgspec.structs.replace(kind, schema=schema)], 60.0)
    *_, last = enqueue(store, 2, quota_values={"card": "4711 0815"})
    assert len(lease(store)) == 1
    of_budget = ("quotas", "retries:quota:cards")
    for command in (("quotas", "cards"), of_budget, ("show", last)):
        for flags in ((), ("--json",)):
            shown = run(*command, *flags)
            assert shown.exit_code == 0, shown.output
            assert "4711" not in shown.output
            assert "[redacted]" in shown.output
            assert "4711" in run(*command, *flags, "--unredacted").output


def test_an_unknown_quota_is_refused_with_the_nearest_name(store):
    """A slip must not look like a quota that nothing waits for."""
    assert "did you mean 'stripe'?" in refused("quotas", "stirpe")
    said = refused("quotas", "set", "stirpe", "--rate", "5/s")
    assert "did you mean 'stripe'? Nothing was changed" in said
    assert "did you mean 'stripe'?" in refused("quotas", "reset", "stirpe")
    assert not acted(store)


def test_numbers_are_set_for_a_while_and_reset(store):
    """With a row in the trail for each; what changes nothing says so and has none."""
    command = ("quotas", "set", "stripe", "--rate", "5/s", "--for", "2h", "--note", "x")
    assert words(run(*command)) == [
        "quota stripe set: rate 5/s for 2h",
        (
            "within 2 s: 2 at once, 5/s with burst 50: at most 55 within any second, "
            "350 within any minute"
        ),
    ]
    (found,) = rows(run("quotas", "--json"))
    assert (found["rate"], found["concurrency"]) == ("5/s", 2)
    assert found["set"]["rate"] == "5/s"
    assert found["set"]["until"]
    assert any(
        line.startswith("set rate 5/s, by ")
        for line in words(run(*command[:1], "stripe"))
    )
    assert words(run("quotas", "reset", "stripe")) == ["quota stripe reset"]
    assert words(run("quotas", "reset", "stripe")) == ["quota stripe reset (no change)"]
    (found,) = rows(run("quotas", "--json"))
    assert (found["rate"], found["set"]) == ("100/s", None)
    assert acted(store) == [
        ("quotas reset", '{"quota":"stripe"}', None),
        ("quotas set", '{"quota":"stripe","rate":"5/s","for_s":7200.0}', "x"),
    ]


def test_a_set_cap_lets_more_begin(store):
    """What was blocked is looked at again."""
    enqueue(store, 5)
    assert len(lease(store)) == 2
    assert run("quotas", "set", "stripe", "--concurrency", "4").exit_code == 0
    assert len(lease(store)) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "say what to set"),
        (("--rate", "5"), "'5' is not a rate"),
        (("--rate", "5/s", "--for", "0s"), "longer than 0"),
        (("--concurrency", "0"), "0 is not in the range"),
    ],
)
def test_what_cannot_be_set_is_refused(store, given, said):
    """Nothing was changed."""
    assert said in refused("quotas", "set", "stripe", *given)
    assert not acted(store)


def test_a_kinds_own_cap_can_be_set(store):
    """Whether the code has one or not."""
    publish(store, [OWN], OWN_NEED)
    name = f"kind:{KIND.kind}"
    assert run("quotas", "set", name, "--concurrency", "1").exit_code == 0
    enqueue(store, 3)
    assert len(lease(store)) == 1
    assert any(line.startswith(f"{name} - 1 ") for line in words(run("quotas")))


def test_what_a_vendor_has_closed_opens_by_reset(store):
    """Until then the list says when it opens, and a job what it waits for."""
    (job_id,) = enqueue(store)
    store.block_buckets([Throttle("stripe", "", 600_000)])
    assert not lease(store)
    (line,) = words(run("quotas"))[1:]
    assert IN_TEN_MINUTES.search(line)
    (wait,) = [x for x in words(run("show", job_id)) if x.startswith("quota ")]
    assert IN_TEN_MINUTES.search(wait)
    (found,) = rows(run("quotas", "stripe", "--json"))
    assert found["buckets"][0]["blocked_until"]
    assert found["buckets"][0]["free"] == 0
    assert run("quotas", "reset", "stripe").exit_code == 0
    assert lease(store) == [job_id]


def test_an_open_breaker_says_until_when_and_is_closed_by_reset(store):
    """The list says so, and a job what it waits for; the probe is named."""
    frail = Quota(name="frail", breaker=BreakerRule(pause_s=600.0))
    publish(store, [frail], Need("frail"))
    (job_id,) = enqueue(store)
    store.report_requests([RequestReport("frail", "", 70, 20, 10)])
    assert not lease(store)
    (line,) = [x for x in words(run("quotas")) if x.startswith("frail")]
    assert "its service fails" in line
    assert IN_TEN_MINUTES.search(line)
    status = run("status").stdout
    assert "OPEN: quota frail: its service fails, and is left alone" in status
    (wait,) = [x for x in words(run("show", job_id)) if x.startswith("quota ")]
    assert "frail: its service fails" in wait
    (found,) = rows(run("quotas", "frail", "--json"))
    assert found["breaker"]["pause_s"] == 600.0
    (limits,) = [x for x in words(run("quotas", "frail")) if x.startswith("limits")]
    assert limits == "limits breaker at 50 % of 20 requests in 1m00s for 10m00s"
    assert run("quotas", "reset", "frail").exit_code == 0
    assert lease(store) == [job_id]


def test_a_waiting_job_says_which_quota_and_who_has_its_permits(store):
    """Which jobs those are is what one looks at next."""
    *_, last = enqueue(store, 3)
    held = lease(store)
    lines = words(run("show", last))
    assert "next waits: quota stripe has no permit" in lines
    (wait,) = [line for line in lines if line.startswith("quota ")]
    assert wait.startswith("quota stripe: ")
    assert f"held by jobs {held[0]}, {held[1]}" in wait
    assert "read jobpool manual flow-control" in lines
    (found,) = rows(run("show", last, "--json"))
    (wait,) = found["waits_for"]
    assert (wait["quota"], wait["used"], wait["concurrency"]) == ("stripe", 2, 2)
    assert wait["held_by"] == held
    (found,) = rows(run("show", held[0], "--json"))
    assert found["waits_for"] == []


def test_what_is_blocked_is_counted_apart_from_what_could_run(store):
    """More supervisors would not help it."""
    enqueue(store, 5)
    lease(store)
    lines = words(run("status"))
    head = next(line for line in lines if line.startswith("POOL "))
    cpu = next(line for line in lines if line.startswith("cpu "))
    found = dict(zip(head.split(), cpu.split(), strict=True))
    assert (found["RUNNABLE"], found["BLOCKED"], found["LEASED"]) == ("0", "3", "2")
    assert "stripe 3 1 bucket 2 at once, 100/s with burst 50" in lines
    (found,) = rows(run("status", "--json"))
    assert found["pools"]["cpu"]["blocked"] == 3
    assert found["pools"]["cpu"]["runnable"] == 0
    assert found["quotas"][0]["waiting"] == 3


def test_what_only_a_tenants_rule_holds_back_is_explained_by_status(store):
    """No quota is listed for it: the rule `*` has no figures of its own."""
    publish(store, [], tenants=[Tenant(name="*", concurrency=1)])
    enqueue(store, 3, tenant="acme")
    assert len(lease(store)) == 1
    (line,) = (one for one in words(run("status")) if "of tenants" in one)
    assert (
        line
        == "2 jobs are blocked by rules or pauses of tenants; which: jobpool show ID"
    )


def test_where_nothing_is_blocked_status_has_no_word_of_it(store):
    """A quota in which all is well is no news."""
    enqueue(store)
    output = run("status").stdout
    assert "BLOCKED" not in output
    assert "QUOTAS" not in output


def test_definitions_that_differ_are_named_with_their_hosts(store):
    """The stricter holds, which looks like a mistake of whoever deployed last."""
    other = msgspec.structs.replace(
        RUN,
        id="run-2",
        host="host-2",
        limits=Limits(quotas=(msgspec.structs.replace(STRIPE, concurrency=9),)),
    )
    store.begin_run(other, [msgspec.structs.replace(KIND, needs=(Need("stripe"),))], 60)
    for command in ("quotas", "status", "doctor"):
        output = run(command).output
        (line,) = [x for x in output.splitlines() if "stricter number holds" in x]
        assert "stripe" in line
        assert RUN.host in line
        assert "host-2" in line


def test_tenants_have_rules_that_are_set_and_removed(store):
    """Above those of the configuration, which come back."""
    others = Tenant(name="*", concurrency=5)
    publish(store, [], tenants=[others])
    (line,) = words(run("tenants", "set", "acme", "--concurrency", "1"))
    assert line == "tenant acme set: 1 at once"
    enqueue(store, 2, tenant="acme")
    enqueue(store, 1, tenant="bolt")
    assert len(lease(store)) == 2
    head, *lines = words(run("tenants"))
    assert head == "TENANT CAP RATE BURST USED WAITING FROM STATE"
    assert any(line.startswith("* 5 - - - - configuration ") for line in lines)
    assert any(line.startswith("acme 1 - - 1 1 set by ") for line in lines)
    found = {one["tenant"]: one for one in rows(run("tenants", "--json"))}
    assert (found["acme"]["concurrency"], found["acme"]["used"]) == (1, 1)
    assert words(run("tenants", "remove", "acme")) == ["tenant acme removed"]
    assert words(run("tenants", "remove", "acme")) == [
        "tenant acme removed (no change)"
    ]
    assert len(lease(store)) == 1
    assert [action for action, *_ in acted(store)] == ["tenants remove", "tenants set"]


@pytest.mark.parametrize(("what", "name"), [("tenant", "acme"), ("quota", "stripe")])
def test_a_tenant_and_a_quota_are_paused_for_a_while(store, what, name):
    """As pools are: it says who, why and until when, wherever it is seen."""
    (job_id,) = enqueue(store, tenant="acme")
    command = (f"--{what}", name, "--for", "10m", "--note", "vendor down")
    (said,) = words(run("pause", *command))
    assert said.startswith(f"{what} {name} paused ends by itself in 10m00s, at 20")
    assert not lease(store)
    (line,) = [x for x in words(run("status")) if x.endswith(f"resume --{what} {name}")]
    assert "vendor down" in line
    (line,) = [x for x in words(run("show", job_id)) if x.startswith("next ")]
    assert line.startswith(f"next waits: {what} {name} is paused (by ")
    assert "no permit" not in line
    if what == "quota":
        assert IN_TEN_MINUTES.search(run("quotas").stdout)
    assert words(run("resume", f"--{what}", name)) == [f"{what} {name} resumed"]
    assert lease(store) == [job_id]
    assert acted(store)[1:] == [
        ("pause", f'{{"{what}":"{name}","for_s":600.0}}', "vendor down")
    ]


def test_a_job_that_needs_what_each_host_counts_says_so(store):
    """The store does not know how much of it is free."""
    gpu = Quota(name="gpu", concurrency=1, host_only=True)
    publish(store, [gpu], Need("gpu"))
    (job_id,) = enqueue(store)
    lines = words(run("show", job_id))
    assert (
        "next waits: for a slot of its pool and a permit of quota gpu, which each host "
        "counts by itself"
    ) in lines
    assert any(
        line.endswith("each host counts its own") for line in words(run("quotas"))
    )


def test_what_nobody_has_is_not_paused(store):
    """A slip would stop nothing, and look as if it had."""
    assert "did you mean 'stripe'?" in refused("pause", "--quota", "stirpe")
    assert "tenant 'acme'" in refused("pause", "--tenant", "acme")
    assert run("pause", "--tenant", "acme", "--force").exit_code == 0
    assert "name what" in refused("pause")


def test_options_before_a_command_of_theirs_are_passed_on_or_refused(store):
    """`--store` counts, `--json` is that command's own."""
    url = store.url
    assert run("quotas", "--store", url, "stripe").exit_code == 0
    assert "--json belongs behind" in refused("quotas", "--json", "reset", "stripe")
    assert "--json belongs behind" in refused("tenants", "--json", "remove", "acme")


def test_a_store_without_quotas_says_where_they_come_from(tmp_path, monkeypatch):
    """An empty list is no answer at three in the morning."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBPOOL_STORE", url_of(tmp_path))
    stored(tmp_path).close()
    for command in ("quotas", "tenants"):
        result = run(command)
        assert (result.exit_code, result.stdout) == (0, "")
        assert "a supervisor" in result.stderr
        assert "jobpool manual flow-control" in result.stderr
    assert "there are none" in refused("quotas", "stripe")
