-- Settling leases, and heartbeats: every statement is guarded by the token.

-- name: succeed_jobs
-- Plain successes, the usual end, in one statement: no charge and no message.
-- :rows holds [id, token, peak RSS, CPU, duration, slot, when it began, when it ended];
-- null: the beginning is unknown. The rows that it leaves out, such as those with damaged
-- counters, are for settle_jobs, which repairs them. It only counts rows: for RETURNING,
-- SQLite reads every column once more.
UPDATE jobpool_jobs
SET
  state = 'succeeded',
  outcome = 'succeeded',
  finished_at_ms = ended.ended_at_ms,
  started_at_ms = coalesce(
    max(ended.began_at_ms, leased_at_ms), started_at_ms, leased_at_ms
  ),
  reason = NULL,
  error_class = NULL,
  error = NULL,
  peak_rss_bytes = ended.peak_rss_bytes,
  cpu_s = ended.cpu_s,
  duration_s = ended.duration_s,
  slot = coalesce(ended.slot, jobpool_jobs.slot),
  token = NULL,
  supervisor = NULL,
  leased_at_ms = NULL,
  cancel_requested = 0
FROM (
  SELECT
    json_extract(value, '$[0]') AS id,
    json_extract(value, '$[1]') AS token,
    json_extract(value, '$[2]') AS peak_rss_bytes,
    json_extract(value, '$[3]') AS cpu_s,
    json_extract(value, '$[4]') AS duration_s,
    json_extract(value, '$[5]') AS slot,
    json_extract(value, '$[6]') AS began_at_ms,
    json_extract(value, '$[7]') AS ended_at_ms
  FROM json_each(:rows)
) AS ended
WHERE jobpool_jobs.id = ended.id
  AND jobpool_jobs.token = ended.token
  AND +jobpool_jobs.state = 'leased'
  AND attempt BETWEEN 1 AND 2147483647
  AND failures BETWEEN 0 AND 2147483647
  AND crashes BETWEEN 0 AND 2147483647
  AND interruptions BETWEEN 0 AND 2147483647
  AND recoveries BETWEEN 0 AND 2147483647

-- name: try_successes
-- Around succeed_jobs, which settles all of its rows or none.
SAVEPOINT successes

-- name: undo_successes
-- It has left rows out: none is settled.
ROLLBACK TO successes

-- name: end_successes
-- In either case.
RELEASE successes

-- name: hold_leases
-- :rows holds [id, token]. Returns which may be settled (1), and which their own
-- handler's transaction has already completed (2); the others are stale.
SELECT j.id, iif(+j.state = 'leased', 1, 2)
FROM json_each(:rows) AS wanted
CROSS JOIN jobpool_jobs AS j
WHERE j.id = json_extract(wanted.value, '$[0]')
  AND (
    (
      +j.state = 'leased'
      AND j.token = json_extract(wanted.value, '$[1]')
    )
    OR (
      +j.state = 'succeeded'
      AND j.completed_token = json_extract(wanted.value, '$[1]')
    )
  )

-- name: note_completed
-- The measurements of an attempt whose handler has completed its job itself.
UPDATE jobpool_jobs
SET
  peak_rss_bytes = ended.peak_rss_bytes,
  cpu_s = ended.cpu_s,
  duration_s = ended.duration_s,
  slot = coalesce(ended.slot, jobpool_jobs.slot),
  started_at_ms = coalesce(min(ended.began_at_ms, finished_at_ms), started_at_ms)
FROM (
  SELECT
    json_extract(value, '$[0]') AS id,
    json_extract(value, '$[1]') AS token,
    json_extract(value, '$[12]') AS peak_rss_bytes,
    json_extract(value, '$[13]') AS cpu_s,
    json_extract(value, '$[14]') AS duration_s,
    json_extract(value, '$[15]') AS slot,
    json_extract(value, '$[16]') AS began_at_ms
  FROM json_each(:rows)
) AS ended
WHERE jobpool_jobs.id = ended.id
  AND jobpool_jobs.completed_token = ended.token

-- name: complete_job
-- On a handler's own connection, within its transaction; no row: superseded.
UPDATE jobpool_jobs
SET
  state = 'succeeded',
  outcome = 'succeeded',
  completed_token = token,
  finished_at_ms = :now_ms,
  started_at_ms = coalesce(started_at_ms, leased_at_ms),
  reason = NULL,
  error_class = NULL,
  error = NULL,
  token = NULL,
  supervisor = NULL,
  leased_at_ms = NULL,
  cancel_requested = 0
WHERE id = :id AND token = :token AND +state = 'leased'
RETURNING +id

-- name: store_result
-- One job's result, unless null: it is copied fewer times than by insert_results.
INSERT OR REPLACE INTO jobpool_results (job_id, result) VALUES (:id, :result)

-- name: draft_parts
-- How many parts of a result a lease has stored.
SELECT parts FROM jobpool_result_drafts WHERE token = :token

-- name: encoding
-- The encoding of text in this file.
PRAGMA encoding

-- name: store_part
-- A part of the result that a lease will end with; no row: the lease is over.
INSERT OR REPLACE INTO jobpool_result_parts (job_id, token, place, part)
SELECT id, token, :place, :part
FROM jobpool_jobs
WHERE id = :id AND token = :token AND +state = 'leased'

-- name: note_draft
-- Records how many parts are stored.
INSERT OR REPLACE INTO jobpool_result_drafts (token, job_id, parts)
VALUES (:token, :id, :parts)

-- name: end_draft
-- No row: there are not that many parts.
DELETE FROM jobpool_result_drafts
WHERE token = :token AND job_id = :id AND parts = :parts

-- name: store_last_part
-- The others are stored already.
INSERT OR REPLACE INTO jobpool_results (job_id, result, parts_token, parts)
VALUES (:id, :result, :token, :parts)

-- name: drop_draft
-- The result is stored in one piece after all.
DELETE FROM jobpool_result_drafts WHERE token = :token

-- name: drop_draft_parts
-- Along with the draft.
DELETE FROM jobpool_result_parts WHERE job_id = :id AND token = :token

-- name: insert_attempts
-- Before settle_jobs, while the jobs still name their supervisor, whose application ran
-- the attempt unless :rows says otherwise.
INSERT INTO jobpool_attempts (
  job_id, attempt, token, outcome, rule, reason, error_class, error, traceback,
  signal, exit_code, peak_rss_bytes, cpu_s, duration_s, output, stack,
  supervisor, slot, started_at_ms, finished_at_ms, app_version, memory_trail
)
SELECT
  j.id,
  j.attempt,
  j.token,
  json_extract(ended.value, '$[2]'),
  json_extract(ended.value, '$[3]'),
  json_extract(ended.value, '$[4]'),
  json_extract(ended.value, '$[5]'),
  json_extract(ended.value, '$[6]'),
  json_extract(ended.value, '$[7]'),
  json_extract(ended.value, '$[8]'),
  json_extract(ended.value, '$[9]'),
  json_extract(ended.value, '$[10]'),
  json_extract(ended.value, '$[11]'),
  json_extract(ended.value, '$[12]'),
  json_extract(ended.value, '$[13]'),
  json_extract(ended.value, '$[14]'),
  j.supervisor,
  coalesce(json_extract(ended.value, '$[15]'), j.slot),
  coalesce(
    max(json_extract(ended.value, '$[16]'), j.leased_at_ms),
    j.started_at_ms,
    j.leased_at_ms
  ),
  json_extract(ended.value, '$[17]'),
  coalesce(
    json_extract(ended.value, '$[18]'),
    (SELECT r.app_version FROM jobpool_runs AS r WHERE r.id = j.supervisor)
  ),
  json_extract(ended.value, '$[19]')
FROM json_each(:rows) AS ended
CROSS JOIN jobpool_jobs AS j
WHERE j.id = json_extract(ended.value, '$[0]')
  AND j.token = json_extract(ended.value, '$[1]')
  AND +j.state = 'leased'

-- name: settle_jobs
-- An attempt that never began (outcome NULL) leaves no trace; a snooze leaves a count
-- and a reason, until an attempt is retried. A job whose cancellation was requested does
-- not wait for another attempt. Counters stop at 2^31 - 1: whatever another program has
-- written there, the settlement is stored.
UPDATE jobpool_jobs
SET
  state = CASE
    WHEN cancel_requested AND ended.state IN ('pending', 'runnable')
      THEN 'canceled'
    ELSE ended.state
  END,
  finished_at_ms = CASE
    WHEN NOT cancel_requested AND ended.state IN ('pending', 'runnable')
      THEN NULL
    ELSE ended.ended_at_ms
  END,
  run_at_ms = CASE ended.state
    WHEN 'pending' THEN min(:now_ms + ended.delay_ms, 253402300799000)
    ELSE run_at_ms
  END,
  attempt = max(
    ended.outcome IS NOT NULL,
    min(CAST(attempt AS INTEGER) - (ended.outcome IS NULL), 2147483647)
  ),
  failures = max(
    0, min(CAST(failures AS INTEGER) + ended.failure, 2147483647)
  ),
  crashes = max(
    0, min(CAST(crashes AS INTEGER) + ended.crash, 2147483647)
  ),
  interruptions = max(
    0, min(CAST(interruptions AS INTEGER) + ended.interruption, 2147483647)
  ),
  recoveries = max(
    0, min(CAST(recoveries AS INTEGER) + ended.recovery, 2147483647)
  ),
  snoozes = CASE
    WHEN ended.outcome IS NOT NULL AND ended.state IN ('pending', 'runnable')
      THEN 0
    ELSE max(0, min(CAST(snoozes AS INTEGER) + ended.snooze, 2147483647))
  END,
  snoozed_since_ms = CASE
    WHEN ended.outcome IS NOT NULL AND ended.state IN ('pending', 'runnable')
      THEN NULL
    WHEN ended.snooze THEN coalesce(CAST(snoozed_since_ms AS INTEGER), :now_ms)
    ELSE CAST(snoozed_since_ms AS INTEGER)
  END,
  throttled = CASE
    WHEN ended.outcome IS NULL THEN coalesce(ended.throttled, jobpool_jobs.throttled)
  END,
  started_at_ms = CASE
    WHEN ended.outcome IS NULL THEN started_at_ms
    ELSE coalesce(
      max(ended.began_at_ms, leased_at_ms), started_at_ms, leased_at_ms
    )
  END,
  outcome = coalesce(ended.outcome, jobpool_jobs.outcome),
  reason = iif(
    ended.outcome IS NULL AND ended.reason IS NULL,
    jobpool_jobs.reason,
    ended.reason
  ),
  error_class = iif(
    ended.outcome IS NULL, jobpool_jobs.error_class, ended.error_class
  ),
  error = iif(ended.outcome IS NULL, jobpool_jobs.error, ended.error),
  peak_rss_bytes = iif(
    ended.outcome IS NULL, jobpool_jobs.peak_rss_bytes, ended.peak_rss_bytes
  ),
  cpu_s = iif(ended.outcome IS NULL, jobpool_jobs.cpu_s, ended.cpu_s),
  duration_s = iif(
    ended.outcome IS NULL, jobpool_jobs.duration_s, ended.duration_s
  ),
  slot = coalesce(ended.slot, jobpool_jobs.slot),
  token = NULL,
  supervisor = NULL,
  leased_at_ms = NULL,
  cancel_requested = 0
FROM (
  SELECT
    json_extract(value, '$[0]') AS id,
    json_extract(value, '$[1]') AS token,
    json_extract(value, '$[2]') AS state,
    json_extract(value, '$[3]') AS outcome,
    json_extract(value, '$[4]') AS failure,
    json_extract(value, '$[5]') AS crash,
    json_extract(value, '$[6]') AS interruption,
    json_extract(value, '$[7]') AS recovery,
    json_extract(value, '$[8]') AS delay_ms,
    json_extract(value, '$[9]') AS reason,
    json_extract(value, '$[10]') AS error_class,
    json_extract(value, '$[11]') AS error,
    json_extract(value, '$[12]') AS peak_rss_bytes,
    json_extract(value, '$[13]') AS cpu_s,
    json_extract(value, '$[14]') AS duration_s,
    json_extract(value, '$[15]') AS slot,
    json_extract(value, '$[16]') AS began_at_ms,
    json_extract(value, '$[17]') AS ended_at_ms,
    json_extract(value, '$[18]') AS snooze,
    json_extract(value, '$[19]') AS throttled
  FROM json_each(:rows)
) AS ended
WHERE jobpool_jobs.id = ended.id
  AND jobpool_jobs.token = ended.token
  AND +jobpool_jobs.state = 'leased'
RETURNING id

-- name: join_retries
-- :ids of jobs that are retried: they wait in the lanes of retries.
UPDATE jobpool_jobs
SET lane = -lane
WHERE id IN (SELECT value FROM json_each(:ids))
  AND lane > 0 AND +state IN ('pending', 'runnable')

-- name: keep_outputs
-- :rows holds [id, KiB, output, when it ended] of jobs that have succeeded, in order.
INSERT OR REPLACE INTO jobpool_outputs (job_id, attempt, place, output, at_ms)
SELECT
  j.id,
  j.attempt,
  coalesce((SELECT max(place) FROM jobpool_outputs WHERE place IS NOT NULL), 0)
  + sum(json_extract(kept.value, '$[1]')) OVER (ORDER BY kept.key),
  json_extract(kept.value, '$[2]'),
  json_extract(kept.value, '$[3]')
FROM json_each(:rows) AS kept
CROSS JOIN jobpool_jobs AS j
WHERE j.id = json_extract(kept.value, '$[0]')

-- name: insert_results
-- :rows holds [id, first byte from 1, length] within :blobs. A row that already exists
-- was written by another program.
INSERT OR REPLACE INTO jobpool_results (job_id, result)
SELECT
  json_extract(new.value, '$[0]'),
  substr(
    :blobs, json_extract(new.value, '$[1]'), json_extract(new.value, '$[2]')
  )
FROM json_each(:rows) AS new

-- name: count_stale
-- Settlements under a superseded token, up to 2^53, so that it never fails.
UPDATE jobpool_meta
SET value = min(CAST(value AS INTEGER) + :stale, 9007199254740992)
WHERE name = 'stale_settlements'

-- name: record_beats
-- :rows holds [id, token, progress first, length, checkpoint first, length].
UPDATE jobpool_jobs
SET
  last_heartbeat_at_ms = :now_ms,
  progress = CASE
    WHEN beat.progress_length IS NULL THEN progress
    ELSE substr(:blobs, beat.progress_first, beat.progress_length)
  END,
  checkpoint = CASE
    WHEN beat.checkpoint_length IS NULL THEN checkpoint
    ELSE substr(:blobs, beat.checkpoint_first, beat.checkpoint_length)
  END
FROM (
  SELECT
    json_extract(value, '$[0]') AS id,
    json_extract(value, '$[1]') AS token,
    json_extract(value, '$[2]') AS progress_first,
    json_extract(value, '$[3]') AS progress_length,
    json_extract(value, '$[4]') AS checkpoint_first,
    json_extract(value, '$[5]') AS checkpoint_length
  FROM json_each(:rows)
) AS beat
WHERE jobpool_jobs.id = beat.id
  AND jobpool_jobs.token = beat.token
  AND +jobpool_jobs.state = 'leased'

-- name: show_running
-- :rows holds [id, token, RSS, output]; null keeps the value stored under this token.
INSERT INTO jobpool_running (job_id, token, updated_at_ms, rss_bytes, output)
SELECT
  j.id,
  j.token,
  :now_ms,
  json_extract(seen.value, '$[2]'),
  json_extract(seen.value, '$[3]')
FROM json_each(:rows) AS seen
CROSS JOIN jobpool_jobs AS j
WHERE j.id = json_extract(seen.value, '$[0]')
  AND j.token = json_extract(seen.value, '$[1]')
  AND +j.state = 'leased'
ON CONFLICT (job_id) DO UPDATE SET
  token = excluded.token,
  updated_at_ms = excluded.updated_at_ms,
  rss_bytes = coalesce(
    excluded.rss_bytes,
    iif(token = excluded.token AND typeof(rss_bytes) = 'integer', rss_bytes, NULL)
  ),
  output = coalesce(
    excluded.output,
    iif(token = excluded.token AND typeof(output) = 'text', output, NULL)
  )

-- name: begin_attempts
-- :rows holds [id, token, slot, when].
UPDATE jobpool_jobs
SET started_at_ms = max(begun.began_at_ms, leased_at_ms), slot = begun.slot
FROM (
  SELECT
    json_extract(value, '$[0]') AS id,
    json_extract(value, '$[1]') AS token,
    json_extract(value, '$[2]') AS slot,
    json_extract(value, '$[3]') AS began_at_ms
  FROM json_each(:rows)
) AS begun
WHERE jobpool_jobs.id = begun.id
  AND jobpool_jobs.token = begun.token
  AND +jobpool_jobs.state = 'leased'
