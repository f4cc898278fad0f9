"""What a hostile child may send, and what the supervisor must never compute with."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from jobpool.core.application.reports import (
    REPORTS_MAX,
    REPORTS_MAX_BYTES,
    Item,
    Report,
)
from jobpool.core.application.step_results import WantedResults
from jobpool.core.jobs.flow import (
    ADDED_MAX,
    ADDED_MAX_BYTES,
    EDGES_MAX,
    FLOW_AT_ONCE,
    STEPS_MAX,
    AskedFlow,
    NewFlow,
    NewStep,
    When,
)
from jobpool.core.jobs.job import NewJob
from jobpool.sandbox.protocol.messages import (
    Ask,
    AskPermit,
    Beat,
    BlockBucket,
    Done,
    Raised,
    Ready,
    RequestEnded,
    ReturnPermit,
)
from jobpool.sandbox.protocol.validation import screened

GOOD = Done(
    seq=1,
    token=1,
    ok=True,
    result=b"null",
    duration_s=0.1,
    cpu_s=0.1,
    rss_bytes=1,
    peak_rss_bytes=1,
)
RAISED = Raised(["ValueError"], "no", "Traceback")
STEP = NewStep(number=0, name="s")
MEMBER = NewJob(kind="k", pool="p", payload=b"{}")
REPORT = Report("id", of_error=False, items=[Item({"type": "event"}, b"{}")])


def flow(*steps, numbers=(), jobs=(), name="f", **more):
    """Return a request to store a flow."""
    asked = AskedFlow(NewFlow(name=name, steps=steps, **more), numbers)
    return Ask(1, 1, list(jobs), None, None, asked)


def problem(*frames):
    return screen(*frames)[1]


def screen(*frames):
    return screened(
        frames,
        result_max_bytes=1000,
        checkpoint_max_bytes=100,
        wrong_with=lambda jobs: "unfit" if jobs[0].key else None,
    )


@pytest.mark.parametrize(
    "frame",
    [
        GOOD,
        Ready(5),
        Beat(1, b"0.5", b"x" * 100),
        Ask(1, 1, [NewJob(kind="k", pool="p", payload=b"{}")]),
        Ask(1, 1, [], 5),
        Ask(1, 1, [], None, WantedResults(None, 0)),
        Ask(1, 1, [], None, WantedResults((0, STEPS_MAX - 1), 2**63 - 1)),
        flow(STEP),
        flow(*[STEP] * STEPS_MAX, name="f" * 255, key="k" * 255, tenant="t" * 255),
        flow(STEP, numbers=(0,) * FLOW_AT_ONCE, jobs=[MEMBER] * FLOW_AT_ONCE),
        AskPermit(1, 1, "stripe", "", 1, 0.0),
        AskPermit(1, 1, "q" * 100, "v" * 300, 2**31 - 1, 3600.0),
        ReturnPermit(1, 1),
        BlockBucket(1, "stripe", "acme", 30.0),
        RequestEnded(1, "stripe", "acme", failed=True),
        msgspec.structs.replace(GOOD, ok=False, error=RAISED),
        msgspec.structs.replace(GOOD, added=[MEMBER] * ADDED_MAX),
        msgspec.structs.replace(GOOD, reports=[REPORT] * REPORTS_MAX),
    ],
)
def test_honest_messages_pass(frame):
    """Messages of our own child code have no problem."""
    assert problem(frame) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"peak_rss_bytes": 2**64 - 1},
        {"rss_bytes": -1},
        {"added": [MEMBER] * (ADDED_MAX + 1)},
        {"reports": [REPORT] * (REPORTS_MAX + 1)},
        {"reports": [replace(REPORT, items=[Item({}, b"x" * REPORTS_MAX_BYTES)])]},
        {
            "added": [
                msgspec.structs.replace(MEMBER, payload=bytes(ADDED_MAX_BYTES + 1))
            ]
        },
        {"added": [msgspec.structs.replace(MEMBER, key="x")]},
        {"duration_s": float("nan")},
        {"duration_s": -0.1},
        {"cpu_s": float("inf")},
        {"result": b"x" * 1001},
        {"output": b"x" * 10**6},
        {"surprise": "x" * 10**6},
        {"error": Raised(["E"], "m", "t", retry_in_s=float("nan"))},
        {"error": Raised(["E"], "m", "t", retry_in_s=float("inf"))},
        {"error": Raised(["E"], "m", "t", retry_in_s=-1.0)},
        {"error": Raised(["E"], "m", "t", snooze_s=float("nan"))},
        {"error": Raised(["E"], "m", "t", snooze_s=-1.0)},
        {"error": Raised(["E"] * 1000, "m", "t")},
        {"error": Raised(["E"], "m", "t", snooze_s=1.0, throttled=("", ""))},
        {"error": Raised(["E"], "m", "t", snooze_s=1.0, throttled=("q", "\0"))},
        {"error": Raised(["E"], "m" * 10**6, "t")},
    ],
)
def test_impossible_ends_are_named(changes):
    """No figure that cannot be computed with or stored passes the check."""
    assert problem(msgspec.structs.replace(GOOD, **changes)) is not None


@pytest.mark.parametrize(
    "frame",
    [
        Ready(-1),
        Beat(1, b"x" * 10**6, None),
        Beat(1, None, b"x" * 101),
        Ask(1, 1, [NewJob(kind="k", pool="p", payload=b"{}")] * 10_001),
        Ask(1, 1, [NewJob(kind="k", pool="p", payload=b"{}")], 5),
        Ask(1, 1, [], 5, WantedResults(None, 0)),
        Ask(1, 1, [], None, WantedResults(None, -1)),
        Ask(1, 1, [], None, WantedResults(None, 2**63)),
        Ask(1, 1, [], None, WantedResults((-1,), 0)),
        Ask(1, 1, [], None, WantedResults((STEPS_MAX,), 0)),
        Ask(1, 1, [], None, WantedResults((0,) * (STEPS_MAX + 1), 0)),
        flow(),
        flow(*[STEP] * (STEPS_MAX + 1)),
        flow(replace(STEP, after=((0, When.FAILED),) * (EDGES_MAX + 1))),
        flow(STEP, numbers=(0,) * 10_001, jobs=[MEMBER] * 10_001),
        flow(STEP, numbers=(0,)),
        flow(STEP, jobs=[MEMBER]),
        flow(STEP, numbers=(1,), jobs=[MEMBER]),
        flow(STEP, numbers=(-1,), jobs=[MEMBER]),
        flow(STEP, name="f" * 256),
        flow(STEP, key="k" * 256),
        flow(STEP, tenant="t" * 256),
        flow(replace(STEP, name="s" * 256)),
        flow(STEP, numbers=(0,), jobs=[replace(MEMBER, kind="k" * 256)]),
        replace(flow(STEP), reads=5),
        replace(flow(STEP), results=WantedResults(None, 0)),
        AskPermit(1, 0, "stripe", "", 1, 1.0),
        AskPermit(1, 2**63, "stripe", "", 1, 1.0),
        AskPermit(1, 1, "", "", 1, 1.0),
        AskPermit(1, 1, "q" * 1000, "", 1, 1.0),
        AskPermit(1, 1, "stripe", "v" * 1000, 1, 1.0),
        AskPermit(1, 1, "stripe", "a\0b", 1, 1.0),
        AskPermit(1, 1, "stripe", "", 0, 1.0),
        AskPermit(1, 1, "stripe", "", 2**31, 1.0),
        AskPermit(1, 1, "stripe", "", 1, float("nan")),
        AskPermit(1, 1, "stripe", "", 1, -1.0),
        ReturnPermit(1, 0),
        ReturnPermit(1, 2**63),
        BlockBucket(1, "", "", 1.0),
        RequestEnded(1, "stripe", "a\0b", failed=False),
        BlockBucket(1, "stripe", "a\0b", 1.0),
        BlockBucket(1, "stripe", "", float("inf")),
    ],
)
def test_other_impossible_messages_are_named(frame):
    """The same holds for heartbeats, requests and readiness."""
    assert problem(frame) is not None


def test_messages_before_a_bad_one_count():
    """An end that came first counts; what follows the bad message is ignored."""
    bad = msgspec.structs.replace(GOOD, rss_bytes=-1)
    good, wrong = screen(GOOD, Ready(5), bad, GOOD)
    assert list(good) == [GOOD, Ready(5)]
    assert wrong
