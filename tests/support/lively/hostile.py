"""Texts that would run, hide or lead elsewhere, in every field that others write.

Producers choose keys, tenants and arguments; handlers what they raise, print,
return and report; supervisors their names; operators their notes.
"""

import json

import msgspec

from jobpool.core.jobs.flow import EXTERNAL, NewFlow
from jobpool.core.jobs.job import Evidence, NewJob, Progress
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import Ending, account
from jobpool.core.rules.policy import Policy
from jobpool.core.rules.quotas.definition import Tenant
from jobpool.core.rules.run_report import PoolReport, RunReport
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.queue import Pause
from jobpool.operations.quotas import SetTenant
from jobpool.store.records.alerts import AlertEvent, Found, Turn
from jobpool.store.records.runs import KindRecord, Run
from support.lively.orders import step
from support.store.storing import started

RUNS_IT = "window.hostile=1"
TEXTS = (
    f"<script>{RUNS_IT}</script>",
    f'"><img src=x onerror={RUNS_IT}>',
    f"'><svg/onload={RUNS_IT}>",
    f"</title></textarea></pre><script>{RUNS_IT}</script>",
    f'" autofocus onfocus="{RUNS_IT}" x="',
    f"javascript:{RUNS_IT}",
    "<b data-hostile>bold</b> &lt;b&gt; &amp; &#60;",
    '<link rel="stylesheet" href="http://evil.example/a.css">',
    '<meta http-equiv="refresh" content="0;url=http://evil.example/">',
    '<base href="http://evil.example/"><iframe src="http://evil.example/">',
    '<form action="http://evil.example/"><button data-hostile>go</button></form>',
    "{{ 7 * 7 }}{% include 'base.html' %}${7*7}",
    "..%2f..%2fetc?a=b&c=d#e",
    "\x1b[2J\x1b]0;title\x07 \x9b31m",
    "photo\u202egpj.exe \u2066\u200b\u00ad\ufeff",
    "wide" * 500,
    "\U0001f600 \u0645\u0631\u062d\u0628\u0627 \u4f60\u597d",
)
POOL = "cpu"


def plant(store, clock):
    """Write each text into every field of a new store."""
    eve = Principal(who="eve", role=Role.ADMIN, origin="a test")
    for n, text in enumerate(TEXTS):
        _plant_one(store, clock, n, text)
        _operate(store, eve, text)


def _plant_one(store, clock, n, text):
    kind = f"shop.evil{n}"
    schema = json.dumps({"type": "object", "properties": {text: {"title": text}}})
    run = Run(
        id=f"run-{n}",
        host=text,
        boot_id=text,
        pid=n + 1,
        pid_namespace=1,
        version=text,
        pools={POOL: "4"},
        application=text,
        app_version=text,
    )
    record = KindRecord(
        kind=kind,
        pool=POOL,
        schema=schema.encode(),
        timeout_s=60.0,
        memory_bytes=2**28,
        max_attempts=5,
        max_crashes=3,
    )
    store.begin_run(run, [record], 86_400.0)
    said = PoolReport(size=4, busy=1, wanted=4, why=text, holds=text, own_import=text)
    store.put_report(run.id, RunReport(pools={POOL: said}))
    payload = msgspec.json.encode({text[:100]: text})
    job = NewJob(
        kind=kind,
        pool=POOL,
        payload=payload,
        tenant=f"{text[:190]} {n}",
        key=text[:200],
    )
    others = [msgspec.structs.replace(job, key=None) for _ in range(3)]
    store.enqueue([job, *others])
    leases = store.lease(run.id, {POOL: 3}, {POOL: [kind]}).leases
    store.begin_attempts([started(one, "cpu/0", clock.boottime_s()) for one in leases])
    dies, succeeds, runs = leases
    evidence = Evidence(
        reason=text,
        error_class=text,
        error=text,
        traceback=text,
        output=text,
        stack=f'  File "{text}", line 7 in {text}\n{text}',
        peak_rss_bytes=2**27,
        duration_s=1.0,
        cpu_s=1.0,
    )
    bad = Ending(
        outcome=Outcome.FAILED,
        give_up=True,
        error_classes=(text,),
        evidence=evidence,
    )
    good = Ending(outcome=Outcome.SUCCEEDED, result=payload, evidence=Evidence())
    now_ms = clock.utc_ms()
    store.settle(
        [
            account(one, Policy(), ending, now_ms=now_ms)
            for one, ending in ((dies, bad), (succeeds, good))
        ]
    )
    news = Progress(
        runs.id, runs.token, payload, None, rss_bytes=2**26, output=text.encode()
    )
    store.record([news])
    flow = NewFlow(
        name=text[:100],
        key=text[:100],
        tenant=text[:100],
        steps=(
            step(0, text[:100]),
            step(1, text[:100], 0),
            step(2, text[:100], external=True),
        ),
    )
    member = NewJob(kind=kind, pool=POOL, payload=b"{}")
    asks = NewJob(kind=f"{EXTERNAL}{n}", pool="external", payload=b"{}")
    store.enqueue_flow(flow, [(0, member), (1, member), (2, asks)])
    store.fold()
    wrong = Found(rule="oldest_age", subject=text[:200], summary=text)
    store.take_turn(
        Turn(
            number=store.watch().turn,
            notes="{}",
            opened=(wrong,),
            receivers=("webhook",),
        )
    )
    told = store.claim_alert(("webhook",), 60.0)
    store.settle_alert(told, AlertEvent.REFUSED, after_s=60.0, error=text)


def _operate(store, eve, text):
    note = text[:500]
    eve = msgspec.structs.replace(eve, who=text[:100], origin=text[:100])
    operate(store, eve, Pause(kind=f"{text[:50]} paused", note=note))
    tenant = Tenant(name=f"{text[:100]} limited", concurrency=3)
    operate(store, eve, SetTenant(tenant=tenant, note=note))
