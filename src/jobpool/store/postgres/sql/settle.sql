-- Settling leases, and heartbeats: every statement is guarded by the token. Rows are
-- found by their id: `state || ''` keeps the planner from using the guard to scan the
-- index of that state, which stale statistics may report as empty.

-- name: succeed_jobs
-- Plain successes, the usual end, in one statement: no charge and no message.
-- :rows holds [id, token, peak RSS, CPU, duration, slot, when it began, when it ended,
-- result first, length]; null: the beginning is unknown.
-- Returns the ids that it has settled; the others are for settle_jobs.
WITH held AS MATERIALIZED (
  SELECT
    j.id,
    (ended.value ->> 2)::bigint AS peak_rss_bytes,
    (ended.value ->> 3)::double precision AS cpu_s,
    (ended.value ->> 4)::double precision AS duration_s,
    ended.value ->> 5 AS slot,
    (ended.value ->> 6)::bigint AS began_at_ms,
    (ended.value ->> 7)::bigint AS ended_at_ms,
    (ended.value ->> 8)::integer AS result_first,
    (ended.value ->> 9)::integer AS result_length
  FROM jsonb_array_elements(%(rows)s::jsonb) AS ended
  JOIN jobpool.jobs AS j ON j.id = (ended.value ->> 0)::bigint
  WHERE j.state || '' = 'leased' AND j.token = (ended.value ->> 1)::bigint
  FOR UPDATE OF j SKIP LOCKED
)
UPDATE jobpool.jobs AS j
SET
  state = 'succeeded',
  outcome = 'succeeded',
  finished_at_ms = held.ended_at_ms,
  started_at_ms = CASE
    WHEN held.began_at_ms IS NULL THEN coalesce(j.started_at_ms, j.leased_at_ms)
    ELSE greatest(held.began_at_ms, j.leased_at_ms)
  END,
  reason = NULL,
  error_class = NULL,
  error = NULL,
  peak_rss_bytes = held.peak_rss_bytes,
  cpu_s = held.cpu_s,
  duration_s = held.duration_s,
  slot = coalesce(held.slot, j.slot),
  result = CASE
    WHEN held.result_length IS NULL THEN j.result
    ELSE substr(%(blobs)s::bytea, held.result_first, held.result_length)
  END,
  token = NULL,
  supervisor = NULL,
  leased_at_ms = NULL,
  cancel_requested = false
FROM held
WHERE j.id = held.id
RETURNING j.id

-- name: hold_leases
-- :rows holds [id, token]. Returns which may be settled (1), and which their own
-- handler's transaction has already completed (2). The locks keep the answers true until
-- the commit. The others are stale, or locked by another open transaction.
SELECT j.id, CASE WHEN j.token = wanted.token THEN 1 ELSE 2 END
FROM (
  SELECT (value ->> 0)::bigint AS id, (value ->> 1)::bigint AS token
  FROM jsonb_array_elements(%(rows)s::jsonb)
) AS wanted
JOIN jobpool.jobs AS j ON j.id = wanted.id
WHERE (j.state || '' = 'leased' AND j.token = wanted.token)
  OR (j.state || '' = 'succeeded' AND j.completed_token = wanted.token)
FOR UPDATE OF j SKIP LOCKED

-- name: held_elsewhere
-- :rows holds [id, token] of what hold_leases did not return. Returns which of these
-- another open transaction holds: they must not block the other settlements.
SELECT j.id
FROM (
  SELECT (value ->> 0)::bigint AS id, (value ->> 1)::bigint AS token
  FROM jsonb_array_elements(%(rows)s::jsonb)
) AS wanted
JOIN jobpool.jobs AS j ON j.id = wanted.id
WHERE (j.state || '' = 'leased' AND j.token = wanted.token)
  OR (j.state || '' = 'succeeded' AND j.completed_token = wanted.token)

-- name: note_completed
-- The measurements of an attempt whose handler has completed its job itself.
UPDATE jobpool.jobs AS j
SET
  peak_rss_bytes = (ended.value ->> 12)::bigint,
  cpu_s = (ended.value ->> 13)::double precision,
  duration_s = (ended.value ->> 14)::double precision,
  slot = coalesce(ended.value ->> 15, j.slot),
  started_at_ms = CASE
    WHEN ended.value ->> 16 IS NULL THEN j.started_at_ms
    ELSE least((ended.value ->> 16)::bigint, j.finished_at_ms)
  END
FROM jsonb_array_elements(%(rows)s::jsonb) AS ended
WHERE j.id = (ended.value ->> 0)::bigint
  AND j.completed_token = (ended.value ->> 1)::bigint

-- name: complete_job
-- On a handler's own connection, within its transaction; no row: superseded.
UPDATE jobpool.jobs
SET
  state = 'succeeded',
  outcome = 'succeeded',
  completed_token = token,
  finished_at_ms = coalesce(
    %(now_ms)s::bigint,
    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
  ),
  started_at_ms = coalesce(started_at_ms, leased_at_ms),
  reason = NULL,
  error_class = NULL,
  error = NULL,
  token = NULL,
  supervisor = NULL,
  leased_at_ms = NULL,
  cancel_requested = false
WHERE id = %(id)s AND token = %(token)s AND state || '' = 'leased'
RETURNING id

-- name: store_result
-- Its result, unless it is null.
UPDATE jobpool.jobs SET result = %(result)s WHERE id = %(id)s

-- name: insert_attempts
-- Before settle_jobs, while the jobs still name their supervisor, whose application ran
-- the attempt unless :rows says otherwise.
INSERT INTO jobpool.attempts (
  job_id, attempt, token, outcome, rule, reason, error_class, error, traceback,
  signal, exit_code, peak_rss_bytes, cpu_s, duration_s, output, stack,
  supervisor, slot, started_at_ms, finished_at_ms, app_version, memory_trail
)
SELECT
  j.id,
  j.attempt,
  j.token,
  ended.value ->> 2,
  ended.value ->> 3,
  ended.value ->> 4,
  ended.value ->> 5,
  ended.value ->> 6,
  ended.value ->> 7,
  (ended.value ->> 8)::integer,
  (ended.value ->> 9)::integer,
  (ended.value ->> 10)::bigint,
  (ended.value ->> 11)::double precision,
  (ended.value ->> 12)::double precision,
  ended.value ->> 13,
  ended.value ->> 14,
  j.supervisor,
  coalesce(ended.value ->> 15, j.slot),
  CASE
    WHEN ended.value ->> 16 IS NULL THEN coalesce(j.started_at_ms, j.leased_at_ms)
    ELSE greatest((ended.value ->> 16)::bigint, j.leased_at_ms)
  END,
  (ended.value ->> 17)::bigint,
  coalesce(
    ended.value ->> 18,
    (SELECT r.app_version FROM jobpool.runs AS r WHERE r.id = j.supervisor)
  ),
  ended.value ->> 19
FROM jsonb_array_elements(%(rows)s::jsonb) AS ended
JOIN jobpool.jobs AS j ON j.id = (ended.value ->> 0)::bigint
WHERE j.token = (ended.value ->> 1)::bigint
  AND j.state || '' = 'leased'

-- name: settle_jobs
-- An attempt that never began (outcome NULL) leaves no trace; a snooze leaves a count
-- and a reason, until an attempt is retried. A job whose cancellation was requested does
-- not wait for another attempt. Counters stop at 2^31 - 1: whatever another program has
-- written there, the settlement is stored. The result, if any, is within :blobs.
UPDATE jobpool.jobs AS j
SET
  state = CASE
    WHEN j.cancel_requested AND ended.state IN ('pending', 'runnable')
      THEN 'canceled'
    ELSE ended.state
  END,
  finished_at_ms = CASE
    WHEN NOT j.cancel_requested AND ended.state IN ('pending', 'runnable')
      THEN NULL
    ELSE ended.ended_at_ms
  END,
  run_at_ms = CASE ended.state
    WHEN 'pending'
      THEN least(%(now_ms)s::bigint + ended.delay_ms, 253402300799000)
    ELSE j.run_at_ms
  END,
  attempt = greatest(
    (ended.outcome IS NOT NULL)::integer,
    j.attempt - (ended.outcome IS NULL)::integer
  ),
  failures = least(j.failures::bigint + ended.failure, 2147483647)::integer,
  crashes = least(j.crashes::bigint + ended.crash, 2147483647)::integer,
  interruptions = least(
    j.interruptions::bigint + ended.interruption, 2147483647
  )::integer,
  recoveries = least(j.recoveries::bigint + ended.recovery, 2147483647)::integer,
  snoozes = CASE
    WHEN ended.outcome IS NOT NULL AND ended.state IN ('pending', 'runnable')
      THEN 0
    ELSE least(j.snoozes::bigint + ended.snooze, 2147483647)::integer
  END,
  snoozed_since_ms = CASE
    WHEN ended.outcome IS NOT NULL AND ended.state IN ('pending', 'runnable')
      THEN NULL
    WHEN ended.snooze = 1 THEN coalesce(j.snoozed_since_ms, %(now_ms)s::bigint)
    ELSE j.snoozed_since_ms
  END,
  throttled = CASE
    WHEN ended.outcome IS NULL THEN coalesce(ended.throttled, j.throttled)
  END,
  started_at_ms = CASE
    WHEN ended.outcome IS NULL THEN j.started_at_ms
    WHEN ended.began_at_ms IS NULL THEN coalesce(j.started_at_ms, j.leased_at_ms)
    ELSE greatest(ended.began_at_ms, j.leased_at_ms)
  END,
  outcome = coalesce(ended.outcome, j.outcome),
  reason = CASE
    WHEN ended.outcome IS NULL AND ended.reason IS NULL THEN j.reason
    ELSE ended.reason
  END,
  error_class = CASE
    WHEN ended.outcome IS NULL THEN j.error_class
    ELSE ended.error_class
  END,
  error = CASE WHEN ended.outcome IS NULL THEN j.error ELSE ended.error END,
  peak_rss_bytes = CASE
    WHEN ended.outcome IS NULL THEN j.peak_rss_bytes
    ELSE ended.peak_rss_bytes
  END,
  cpu_s = CASE WHEN ended.outcome IS NULL THEN j.cpu_s ELSE ended.cpu_s END,
  duration_s = CASE
    WHEN ended.outcome IS NULL THEN j.duration_s
    ELSE ended.duration_s
  END,
  slot = coalesce(ended.slot, j.slot),
  result = CASE
    WHEN ended.result_length IS NULL THEN j.result
    ELSE substr(%(blobs)s::bytea, ended.result_first, ended.result_length)
  END,
  token = NULL,
  supervisor = NULL,
  leased_at_ms = NULL,
  cancel_requested = false
FROM (
  SELECT
    (value ->> 0)::bigint AS id,
    (value ->> 1)::bigint AS token,
    value ->> 2 AS state,
    value ->> 3 AS outcome,
    (value ->> 4)::bigint AS failure,
    (value ->> 5)::bigint AS crash,
    (value ->> 6)::bigint AS interruption,
    (value ->> 7)::bigint AS recovery,
    (value ->> 8)::bigint AS delay_ms,
    value ->> 9 AS reason,
    value ->> 10 AS error_class,
    value ->> 11 AS error,
    (value ->> 12)::bigint AS peak_rss_bytes,
    (value ->> 13)::double precision AS cpu_s,
    (value ->> 14)::double precision AS duration_s,
    value ->> 15 AS slot,
    (value ->> 16)::bigint AS began_at_ms,
    (value ->> 17)::bigint AS ended_at_ms,
    (value ->> 18)::integer AS snooze,
    value ->> 19 AS throttled,
    (value ->> 20)::integer AS result_first,
    (value ->> 21)::integer AS result_length
  FROM jsonb_array_elements(%(rows)s::jsonb)
) AS ended
WHERE j.id = ended.id
  AND j.token = ended.token
  AND j.state || '' = 'leased'

-- name: join_retries
-- :ids of jobs that are retried: they wait in the lanes of retries.
UPDATE jobpool.jobs
SET lane = -lane
WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  AND lane > 0 AND state || '' IN ('pending', 'runnable')

-- name: keep_outputs
-- :rows holds [id, KiB, output, when it ended] of jobs that have succeeded, in order.
INSERT INTO jobpool.outputs (job_id, attempt, place, output, at_ms)
SELECT
  j.id,
  j.attempt,
  (
    SELECT max(nextval('jobpool.output_places'))
    FROM generate_series(1, (kept.value ->> 1)::integer)
  ),
  kept.value ->> 2,
  (kept.value ->> 3)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb) AS kept
JOIN jobpool.jobs AS j ON j.id = (kept.value ->> 0)::bigint
ON CONFLICT (job_id) DO UPDATE SET
  attempt = excluded.attempt,
  place = excluded.place,
  output = excluded.output,
  at_ms = excluded.at_ms,
  dropped_at_ms = NULL

-- name: count_stale
-- Settlements under a superseded token, up to 2^53, so that it never fails.
UPDATE jobpool.meta
SET value = least(value + %(stale)s, 9007199254740992)
WHERE name = 'stale_settlements'

-- name: record_beats
-- :rows holds [id, token, progress first, length, checkpoint first, length]. Jobs that
-- their handler's open transaction holds are skipped.
WITH beat AS MATERIALIZED (
  SELECT
    (value ->> 0)::bigint AS id,
    (value ->> 1)::bigint AS token,
    (value ->> 2)::integer AS progress_first,
    (value ->> 3)::integer AS progress_length,
    (value ->> 4)::integer AS checkpoint_first,
    (value ->> 5)::integer AS checkpoint_length
  FROM jsonb_array_elements(%(rows)s::jsonb)
),
held AS MATERIALIZED (
  SELECT beat.*
  FROM beat
  JOIN jobpool.jobs AS j ON j.id = beat.id
  WHERE j.token = beat.token AND j.state || '' = 'leased'
  FOR UPDATE OF j SKIP LOCKED
)
UPDATE jobpool.jobs AS j
SET
  last_heartbeat_at_ms = %(now_ms)s,
  progress = CASE
    WHEN held.progress_length IS NULL THEN j.progress
    ELSE substr(%(blobs)s::bytea, held.progress_first, held.progress_length)
  END,
  checkpoint = CASE
    WHEN held.checkpoint_length IS NULL THEN j.checkpoint
    ELSE substr(%(blobs)s::bytea, held.checkpoint_first, held.checkpoint_length)
  END
FROM held
WHERE j.id = held.id

-- name: show_running
-- :rows holds [id, token, RSS, output]; null keeps the value stored under this token.
INSERT INTO jobpool.running AS n (job_id, token, updated_at_ms, rss_bytes, output)
SELECT
  j.id,
  j.token,
  %(now_ms)s,
  (seen.value ->> 2)::bigint,
  seen.value ->> 3
FROM jsonb_array_elements(%(rows)s::jsonb) AS seen
JOIN jobpool.jobs AS j ON j.id = (seen.value ->> 0)::bigint
WHERE j.token = (seen.value ->> 1)::bigint AND j.state || '' = 'leased'
ON CONFLICT (job_id) DO UPDATE SET
  token = excluded.token,
  updated_at_ms = excluded.updated_at_ms,
  rss_bytes = coalesce(
    excluded.rss_bytes, CASE WHEN n.token = excluded.token THEN n.rss_bytes END
  ),
  output = coalesce(
    excluded.output, CASE WHEN n.token = excluded.token THEN n.output END
  )

-- name: begin_attempts
-- :rows holds [id, token, slot, when].
WITH begun AS MATERIALIZED (
  SELECT
    (value ->> 0)::bigint AS id,
    (value ->> 1)::bigint AS token,
    value ->> 2 AS slot,
    (value ->> 3)::bigint AS began_at_ms
  FROM jsonb_array_elements(%(rows)s::jsonb)
),
held AS MATERIALIZED (
  SELECT begun.*
  FROM begun
  JOIN jobpool.jobs AS j ON j.id = begun.id
  WHERE j.token = begun.token AND j.state || '' = 'leased'
  FOR UPDATE OF j SKIP LOCKED
)
UPDATE jobpool.jobs AS j
SET started_at_ms = greatest(held.began_at_ms, j.leased_at_ms), slot = held.slot
FROM held
WHERE j.id = held.id
