-- The source of a move: closed for good, then read in chunks.

-- name: move_has_note
-- Whether a move has begun.
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'jobpool_moved'

-- name: move_make_note
-- step: 0 while it copies, 1 from just before its commit, 2 when it is done.
CREATE TABLE jobpool_moved (
  id INTEGER NOT NULL,
  address TEXT NOT NULL,
  step INTEGER NOT NULL
)

-- name: move_note
-- The move that has begun.
SELECT id, address, step FROM jobpool_moved

-- name: move_write_note
-- In one transaction with the triggers.
INSERT INTO jobpool_moved (id, address, step) VALUES (:id, :address, 0)

-- name: move_step
-- No row: the move was abandoned in the meantime.
UPDATE jobpool_moved SET step = :step WHERE id = :id

-- name: move_open_enqueue
-- The move was abandoned.
DROP TRIGGER jobpool_moved_enqueue

-- name: move_open_change
-- The move was abandoned.
DROP TRIGGER jobpool_moved_change

-- name: move_open_prune
-- The move was abandoned.
DROP TRIGGER jobpool_moved_prune

-- name: move_open_run
-- The move was abandoned.
DROP TRIGGER jobpool_moved_run

-- name: move_open_pause
-- The move was abandoned.
DROP TRIGGER jobpool_moved_pause

-- name: move_open_resume
-- The move was abandoned.
DROP TRIGGER jobpool_moved_resume

-- name: move_open_flow
-- The move was abandoned. One that an older version began has no such trigger.
DROP TRIGGER IF EXISTS jobpool_moved_flow

-- name: move_open_flow_change
-- As move_open_flow.
DROP TRIGGER IF EXISTS jobpool_moved_flow_change

-- name: move_drop_note
-- The move was abandoned.
DROP TABLE jobpool_moved

-- name: move_chunk_end
-- The last id of the next chunk: 1,000 jobs, or 32 MiB, or one job larger than that.
SELECT max(id)
FROM (
  SELECT
    id,
    row_number() OVER (ORDER BY id) AS place,
    sum(bytes) OVER (ORDER BY id) AS bytes
  FROM (
    SELECT
      j.id,
      coalesce(length(p.payload), 0)
      + coalesce(
        (
          SELECT length(w.result)
          FROM jobpool_whole_results AS w
          WHERE w.job_id = j.id
        ),
        0
      )
      + coalesce(length(j.checkpoint), 0)
      + coalesce(length(j.progress), 0) AS bytes
    FROM jobpool_jobs AS j
    LEFT JOIN jobpool_payloads AS p ON p.job_id = j.id
    WHERE j.id > :after
    ORDER BY j.id
    LIMIT :limit
  )
)
WHERE place = 1 OR bytes <= 33554432

-- name: move_jobs
-- Without the columns of the lease, which are NULL: no job is leased.
SELECT
  j.id, j.kind, j.pool, j.state, j.priority, j.key, j.unique_text, j.tenant,
  p.payload, j.max_attempts, j.timeout_s, j.memory_bytes, j.attempt,
  j.reset_attempt, j.failures, j.crashes, j.interruptions, j.recoveries,
  j.created_at_ms, j.run_at_ms, j.expires_at_ms, j.finished_at_ms,
  j.completed_token, j.slot, j.started_at_ms, j.last_heartbeat_at_ms, j.outcome,
  j.reason, j.error_class, j.error, j.duration_s, j.cpu_s, j.peak_rss_bytes,
  j.progress, j.checkpoint, j.snoozes, j.snoozed_since_ms, j.codec,
  (SELECT w.result FROM jobpool_whole_results AS w WHERE w.job_id = j.id) AS result
FROM jobpool_jobs AS j
LEFT JOIN jobpool_payloads AS p ON p.job_id = j.id
WHERE j.id > :after AND j.id <= :last
ORDER BY j.id

-- name: move_jobs_later
-- Of these jobs those that use the columns which most leave empty.
SELECT
  id, tick, trace, replays, replaced_by, quota_values, throttled, step, generation,
  added_by, solo
FROM jobpool_jobs
WHERE id > :after AND id <= :last
  AND coalesce(
    tick, trace, replays, replaced_by, quota_values, throttled, step, generation,
    added_by, solo
  ) IS NOT NULL
ORDER BY id

-- name: move_attempts
-- Of these jobs.
SELECT
  a.id, a.job_id, a.attempt, a.token, a.outcome, a.rule, a.reason, a.error_class,
  a.error, a.traceback, a.signal, a.exit_code, a.peak_rss_bytes, a.cpu_s,
  a.duration_s, a.output, a.stack, a.supervisor, a.slot, a.started_at_ms,
  a.finished_at_ms, a.app_version, a.memory_trail
FROM jobpool_jobs AS j
CROSS JOIN jobpool_attempts AS a ON a.job_id = j.id
WHERE j.id > :after AND j.id <= :last
ORDER BY a.job_id, a.id

-- name: move_outputs
-- What was written by successful attempts of these jobs.
SELECT o.job_id, o.attempt, o.at_ms, o.output, o.dropped_at_ms
FROM jobpool_outputs AS o
CROSS JOIN jobpool_jobs AS j ON j.id = o.job_id
WHERE o.job_id > :after AND o.job_id <= :last
ORDER BY o.job_id

-- name: move_runs
-- All of them have ended.
SELECT
  id, host, boot_id, pid, pid_namespace, version, pools, started_at_ms,
  heartbeat_at_ms, lease_until_ms, ended_at_ms, format, application, app_version,
  app_since_ms
FROM jobpool_runs

-- name: move_kinds
-- As published.
SELECT
  kind, run_id, pool, schema, timeout_s, memory_bytes, max_attempts, max_crashes,
  updated_at_ms, schema_digest, at_most_once, needs
FROM jobpool_kinds

-- name: move_suspects
-- Unfinished jobs that are suspects.
SELECT s.job_id, s.since_ms
FROM jobpool_suspects AS s
CROSS JOIN jobpool_jobs AS j ON j.id = s.job_id
WHERE +j.state IN ('pending', 'waiting', 'runnable')

-- name: move_misfits
-- Unfinished jobs whose arguments did not fit.
SELECT m.job_id, m.schema_digest, m.since_ms, m.until_ms
FROM jobpool_misfits AS m
CROSS JOIN jobpool_jobs AS j ON j.id = m.job_id
WHERE +j.state IN ('pending', 'waiting', 'runnable')

-- name: move_debounced
-- Jobs that share their unique texts with others.
SELECT d.job_id, d.kind, d.unique_text, d.waits, d.until_start, d.replacements,
  d.postponements
FROM jobpool_debounced AS d
CROSS JOIN jobpool_jobs AS j ON j.id = d.job_id

-- name: move_breakers
-- Kinds that crash in a row.
SELECT kind, state, crashes, last_job, next_at_ms, changed_at_ms
FROM jobpool_breakers

-- name: move_audit
-- In the order in which it was done.
SELECT at_ms, who, role, origin, action, target, jobs, changed, note
FROM jobpool_audit
ORDER BY id

-- name: move_sketches
-- Of all weeks.
SELECT week, kind, pool, measure, bucket, attempts, censored
FROM jobpool_sketches

-- name: move_schedules
-- With their numbers, by which their ticks name them.
SELECT
  id, name, application, app_version, kind, pool, payload, codec, tenant, priority,
  rule, options, updated_at_ms, since_ms, last_at_ms, last_end_ms, next_at_ms,
  planned_at_ms, waits, missed, retired_at_ms, paused_at_ms, paused_until_ms,
  paused_by, note
FROM jobpool_schedules

-- name: move_ticks
-- With their numbers, by which their jobs name them.
SELECT
  id, schedule, nominal_at_ms, stored_at_ms, state, job_id, job_state, ended_at_ms,
  backfilled
FROM jobpool_ticks

-- name: move_flows
-- With their numbers, by which their steps name them.
SELECT
  id, name, key, tenant, state, failure, ending, generation, builder, created_at_ms,
  touched_at_ms, finished_at_ms, is_erased
FROM jobpool_flows

-- name: move_flow_steps
-- With their numbers, by which edges and members name them.
SELECT
  id, flow, number, name, state, hook, timeout_ms, until_ms, failed, is_external
FROM jobpool_steps

-- name: move_flow_edges
-- By the numbers of their steps.
SELECT flow, from_step, to_step, when_ended FROM jobpool_edges

-- name: move_meta
-- So that refs stay valid, and what the queue demands of supervisors.
SELECT name, value
FROM jobpool_meta
WHERE name IN ('ref_key_high', 'ref_key_low', 'min_format', 'wanted_format')

-- name: move_states
-- For the count.
SELECT state, count(*) FROM jobpool_jobs GROUP BY state ORDER BY state

-- name: move_moment
-- About when the queue was closed; the same value each time.
SELECT coalesce(
  (
    SELECT max(ended_at_ms)
    FROM jobpool_runs
    WHERE typeof(ended_at_ms) = 'integer' AND ended_at_ms <= 253402300799000
  ),
  (
    SELECT max(created_at_ms)
    FROM (SELECT created_at_ms FROM jobpool_jobs ORDER BY id DESC LIMIT 1000)
    WHERE typeof(created_at_ms) = 'integer'
      AND created_at_ms BETWEEN 0 AND 253402300799000
  ),
  0
)

-- name: move_last_id
-- The highest id ever given out; ids too high to be jobpool's are ignored.
SELECT max(id)
FROM (
  SELECT seq AS id FROM sqlite_sequence WHERE name = 'jobpool_jobs'
  UNION ALL
  SELECT max(id) FROM jobpool_jobs WHERE id < 4611686018427387904
)
WHERE typeof(id) = 'integer' AND id < 4611686018427387904
