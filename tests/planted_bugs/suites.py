"""Bugs that tests of one part must see: each is planted, and one test file is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from planted_bugs.alert_suites import ALERT_BUGS
from planted_bugs.bug import Edit, Promise, SuiteBug
from planted_bugs.flow_suites import FLOW_BUGS
from planted_bugs.sowing import sown

TOP = Path(__file__).parents[2]
QUIETLY = ("-q", "-x", "-p", "no:cacheprovider")
RUN_S_MAX = 300
FAILED = 1
"""How pytest ends when tests have failed; other codes say that it could not run."""


SUITE_BUGS = (
    SuiteBug(
        "an end is written whatever its token",
        Promise.FENCED,
        "tests/store/contract/test_settle.py",
        (
            Edit(
                "store/sqlite/sql/settle.sql",
                "      +j.state = 'leased'\n"
                "      AND j.token = json_extract(wanted.value, '$[1]')",
                "      +j.state = 'leased'",
            ),
            Edit(
                "store/sqlite/sql/settle.sql",
                "WHERE jobpool_jobs.id = ended.id\n"
                "  AND jobpool_jobs.token = ended.token\n"
                "  AND +jobpool_jobs.state = 'leased'\nRETURNING id",
                "WHERE jobpool_jobs.id = ended.id\n"
                "  AND +jobpool_jobs.state = 'leased'\nRETURNING id",
            ),
        ),
    ),
    SuiteBug(
        "an outdated run is given leases",
        Promise.FENCED,
        "tests/store/contract/test_formats.py",
        (
            Edit(
                "store/operations/lease.py",
                "(self.is_outdated or self.has_lapsed or self.is_paused)",
                "(self.has_lapsed or self.is_paused)",
            ),
        ),
    ),
    SuiteBug(
        "a run begins while a feature comes into use",
        Promise.FENCED,
        "tests/store/postgres/test_format_races.py",
        (
            Edit(
                "store/postgres/sql/runs.sql",
                "WHERE name = 'min_format'\nFOR SHARE",
                "WHERE name = 'min_format'",
            ),
            Edit(
                "store/postgres/sql/migrations/005_features.sql",
                "WHERE name = 'min_format' FOR SHARE",
                "WHERE name = 'min_format'",
            ),
        ),
    ),
    SuiteBug(
        "the queue has no end",
        Promise.BOUNDED_DATA,
        "tests/store/contract/test_enqueue.py",
        (
            Edit(
                "store/sqlite/queue_depth.py",
                "Clock) -> None:\n        self._limit = limit\n",
                "Clock) -> None:\n        self._limit = 1000 * limit\n",
            ),
        ),
    ),
    SuiteBug(
        "arguments may be of any type",
        Promise.BOUNDED_DATA,
        "tests/store/contract/test_enqueue.py",
        (
            Edit(
                "store/statements/validation.py",
                "    if type(job.payload) is not bytes:",
                "    if job.payload is None:",
            ),
        ),
    ),
    SuiteBug(
        "memory is looked at ten times a second",
        Promise.HARD_LIMITS,
        "tests/unit/sandbox/metering/test_sampling.py",
        (
            Edit(
                "sandbox/metering/sampling.py",
                "    headroom_s = (limit_bytes - rss_bytes) / FILL_BYTES_PER_S\n",
                "    headroom_s = SAMPLE_MAX_S\n",
            ),
        ),
    ),
    SuiteBug(
        "only the first process of an attempt is killed",
        Promise.HARD_LIMITS,
        "tests/integration/sandbox/test_deaths.py",
        (
            Edit(
                "sandbox/system/process_tree.py",
                "def _kill_below(pid: int, stopped: set[Member]) -> None:\n",
                "def _kill_below(pid: int, stopped: set[Member]) -> None:\n"
                "    return\n\n\n"
                "def _killed_below(pid: int, stopped: set[Member]) -> None:\n",
            ),
        ),
    ),
    SuiteBug(
        "the supervisor loads the application",
        Promise.NOTHING_OF_YOURS,
        "tests/project/test_layers.py",
        (
            Edit(
                "supervisor/machine/registry.py",
                "from jobpool.core.config.store_url import refuse_other_store\n",
                "from jobpool.core.config.store_url import refuse_other_store\n"
                "from jobpool.sandbox.app_loader import load_application\n",
            ),
        ),
    ),
    SuiteBug(
        "a job that its child does not begin is waited for",
        Promise.HARD_LIMITS,
        "tests/unit/supervisor/machine/attempts/test_idle.py",
        (
            Edit(
                "supervisor/machine/attempts/deadlines.py",
                "    if job.begun or job.started_s is None:\n",
                "    if job.seq:\n",
            ),
        ),
    ),
    SuiteBug(
        "a fence trusts what comes",
        Promise.LATE_OVERLAP,
        "tests/unit/supervisor/machine/dispatch/test_fencing.py",
        (
            Edit(
                "supervisor/machine/dispatch/dispatcher.py",
                "step.ending or step.fenced or self._asked_epoch != step.epoch",
                "step.ending",
            ),
        ),
    ),
    SuiteBug(
        "a restored store counts tokens on from its backup",
        Promise.FENCED,
        "tests/store/sqlite/test_restore.py",
        (
            Edit(
                "core/rules/repairs/restoring.py",
                "    after = counter + _jump(backup_age_s)\n    if after > TOKENS_MAX",
                "    after = counter\n    if after > TOKENS_MAX",
            ),
        ),
    ),
    SuiteBug(
        "a store that went back in time is written on",
        Promise.FENCED,
        "tests/integration/supervisor/test_restored.py",
        (
            Edit(
                "store/contract/watermark.py",
                "        if what := self._missing(found):",
                "        if (what := self._missing(found)) and found is None:",
            ),
        ),
    ),
    SuiteBug(
        "a kill has no reason",
        Promise.NAMED_ENDS,
        "tests/unit/sandbox/protocol/test_verdict.py",
        (
            Edit(
                "sandbox/protocol/verdict.py",
                "        return OUTCOME_OF_KILL[kill.reason], reason_of_kill(kill)",
                '        return OUTCOME_OF_KILL[kill.reason], ""',
            ),
        ),
    ),
    SuiteBug(
        "a death has no signal",
        Promise.NAMED_ENDS,
        "tests/unit/sandbox/protocol/test_verdict.py",
        (
            Edit(
                "sandbox/protocol/verdict.py",
                "            signal=exited.signal,\n",
                "            signal=None,\n",
            ),
        ),
    ),
    SuiteBug(
        "the key of a replaced job is lost",
        Promise.DURABLE,
        "tests/store/contract/test_replay_action.py",
        (Edit("operations/arguments/replay.py", "        key=job.key,\n", ""),),
    ),
    SuiteBug(
        "a job is replaced twice",
        Promise.DURABLE,
        "tests/store/contract/test_replay.py",
        (
            Edit(
                "store/sqlite/sql/replay.sql",
                "finished_at_ms IS NOT NULL AND replaced_by IS NULL",
                "finished_at_ms IS NOT NULL",
            ),
        ),
    ),
    SuiteBug(
        "what was done is written down afterwards",
        Promise.ON_RECORD,
        "tests/store/contract/test_audit.py",
        (
            Edit(
                "operations/operate.py",
                "            change = step()\n            audit_id = ",
                "            change = step()\n"
                "        with self._store.transaction():\n"
                "            audit_id = ",
            ),
        ),
    ),
    SuiteBug(
        "kept output is not erased",
        Promise.ERASED,
        "tests/store/contract/test_erase_columns.py",
        (
            Edit(
                "store/sqlite/store.py",
                '        "delete_outputs",\n        "delete_running",',
                '        "delete_running",',
            ),
        ),
    ),
    SuiteBug(
        "what hooks were told is not erased",
        Promise.ERASED,
        "tests/integration/cli/test_erase.py",
        (
            Edit(
                "operations/erasure.py",
                "yield from _batches(store.erase, survey.hooks)",
                "pass",
            ),
        ),
    ),
    SuiteBug(
        "a schedule catches up with all that it has missed",
        Promise.BOUNDED_DATA,
        "tests/unit/core/rules/schedules/test_plan.py",
        (
            Edit(
                "core/rules/schedules/plan.py",
                "max(until_ms - policy.catchup_window_s * 1000 - 1, done_ms)",
                "done_ms",
            ),
        ),
    ),
    SuiteBug(
        "ticks wait in a line without an end",
        Promise.BOUNDED_DATA,
        "tests/unit/core/rules/schedules/test_plan.py",
        (
            Edit(
                "core/rules/schedules/turns.py",
                "Buffer.HELD if len(self._buffered) < BUFFER_MAX else Buffer.FULL",
                "Buffer.HELD",
            ),
        ),
    ),
    SuiteBug(
        "a tick that is there is enqueued again",
        Promise.FENCED,
        "tests/store/contract/test_schedule_policies.py",
        (
            Edit(
                "store/sqlite/sql/ticks.sql",
                "ON CONFLICT (schedule, nominal_at_ms) DO NOTHING",
                "ON CONFLICT (schedule, nominal_at_ms)\n"
                "DO UPDATE SET stored_at_ms = excluded.stored_at_ms",
            ),
        ),
    ),
    SuiteBug(
        "a schedule goes on from the step, not from its last tick",
        Promise.DURABLE,
        "tests/store/contract/test_schedule_policies.py",
        (
            Edit(
                "store/operations/schedules/step.py",
                "last_at_ms=found.last_ms",
                "last_at_ms=now_ms",
            ),
        ),
    ),
    SuiteBug(
        "a tick is skipped for a job that has ended",
        Promise.DURABLE,
        "tests/store/contract/test_schedule_policies.py",
        (
            Edit(
                "store/statements/schedules.py",
                "progress = progress_of(known, attempt or 0)",
                "progress = Progress.RUNNING",
            ),
        ),
    ),
    SuiteBug(
        "a step waits for whoever holds a job",
        Promise.BOUNDED_PATHS,
        "tests/store/postgres/test_schedules.py",
        (
            Edit(
                "store/postgres/sql/ticks.sql",
                "ORDER BY j.id\nFOR UPDATE SKIP LOCKED",
                "ORDER BY j.id\nFOR UPDATE",
            ),
        ),
    ),
    SuiteBug(
        "older code retires what newer code declares",
        Promise.DURABLE,
        "tests/store/contract/test_schedule_keeping.py",
        (
            Edit(
                "store/operations/schedules/keeping.py",
                'if newest_version(known) == (version or ""):',
                "if known:",
            ),
        ),
    ),
    SuiteBug(
        "a job that ends does not let the next one of its text go",
        Promise.DURABLE,
        "tests/store/contract/test_debounce.py",
        (
            Edit(
                "store/sqlite/sql/migrations/008_fairness.sql",
                "  AND old.finished_at_ms IS NULL AND new.finished_at_ms IS NOT NULL\n",
                "  AND old.finished_at_ms IS NULL AND new.state = 'succeeded'\n",
            ),
        ),
    ),
    SuiteBug(
        "an update changes a job that has begun meanwhile",
        Promise.DURABLE,
        "tests/store/postgres/test_debounce_interleavings.py",
        (
            Edit(
                "store/postgres/sql/debounce.sql",
                "  AND j.state || '' IN ('pending', 'waiting', 'runnable')\n"
                "  AND j.attempt = 0 AND j.snoozes = 0 AND j.key IS NULL\n"
                "RETURNING",
                "RETURNING",
            ),
        ),
    ),
    SuiteBug(
        "producers of one text do not take turns",
        Promise.DURABLE,
        "tests/store/postgres/test_debounce_interleavings.py",
        (
            Edit(
                "store/postgres/store.py",
                '    _LOCK_TEXTS = "lock_texts"\n',
                "    _LOCK_TEXTS = None\n",
            ),
        ),
    ),
    SuiteBug(
        "a job that comes back leaves no note for its lane",
        Promise.QUOTAS,
        "tests/store/contract/quotas/test_interplay.py",
        (
            Edit(
                "store/sqlite/sql/migrations/007_features.sql",
                "AFTER UPDATE OF state, lane ON jobpool_jobs\n"
                "WHEN new.state = 'runnable' AND new.lane IS NOT NULL\n",
                "AFTER UPDATE OF state, lane ON jobpool_jobs\n"
                "WHEN new.state = 'pending' AND new.lane IS NOT NULL\n",
            ),
        ),
    ),
    SuiteBug(
        "a lane that was blocked is never opened again",
        Promise.QUOTAS,
        "tests/store/contract/quotas/test_caps.py",
        (
            Edit(
                "store/operations/quotas/claim.py",
                "            if self._buckets.may_go_on(bucket):\n",
                "            if bucket < 0:\n",
            ),
        ),
    ),
    SuiteBug(
        "what no client has stamped is leased past its quotas",
        Promise.QUOTAS,
        "tests/store/contract/quotas/test_caps.py",
        (
            Edit(
                "store/operations/quotas/leasing.py",
                "        return Split(*(_where(known, asked, laned=laned) "
                "for laned in (False, True)))\n",
                "        return Split(asked, _where(known, asked, laned=True))\n",
            ),
        ),
    ),
    SuiteBug(
        "permits of the living are swept",
        Promise.QUOTAS,
        "tests/store/contract/quotas/test_caps.py",
        (
            Edit(
                "store/sqlite/sql/buckets.sql",
                "        j.token = jobpool_permits.token\n",
                "        j.token > jobpool_permits.token\n",
            ),
        ),
    ),
    SuiteBug(
        "the first start of a claim sets the clock of shares",
        Promise.SHARES,
        "tests/unit/core/rules/quotas/test_shares.py",
        (
            Edit(
                "core/rules/quotas/shares.py",
                "    return share.vtime + (starts - 1) / share.weight\n",
                "    return share.vtime\n",
            ),
        ),
    ),
    SuiteBug(
        "what never began has cost its share a start",
        Promise.SHARES,
        "tests/store/contract/fairness/test_shares.py",
        (
            Edit(
                "store/memory/quotas/shares.py",
                "        step = 1 / rules",
                "        step = 0 / rules",
            ),
        ),
    ),
    SuiteBug(
        "a lane that opens leaves no note for its share",
        Promise.SHARES,
        "tests/store/contract/fairness/test_shares.py",
        (
            Edit(
                "store/sqlite/sql/migrations/008_fairness.sql",
                "  AND NOT (old.waits = 1 AND old.open_at_ms = 0",
                "  AND 1 = 0 AND NOT (old.waits = 1 AND old.open_at_ms = 0",
            ),
        ),
    ),
    SuiteBug(
        "a full quota lets those go first who came first",
        Promise.SHARES,
        "tests/store/contract/fairness/test_shares.py",
        (
            Edit(
                "store/sqlite/sql/lanes.sql",
                "  WHERE blocked_by = :bucket AND turn IS NOT NULL\n",
                "  WHERE blocked_by = :bucket AND turn IS NULL\n",
            ),
        ),
    ),
    SuiteBug(
        "a start costs its share nothing in a database",
        Promise.SHARES,
        "tests/store/contract/fairness/test_shares.py",
        (
            Edit(
                "store/operations/quotas/shares.py",
                "self._clock(one), count / weights[one])",
                "self._clock(one), 0 * count / weights[one])",
            ),
        ),
    ),
    SuiteBug(
        "what has risen is leased as the turns of lanes come",
        Promise.SHARES,
        "tests/store/contract/fairness/test_aging.py",
        (
            Edit(
                "store/operations/quotas/shares.py",
                "        return self._rules.aging_ms(pool) > 0\n",
                "        return self._rules.aging_ms(pool) < 0\n",
            ),
        ),
    ),
    SuiteBug(
        "what is leased ahead may take all permits",
        Promise.QUOTAS,
        "tests/unit/core/rules/quotas/test_allot.py",
        (
            Edit(
                "core/rules/quotas/allot.py",
                "{bucket: free // 2 for bucket, free in room.items()}",
                "dict(room)",
            ),
        ),
    ),
    SuiteBug(
        "what a rate counts may begin at any time",
        Promise.QUOTAS,
        "tests/unit/supervisor/machine/dispatch/test_rates.py",
        (
            Edit(
                "supervisor/machine/dispatch/dispatcher.py",
                "            else self._asked_s + lease.begin_within_s,\n",
                "            else NEVER_S,\n",
            ),
        ),
    ),
    SuiteBug(
        "what never began comes back to its rate twice",
        Promise.QUOTAS,
        "tests/unit/core/rules/quotas/test_gcra.py",
        (
            Edit(
                "core/rules/quotas/gcra.py",
                "math.floor(cost * pace.interval_us) - away_us",
                "math.floor(2 * cost * pace.interval_us) - away_us",
            ),
        ),
    ),
    SuiteBug(
        "a suspect passes its quotas",
        Promise.QUOTAS,
        "tests/store/contract/quotas/test_interplay.py",
        (
            Edit(
                "store/operations/quotas/leasing.py",
                "            if found is None or not found.most:\n",
                "            if found is None:\n",
            ),
        ),
    ),
    SuiteBug(
        "a permit of an outage is used after it",
        Promise.QUOTAS,
        "tests/unit/supervisor/machine/attempts/test_permits.py",
        (
            Edit(
                "supervisor/machine/attempts/permits.py",
                "return has_rate and now_s - asked.sent_s > DELAY_MAX_S",
                "return has_rate and now_s < asked.sent_s",
            ),
        ),
    ),
    SuiteBug(
        "what is full takes one more",
        Promise.BOUNDED_DATA,
        "tests/property/test_admission.py",
        (
            Edit(
                "core/rules/admission.py",
                "            room = max(0, bound.depth_max - seen.waiting)\n",
                "            room = max(1, bound.depth_max - seen.waiting)\n",
            ),
        ),
    ),
    SuiteBug(
        "a job that has waited too long makes nothing full",
        Promise.BOUNDED_DATA,
        "tests/property/test_admission.py",
        (
            Edit(
                "core/rules/admission.py",
                "            if is_too_old(seen, bound):\n                room = 0\n",
                "            if is_too_old(seen, bound):\n                room += 0\n",
            ),
        ),
    ),
    SuiteBug(
        "when to come back minds nothing that holds jobs",
        Promise.BOUNDED_DATA,
        "tests/store/contract/test_admission.py",
        (
            Edit(
                "store/operations/producers/sight.py",
                "        return Outlook(ends, (held_ms or 0) / 1000)\n",
                "        return Outlook(ends)\n",
            ),
        ),
    ),
    SuiteBug(
        "a lane that waits for a time holds nothing, as producers see it",
        Promise.BOUNDED_DATA,
        "tests/store/contract/test_admission.py",
        (
            Edit(
                "store/sqlite/sql/admission.sql",
                "  WHERE l.pool = :pool AND l.kind = :kind "
                "AND (:tenant IS NULL OR l.tenant = :tenant)\n",
                "  WHERE l.pool IS NULL\n",
            ),
        ),
    ),
    SuiteBug(
        "failures of requests are not reported",
        Promise.QUOTAS,
        "tests/unit/supervisor/machine/attempts/test_permits.py",
        (
            Edit(
                "supervisor/machine/attempts/requests.py",
                "failures + frame.failed",
                "failures",
            ),
        ),
    ),
    SuiteBug(
        "whoever answers decides for the probe",
        Promise.QUOTAS,
        "tests/unit/core/rules/quotas/test_breaker.py",
        (
            Edit(
                "core/rules/quotas/breaker.py",
                "(0, 0) if token is None else counts.get(token, (0, 0))",
                "next(iter(counts.values()), (0, 0))",
            ),
        ),
    ),
    SuiteBug(
        "what a supervisor that ends has heard of requests is lost",
        Promise.QUOTAS,
        "tests/unit/supervisor/machine/attempts/test_permits.py",
        (
            Edit(
                "supervisor/machine/attempts/requests.py",
                "self._due_s <= self._step.now_s or (self._sums and self._step.ending)",
                "self._due_s <= self._step.now_s and not self._step.ending",
            ),
        ),
    ),
    SuiteBug(
        "a report whose commit failed is lost",
        Promise.BOUNDED_DATA,
        "tests/unit/supervisor/storage/test_reports.py",
        (
            Edit(
                "supervisor/storage/reports.py",
                "            store.put_report(run_id, self._report)\n"
                "        return self._report\n",
                "            store.put_report(run_id, self._report)\n"
                "        report, self._report = self._report, None\n"
                "        return report\n",
            ),
        ),
    ),
    SuiteBug(
        "a report is written whenever any figure moves",
        Promise.BOUNDED_DATA,
        "tests/unit/supervisor/storage/test_reports.py",
        (
            Edit(
                "core/rules/run_report.py",
                "abs(one.cpu_busy - other.cpu_busy) > CPU_STEP",
                "one.cpu_busy != other.cpu_busy",
            ),
        ),
    ),
    SuiteBug(
        "a report is kept after its run",
        Promise.BOUNDED_DATA,
        "tests/store/contract/test_reports.py",
        (
            Edit(
                "store/sqlite/sql/reports.sql",
                "WHERE r.ended_at_ms IS NULL\nORDER BY r.started_at_ms, r.id\n",
                "ORDER BY r.started_at_ms, r.id\n",
            ),
        ),
    ),
    *FLOW_BUGS,
    *ALERT_BUGS,
)


def is_seen(bug: SuiteBug) -> bool:
    """Run the tests with a bug planted; say whether any of them fails.

    Raises:
        RuntimeError: they could not be run.
    """
    with sown(bug.edits) as environment:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *QUIETLY, bug.tests],
            cwd=TOP,
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
    if run.returncode not in {0, FAILED}:
        raise RuntimeError(f"{bug.name}: {bug.tests} cannot be run: {run.stdout}")
    return run.returncode == FAILED
