"""One chaos run from its first supervisor to its verdict.

Calm weather first, in which the rate is measured; then an outage of the store, if
one is wanted; then the storm; then quiet, in which everything must drain; then the
supervisors drain and end, and nothing may be left.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from chaos import figures, recovery
from chaos.accounts import STILL, Accounts, Final, Tick
from chaos.audit import Auditor
from chaos.crew import LEASE_TTL_S, Member, cgroups_of, processes
from chaos.flow_accounts import FlowRow, Flows, StepRow
from chaos.justice import findings
from chaos.nemesis import SETTLED_S, Blow, Nemesis
from chaos.places import COMMAND_S_MAX, HARMED, PLACES, leftovers, shm_entries, wait_for
from chaos.producing import Producer
from jobpool.errors import StoreError
from support.waiting import Running

LEFT_S_MAX = 20.0
START_S_MAX = 60.0
SUPERVISORS = 2
PRODUCERS = 2
BEFORE_OUTAGE_S = 12.0
AFTER_OUTAGE_S = 20.0
SHOWN_MAX = 30
HISTORY_MAX = 25
JOB_SAID = '"event":"job_output"'
BUG_WORDS = ("Exception in thread", "Exception ignored", "please report")


class Options(NamedTuple):
    """What a run is to be like."""

    store: str
    seed: int
    storm_s: float
    calm_s: float = 3.0
    outage_s: float = 0.0
    drain_s: float = 120.0
    is_alone: bool = False
    keep: bool = False


def play(options):
    """Play a run; return its document and the violations with their histories."""
    directory = Path(tempfile.mkdtemp(prefix="jobpool-chaos-"))
    before = shm_entries(options)
    place = PLACES[options.store](directory, is_alone=options.is_alone)
    try:
        accounts, run = _Play(options, place).run()
        accounts.litter += [
            f"/dev/shm/{name}" for name in shm_entries(options) - before
        ]
        found = findings(accounts)
        if options.keep:
            struck = [one._asdict() for one in (*accounts.blows, *accounts.lives)]
            write(struck, directory / "struck.json")
        values = figures.document(accounts, found, run)
        return values, list(_described(accounts, found))
    finally:
        place.close()
        if options.keep:
            print(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


class _Play:
    """The parts of one run."""

    def __init__(self, options, place):
        self._options, self._place = options, place
        self._rng = random.Random(options.seed)
        os.environ["CHAOS_MARKS"] = str(place.marks)
        os.environ["JOBPOOL_STORE"] = place.url
        self._crew = [Member(f"s{number}", place) for number in range(SUPERVISORS)]
        self._auditor = Auditor(place)
        self._nemesis = Nemesis(random.Random(self._rng.random()), place, self._crew)
        self._broken = []

    def run(self):
        from chaos import jobs

        # Another run in this process has had another store.
        producers = [
            Producer(
                f"p{number}",
                random.Random(self._rng.random()),
                jobs.HANDLERS,
                jobs=jobs.jobs,
                auditor=self._auditor,
            )
            for number in range(PRODUCERS)
        ]
        with contextlib.ExitStack() as stack:
            running = stack.enter_context(Running())
            for member in self._crew:
                stack.callback(member.close)
            self._auditor.start()
            for producer in producers:
                producer.start()
            oom_kills = count_oom_kills()
            calm, outage = self._calm_and_outage()
            began_s = time.monotonic()
            self._nemesis.rage(self._options.storm_s)
            storm_s = time.monotonic() - began_s
            for producer in producers:
                producer.finish()
            drained_s = self._drain()
            # They are made up for by whoever is back, if they are not paused before.
            wait_for(lambda: self._has_ticked(storm_s), START_S_MAX)
            # A tick may have come meanwhile, and a connection may be the storm's.
            if not wait_for(lambda: _is_paused(jobs), START_S_MAX):
                raise RuntimeError("the schedule cannot be paused")
            drained_s += self._drain()
            self._stop()
            self._pauses = pauses(running)
            self._nemesis.blows += standstills(self._pauses)
        self._auditor.finish()
        self._auditor.catch_up()
        jobs.jobs.close()
        accounts = self._accounts(producers)
        if len(accounts.ticks) < storm_s:
            accounts.broken.append(f"{len(accounts.ticks)} ticks in {storm_s:.0f} s")
        accounts.host_oom = count_oom_kills() > oom_kills
        run = {
            "seed": self._options.seed,
            "store": self._options.store,
            "commit": commit(),
            "storm s": round(storm_s, 1),
            "load average": os.getloadavg()[0],
            **recovery.recoveries(accounts, self._measured_s),
            "blows left out": self._nemesis.left_out,
            "drained in s": round(drained_s, 1),
            "supervisors that ended by themselves": dict(
                Counter(code for member in self._crew for code in member.own_ends)
            ),
            "calls in trouble": dict(sum((p.troubles for p in producers), Counter())),
        }
        if outage:
            before, back_s = figures.goodput(accounts, calm, outage)
            run |= {
                "outage s": round(outage[1] - outage[0], 1),
                "jobs/s before it": round(before, 1),
                "s until 90 % was back": None if back_s is None else round(back_s, 1),
            }
        return accounts, run

    def _calm_and_outage(self):
        for member in self._crew:
            member.start()
        if not wait_for(self._has_succeeded, START_S_MAX):
            raise RuntimeError(
                f"no job succeeded in calm weather; see {self._place.directory}"
            )
        from_s = time.time()
        self._nemesis.measure(self._options.calm_s, self._has_leased)
        self._measured_s = from_s, time.time()
        if not self._options.outage_s:
            return None, None
        self._nemesis.rest(BEFORE_OUTAGE_S)
        from_ns = time.time_ns()
        calm = from_ns / 1e9 - BEFORE_OUTAGE_S + SETTLED_S, from_ns / 1e9
        mend = self._place.break_store()
        self._nemesis.rest(self._options.outage_s)
        mend()
        self._nemesis.note("outage", from_ns)
        outage = from_ns / 1e9, time.time()
        self._nemesis.rest(AFTER_OUTAGE_S)
        return calm, outage

    def _has_leased(self, run):
        return run and any(one.supervisor == run for one in self._auditor.changes)

    def _has_ticked(self, times):
        with contextlib.suppress(*HARMED):
            return len(self._place.read_ticks()) >= times
        return False

    def _has_succeeded(self):
        return any(change.state == "succeeded" for change in self._auditor.changes)

    def _drain(self):
        """Wait until every job has ended; return how long it took."""
        began_s = time.monotonic()
        until_s = began_s + self._options.drain_s
        self._auditor.audited.clear()
        while time.monotonic() < until_s:
            self._nemesis.rest(0.1)
            if self._auditor.audited.is_set() and self._auditor.unfinished == 0:
                break
        return time.monotonic() - began_s

    def _stop(self):
        self._broken += [word for member in self._crew if (word := member.stop())]
        for member in self._crew:
            log = member.log.read_text(errors="replace")
            self._broken += [
                f"{member.name}: {line[:300]}"
                for line in log.splitlines()
                if JOB_SAID not in line and any(word in line for word in BUG_WORDS)
            ]

    def _accounts(self, producers):
        directory = self._place.directory
        lives = [life for member in self._crew for life in member.lives]

        def left():
            yield from (f"process {pid}" for pid in processes(directory))
            yield from (str(path) for path in leftovers(self._place))
            yield from (str(path) for path in cgroups_of(lives))

        # For all of it: a process that ends is out of sight before its group is empty.
        wait_for(lambda: not any(left()), LEFT_S_MAX)
        litter = [f"{one} is left" for one in left()]
        jobs, attempts, ticks, permits, broken = self._place.read_final()
        flows, steps = self._place.read_flows()
        return Accounts(
            shared=self._place.shared,
            changes=self._auditor.changes,
            marks=self._place.marks.read_text().splitlines(),
            blows=self._nemesis.blows,
            calls=[call for producer in producers for call in producer.calls],
            lives=lives,
            jobs=list(map(Final._make, jobs)),
            stored_attempts=attempts,
            ticks=list(map(Tick._make, ticks)),
            flows=Flows(
                drawn={one.declared.name: one for p in producers for one in p.drawn},
                acts=[act for producer in producers for act in producer.acts],
                rows=list(map(FlowRow._make, flows)),
                steps=list(map(StepRow._make, steps)),
            ),
            permits_left=permits,
            litter=litter,
            pauses=self._pauses,
            broken=self._broken + broken,
        )


def pauses(running):
    """Return from when until when this machine ran nothing, in ns."""
    ahead_ns = time.time_ns() - time.monotonic_ns()
    return [
        (ahead_ns + round(from_s * 1e9), ahead_ns + round(until_s * 1e9))
        for from_s, until_s in running.pauses()
    ]


def standstills(found):
    """Return the pauses that were so long that leases may have lapsed.

    They are nobody's blow, and do what one does.
    """
    return [
        Blow(STILL, from_ns, until_ns)
        for from_ns, until_ns in found
        if until_ns - from_ns > LEASE_TTL_S * 1e9 / 2
    ]


def _is_paused(jobs):
    with contextlib.suppress(StoreError):
        jobs.jobs.schedules.pause(jobs.SCHEDULE)
        return True
    return False


def _described(accounts, found):
    """Yield the first violations, each with its job's whole history."""
    history = accounts.history()
    for violation in found[:SHOWN_MAX]:
        yield f"{violation.rule} job {violation.job}: {violation.text}"
        for record in history.of_job(violation.job)[-HISTORY_MAX:]:
            if violation.job:
                yield f"    {record}"


def count_oom_kills():
    """Return how often the kernel has killed for lack of memory, machine-wide."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def commit():
    """Return the commit under test."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S_MAX,
    )
    return done.stdout.strip() or "unknown"


def write(values, path):
    """Write the document as JSON."""
    Path(path).write_text(json.dumps(values, indent=1, default=str) + "\n")
