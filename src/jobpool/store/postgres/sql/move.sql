-- The target of a move: jobs are staged in chunks, then published all at once.

-- name: move_unbounded
-- The last transaction may be long, but it must not wait long for locks. It scans whole
-- tables, which the settings of `begun` discourage.
SELECT
  set_config('statement_timeout', '0', true),
  set_config('idle_in_transaction_session_timeout', '0', true),
  set_config('enable_seqscan', 'on', true),
  set_config('enable_bitmapscan', 'on', true),
  set_config('enable_hashjoin', 'on', true),
  set_config('enable_mergejoin', 'on', true)

-- name: move_stage_notes
-- The source whose jobs are staged.
CREATE TABLE IF NOT EXISTS jobpool.moving (id bigint NOT NULL, source text NOT NULL)

-- name: move_stage_jobs
-- Without indexes and defaults.
CREATE TABLE IF NOT EXISTS jobpool.moving_jobs (LIKE jobpool.jobs)

-- name: move_stage_attempts
-- The id is the source's.
CREATE TABLE IF NOT EXISTS jobpool.moving_attempts (LIKE jobpool.attempts)

-- name: move_note
-- The source whose jobs are staged.
SELECT id, source FROM jobpool.moving

-- name: move_write_note
-- Once, when staging begins.
INSERT INTO jobpool.moving (id, source) VALUES (%(id)s, %(source)s)

-- name: move_unstage
-- The move has ended or was abandoned.
DROP TABLE IF EXISTS jobpool.moving, jobpool.moving_jobs, jobpool.moving_attempts

-- name: move_lock
-- One move at a time into a schema; released with the transaction.
SELECT pg_advisory_xact_lock(1785684593, hashtext(%(schema)s::text))

-- name: move_staged_to
-- Where to continue.
SELECT coalesce(max(id), -9223372036854775808) FROM jobpool.moving_jobs

-- name: move_stage_job
-- One row of a chunk.
INSERT INTO jobpool.moving_jobs (
  cancel_requested,
  id, kind, pool, state, priority, key, unique_text, tenant, payload, max_attempts,
  timeout_s, memory_bytes, attempt, reset_attempt, failures, crashes,
  interruptions, recoveries, created_at_ms, run_at_ms, expires_at_ms,
  finished_at_ms, completed_token, slot, started_at_ms, last_heartbeat_at_ms,
  outcome, reason, error_class, error, duration_s, cpu_s, peak_rss_bytes, progress,
  checkpoint, snoozes, snoozed_since_ms, codec, result
)
VALUES (
  false,
  %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
  %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
)

-- name: move_stage_attempt
-- One row of a chunk.
INSERT INTO jobpool.moving_attempts (
  id, job_id, attempt, token, outcome, rule, reason, error_class, error, traceback,
  signal, exit_code, peak_rss_bytes, cpu_s, duration_s, output, stack, supervisor,
  slot, started_at_ms, finished_at_ms, app_version, memory_trail
)
VALUES (
  %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
  %s, %s, %s
)

-- name: move_collisions
-- Jobs of the target with the id, key or unique text of a staged job.
SELECT count(*)
FROM jobpool.moving_jobs AS m
WHERE EXISTS (SELECT 1 FROM jobpool.jobs AS j WHERE j.id = m.id)
  OR EXISTS (
    SELECT 1 FROM jobpool.jobs AS j
    WHERE j.key IS NOT NULL AND j.kind = m.kind AND j.key = m.key
  )
  OR (
    m.finished_at_ms IS NULL
    AND EXISTS (
      SELECT 1 FROM jobpool.jobs AS j
      WHERE j.unique_text IS NOT NULL AND j.finished_at_ms IS NULL
        AND j.kind = m.kind AND j.unique_text = m.unique_text
    )
  )

-- name: move_take_jobs
-- All at once.
INSERT INTO jobpool.jobs (
  id, kind, pool, state, priority, key, unique_text, tenant, payload, max_attempts,
  timeout_s, memory_bytes, attempt, reset_attempt, failures, crashes,
  interruptions, recoveries, created_at_ms, run_at_ms, expires_at_ms,
  finished_at_ms, completed_token, slot, started_at_ms, last_heartbeat_at_ms,
  outcome, reason, error_class, error, duration_s, cpu_s, peak_rss_bytes, progress,
  checkpoint, snoozes, snoozed_since_ms, codec, result
)
SELECT
  id, kind, pool, state, priority, key, unique_text, tenant, payload, max_attempts,
  timeout_s, memory_bytes, attempt, reset_attempt, failures, crashes,
  interruptions, recoveries, created_at_ms, run_at_ms, expires_at_ms,
  finished_at_ms, completed_token, slot, started_at_ms, last_heartbeat_at_ms,
  outcome, reason, error_class, error, duration_s, cpu_s, peak_rss_bytes, progress,
  checkpoint, snoozes, snoozed_since_ms, codec, result
FROM jobpool.moving_jobs
ORDER BY id

-- name: move_take_job_later
-- What few jobs use.
UPDATE jobpool.jobs
SET
  tick = %s,
  trace = %s,
  replays = %s,
  replaced_by = %s,
  quota_values = %s,
  throttled = %s,
  step = %s,
  generation = %s,
  added_by = %s,
  solo = %s
WHERE id = %s

-- name: move_taken_jobs_later
-- As the queue holds it now.
SELECT
  j.id, j.tick, j.trace, j.replays, j.replaced_by, j.quota_values, j.throttled, j.step,
  j.generation, j.added_by, j.solo
FROM jobpool.jobs AS j
JOIN jobpool.moving_jobs AS m ON m.id = j.id
WHERE j.id > %(after)s AND j.id <= %(last)s
  AND num_nonnulls(
    j.tick, j.trace, j.replays, j.replaced_by, j.quota_values, j.throttled, j.step,
    j.generation, j.added_by, j.solo
  ) > 0
ORDER BY j.id

-- name: move_take_attempts
-- New ids, in the old order, which is the order of a job's history.
INSERT INTO jobpool.attempts (
  job_id, attempt, token, outcome, rule, reason, error_class, error, traceback,
  signal, exit_code, peak_rss_bytes, cpu_s, duration_s, output, stack, supervisor,
  slot, started_at_ms, finished_at_ms, app_version, memory_trail
)
SELECT
  job_id, attempt, token, outcome, rule, reason, error_class, error, traceback,
  signal, exit_code, peak_rss_bytes, cpu_s, duration_s, output, stack, supervisor,
  slot, started_at_ms, finished_at_ms, app_version, memory_trail
FROM jobpool.moving_attempts
ORDER BY id

-- name: move_take_output
-- What a successful attempt has written.
INSERT INTO jobpool.outputs (job_id, attempt, at_ms, output, dropped_at_ms, place)
SELECT
  kept.*,
  (
    SELECT max(nextval('jobpool.output_places'))
    FROM generate_series(1, (octet_length(kept.output) + 1023) / 1024)
  )
FROM (
  VALUES (%s::bigint, %s::bigint, %s::bigint, %s::text, %s::bigint)
) AS kept (job_id, attempt, at_ms, output, dropped_at_ms)

-- name: move_take_run
-- An ended run: its kinds are pruned with it.
INSERT INTO jobpool.runs (
  id, host, boot_id, pid, pid_namespace, version, pools, started_at_ms,
  heartbeat_at_ms, lease_until_ms, ended_at_ms, format, application, app_version,
  app_since_ms
)
VALUES (
  %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
)
ON CONFLICT DO NOTHING

-- name: move_take_kind
-- As published.
INSERT INTO jobpool.kinds (
  kind, run_id, pool, schema, timeout_s, memory_bytes, max_attempts, max_crashes,
  updated_at_ms, schema_digest, at_most_once, needs
)
VALUES (
  %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
)
ON CONFLICT DO NOTHING

-- name: move_take_pause
-- What is paused stays so.
INSERT INTO jobpool.pauses (what, name, since_ms, until_ms, who, note)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING

-- name: move_take_quota
-- What was set here stays so.
INSERT INTO jobpool.quotas (
  name, rate_permits, rate_per_s, burst, concurrency, until_ms, who, note, updated_at_ms
)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING

-- name: move_take_tenant
-- As above.
INSERT INTO jobpool.tenants (
  name, concurrency, rate_permits, rate_per_s, burst, weight, who, updated_at_ms
)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING

-- name: move_take_suspect
-- It may have killed its host: it runs alone here as well.
INSERT INTO jobpool.suspects (job_id, since_ms) VALUES (%s, %s)
ON CONFLICT DO NOTHING

-- name: move_take_misfit
-- Its arguments may fit no supervisor here either.
INSERT INTO jobpool.misfits (job_id, schema_digest, since_ms, until_ms)
VALUES (%s, %s, %s, %s)
ON CONFLICT DO NOTHING

-- name: move_take_debounced
-- One that waits for a job which was damaged, and ended, is let go by a supervisor.
INSERT INTO jobpool.debounced (
  job_id, kind, unique_text, waits, until_start, replacements, postponements
)
VALUES (%s, %s, %s, %s::integer::boolean, %s::integer::boolean, %s, %s)

-- name: move_take_audit
-- It follows what was done here.
INSERT INTO jobpool.audit (
  at_ms, who, role, origin, action, target, jobs, changed, note
)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: move_take_sketch
-- Counts are added up.
INSERT INTO jobpool.sketches (
  week, kind, pool, measure, bucket, attempts, censored
)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (week, kind, pool, measure, bucket) DO UPDATE
SET attempts = sketches.attempts + excluded.attempts,
  censored = sketches.censored + excluded.censored

-- name: move_has_schedules
-- Of its own.
SELECT EXISTS (SELECT 1 FROM jobpool.schedules)

-- name: move_take_schedule
-- Under its number.
INSERT INTO jobpool.schedules (
  id, name, application, app_version, kind, pool, payload, codec, tenant, priority,
  rule, options, updated_at_ms, since_ms, last_at_ms, last_end_ms, next_at_ms,
  planned_at_ms, waits, missed, retired_at_ms, paused_at_ms, paused_until_ms,
  paused_by, note
)
VALUES (
  %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
  %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
)

-- name: move_take_tick
-- Under its number.
INSERT INTO jobpool.ticks (
  id, schedule, nominal_at_ms, stored_at_ms, state, job_id, job_state, ended_at_ms,
  backfilled
)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::integer::boolean)

-- name: move_raise_schedules
-- Above the numbers that were moved.
SELECT setval(pg_get_serial_sequence('jobpool.schedules', 'id'), max(id))
FROM jobpool.schedules
HAVING max(id) IS NOT NULL

-- name: move_raise_ticks
-- As move_raise_schedules.
SELECT setval(pg_get_serial_sequence('jobpool.ticks', 'id'), max(id))
FROM jobpool.ticks
HAVING max(id) IS NOT NULL

-- name: move_has_flows
-- Of its own.
SELECT EXISTS (SELECT 1 FROM jobpool.flows)

-- name: move_take_flow
-- Under its number.
INSERT INTO jobpool.flows (
  id, name, key, tenant, state, failure, ending, generation, builder, created_at_ms,
  touched_at_ms, finished_at_ms, is_erased
)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::integer::boolean)

-- name: move_take_flow_step
-- Under its number.
INSERT INTO jobpool.steps (
  id, flow, number, name, state, hook, timeout_ms, until_ms, failed, is_external
)
VALUES (
  %s, %s, %s, %s, %s, %s, %s, %s, %s::integer::boolean, %s::integer::boolean
)

-- name: move_take_flow_edge
-- By the numbers of its steps.
INSERT INTO jobpool.edges (flow, from_step, to_step, when_ended)
VALUES (%s, %s, %s, %s)

-- name: move_note_flow_steps
-- Notes are not moved: every step that has not ended is looked at.
INSERT INTO jobpool.flow_notes (step)
SELECT id FROM jobpool.steps WHERE state IN ('closed', 'ready', 'skipping')

-- name: move_raise_flows
-- As move_raise_schedules.
SELECT setval(pg_get_serial_sequence('jobpool.flows', 'id'), max(id))
FROM jobpool.flows
HAVING max(id) IS NOT NULL

-- name: move_raise_flow_steps
-- As move_raise_schedules.
SELECT setval(pg_get_serial_sequence('jobpool.steps', 'id'), max(id))
FROM jobpool.steps
HAVING max(id) IS NOT NULL

-- name: move_take_meta
-- The moved jobs' refs stay valid.
INSERT INTO jobpool.meta (name, value) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: move_take_breaker
-- A breaker that the target already has is kept.
INSERT INTO jobpool.breakers (
  kind, state, crashes, last_job, next_at_ms, changed_at_ms
)
VALUES (
  %s, %s, %s, %s, %s, %s
)
ON CONFLICT DO NOTHING

-- name: move_raise_ids
-- Never lowered. Takes effect at once, even if the transaction is rolled back.
SELECT setval('jobpool.job_ids', %(last)s::bigint)
FROM jobpool.job_ids
WHERE last_value - (NOT is_called)::integer < %(last)s::bigint

-- name: raise_flow_ids
-- As move_raise_ids.
SELECT setval('jobpool.flows_id_seq', %(last)s::bigint)
FROM jobpool.flows_id_seq
WHERE last_value - (NOT is_called)::integer < %(last)s::bigint

-- name: move_raise_tokens
-- As move_raise_ids.
SELECT setval('jobpool.tokens', %(last)s::bigint)
FROM jobpool.tokens
WHERE last_value - (NOT is_called)::integer < %(last)s::bigint

-- name: move_taken_jobs
-- As the queue holds them now.
SELECT
  j.id, j.kind, j.pool, j.state, j.priority, j.key, j.unique_text, j.tenant,
  j.payload, j.max_attempts, j.timeout_s, j.memory_bytes, j.attempt,
  j.reset_attempt, j.failures, j.crashes, j.interruptions, j.recoveries,
  j.created_at_ms, j.run_at_ms, j.expires_at_ms, j.finished_at_ms,
  j.completed_token, j.slot, j.started_at_ms, j.last_heartbeat_at_ms, j.outcome,
  j.reason, j.error_class, j.error, j.duration_s, j.cpu_s, j.peak_rss_bytes,
  j.progress, j.checkpoint, j.snoozes, j.snoozed_since_ms, j.codec, j.result
FROM jobpool.jobs AS j
JOIN jobpool.moving_jobs AS m ON m.id = j.id
WHERE j.id > %(after)s AND j.id <= %(last)s
ORDER BY j.id

-- name: move_taken_attempts
-- As the history holds them now.
SELECT
  a.job_id, a.attempt, a.token, a.outcome, a.rule, a.reason, a.error_class,
  a.error, a.traceback, a.signal, a.exit_code, a.peak_rss_bytes, a.cpu_s,
  a.duration_s, a.output, a.stack, a.supervisor, a.slot, a.started_at_ms,
  a.finished_at_ms, a.app_version, a.memory_trail
FROM jobpool.attempts AS a
JOIN jobpool.moving_jobs AS m ON m.id = a.job_id
WHERE a.job_id > %(after)s AND a.job_id <= %(last)s
ORDER BY a.job_id, a.id

-- name: move_taken_outputs
-- As they are held now.
SELECT job_id, attempt, at_ms, output, dropped_at_ms
FROM jobpool.outputs
WHERE job_id > %(after)s AND job_id <= %(last)s
ORDER BY job_id

-- name: move_taken_states
-- For the count.
SELECT convert_to(j.state, 'UTF8'), count(*)
FROM jobpool.jobs AS j
JOIN jobpool.moving_jobs AS m ON m.id = j.id
GROUP BY j.state
ORDER BY j.state

-- name: move_index_staged
-- For the joins, with fresh statistics.
CREATE UNIQUE INDEX IF NOT EXISTS moving_jobs_id ON jobpool.moving_jobs (id)

-- name: move_analyze_staged
-- As above.
ANALYZE jobpool.moving_jobs

-- name: move_done
-- In the last transaction: records that this move is done.
INSERT INTO jobpool.meta (name, value) VALUES (%(name)s, %(jobs)s)
