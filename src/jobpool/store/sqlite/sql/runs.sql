-- Runs of supervisors, what they publish, and the deletion of what is old.

-- name: begin_run
-- A run that is alive may call this again and replaces its row. A lease that has run out
-- stays so, because the next renewal must find out, and none is shortened.
INSERT INTO jobpool_runs (
  id, host, boot_id, pid, pid_namespace, version, pools, format,
  application, app_version, app_since_ms,
  started_at_ms, heartbeat_at_ms, lease_until_ms
)
VALUES (
  :id, :host, :boot_id, :pid, :pid_namespace, :version, :pools,
  :format, :application, :app_version, :now_ms,
  :now_ms, :now_ms, :lease_until_ms
)
ON CONFLICT (id) DO UPDATE
SET
  host = excluded.host,
  boot_id = excluded.boot_id,
  pid = excluded.pid,
  pid_namespace = excluded.pid_namespace,
  version = excluded.version,
  pools = excluded.pools,
  format = excluded.format,
  application = excluded.application,
  app_version = excluded.app_version,
  app_since_ms = CASE
    WHEN jobpool_runs.app_version IS NOT excluded.app_version THEN excluded.app_since_ms
    ELSE jobpool_runs.app_since_ms
  END,
  heartbeat_at_ms = excluded.heartbeat_at_ms,
  lease_until_ms = CASE
    WHEN jobpool_runs.lease_until_ms > :now_ms
      THEN max(jobpool_runs.lease_until_ms, excluded.lease_until_ms)
    ELSE jobpool_runs.lease_until_ms
  END
WHERE ended_at_ms IS NULL
RETURNING id

-- name: withdraw_kinds
-- What a run published before.
DELETE FROM jobpool_kinds WHERE run_id = :run_id

-- name: publish_kinds
-- What its application knows now.
INSERT INTO jobpool_kinds (
  kind, run_id, pool, schema,
  timeout_s, memory_bytes, max_attempts, max_crashes, updated_at_ms,
  schema_digest, at_most_once, needs
)
SELECT
  json_extract(value, '$[0]'),
  :run_id,
  json_extract(value, '$[1]'),
  json_extract(value, '$[2]'),
  json_extract(value, '$[3]'),
  json_extract(value, '$[4]'),
  json_extract(value, '$[5]'),
  json_extract(value, '$[6]'),
  :now_ms,
  json_extract(value, '$[7]'),
  json_extract(value, '$[8]'),
  json_extract(value, '$[9]')
FROM json_each(:rows)

-- name: run_position
-- How far the store has come, for one of its runs: see jobpool.store.watermark.
SELECT
  coalesce(renewals, 0),
  (SELECT value FROM jobpool_meta WHERE name = 'tokens'),
  (SELECT value FROM jobpool_meta WHERE name = 'restores')
FROM jobpool_runs
WHERE id = :run_id

-- name: lease_until
-- Of a run that has not ended, and whether its format is below the store's least.
SELECT
  lease_until_ms,
  coalesce(format, 1) < (SELECT m.value FROM jobpool_meta AS m WHERE m.name = 'min_format')
FROM jobpool_runs
WHERE id = :run_id AND ended_at_ms IS NULL

-- name: seize
-- As lease_until; this transaction writes, so no run can renew until it has ended.
SELECT
  lease_until_ms,
  (SELECT own.lease_until_ms FROM jobpool_runs AS own WHERE own.id = :by)
FROM jobpool_runs
WHERE id = :run_id AND ended_at_ms IS NULL

-- name: expired_runs
-- Open runs that hold leases which have run out.
SELECT
  id, host, boot_id, pid, pid_namespace, version, pools,
  started_at_ms, heartbeat_at_ms, lease_until_ms, ended_at_ms,
  coalesce(format, 1), application, app_version, limits, leaving_at_ms IS NOT NULL
FROM jobpool_runs AS r
WHERE ended_at_ms IS NULL
  AND lease_until_ms <= :now_ms
  AND EXISTS (
    SELECT 1 FROM jobpool_jobs AS j WHERE j.state = 'leased' AND j.supervisor = r.id
  )
ORDER BY started_at_ms, id

-- name: renew
-- One row holds the end of all of the run's leases.
UPDATE jobpool_runs
SET
  heartbeat_at_ms = :now_ms,
  lease_until_ms = :lease_until_ms,
  renewals = coalesce(renewals, 0) + 1
WHERE id = :run_id AND ended_at_ms IS NULL
RETURNING renewals

-- name: format_of_runs
-- The least format of a run that begins.
SELECT value FROM jobpool_meta WHERE name = 'min_format'

-- name: formats
-- The least that may lease, and the one that was asked for.
SELECT
  (SELECT value FROM jobpool_meta WHERE name = 'min_format'),
  (SELECT value FROM jobpool_meta WHERE name = 'wanted_format')

-- name: want_format
-- It only rises.
UPDATE jobpool_meta
SET value = :wanted
WHERE name = 'wanted_format' AND value < :wanted

-- name: grant_format
-- It only rises.
UPDATE jobpool_meta
SET value = :granted
WHERE name = 'min_format' AND value < :granted

-- name: count_leases
-- How many a run holds.
SELECT count(*) FROM jobpool_jobs WHERE state = 'leased' AND supervisor = :run_id

-- name: end_run
-- Its heartbeat stays, for operators to see.
UPDATE jobpool_runs
SET ended_at_ms = :now_ms
WHERE id = :run_id AND ended_at_ms IS NULL

-- name: open_runs
-- Oldest first.
SELECT
  id, host, boot_id, pid, pid_namespace, version, pools,
  started_at_ms, heartbeat_at_ms, lease_until_ms, ended_at_ms,
  coalesce(format, 1), application, app_version, limits, leaving_at_ms IS NOT NULL
FROM jobpool_runs
WHERE ended_at_ms IS NULL
ORDER BY started_at_ms, id

-- name: cancel_requests
-- Tokens of a run's leases whose cancellation was requested.
SELECT token
FROM jobpool_jobs
WHERE cancel_requested = 1 AND supervisor = :run_id
ORDER BY token

-- name: add_sketches
-- :rows holds [kind, pool, measure, bucket, attempts, censored]. Counts end at 2^53, so
-- that it never fails.
INSERT INTO jobpool_sketches (
  week, kind, pool, measure, bucket, attempts, censored
)
SELECT
  :week,
  json_extract(value, '$[0]'),
  json_extract(value, '$[1]'),
  json_extract(value, '$[2]'),
  json_extract(value, '$[3]'),
  json_extract(value, '$[4]'),
  json_extract(value, '$[5]')
FROM json_each(:rows)
WHERE true
ON CONFLICT (week, kind, pool, measure, bucket) DO UPDATE
SET
  attempts = min(
    CAST(jobpool_sketches.attempts AS INTEGER), 9007199254740992
  ) + excluded.attempts,
  censored = min(
    CAST(jobpool_sketches.censored AS INTEGER), 9007199254740992
  ) + excluded.censored

-- name: prune_sketches
-- Of weeks long past.
DELETE FROM jobpool_sketches WHERE week < :before_week

-- name: delete_payloads
-- Of pruned jobs.
DELETE FROM jobpool_payloads WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: delete_results
-- Of pruned jobs.
DELETE FROM jobpool_results WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: delete_result_parts
-- Of pruned jobs, including parts that do not belong to their last result.
DELETE FROM jobpool_result_parts WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: prune_draft_parts
-- Of leases that ended without using them.
DELETE FROM jobpool_result_parts
WHERE (job_id, token) IN (
    SELECT d.job_id, d.token
    FROM jobpool_result_drafts AS d
    WHERE NOT EXISTS (
      SELECT 1
      FROM jobpool_jobs AS j
      WHERE j.id = d.job_id AND j.token = d.token AND +j.state = 'leased'
    )
  )

-- name: prune_drafts
-- After their parts.
DELETE FROM jobpool_result_drafts
WHERE NOT EXISTS (
    SELECT 1
    FROM jobpool_jobs AS j
    WHERE j.id = jobpool_result_drafts.job_id
      AND j.token = jobpool_result_drafts.token
      AND +j.state = 'leased'
  )

-- name: drop_outputs
-- The oldest of those for which newer ones leave no room. What stays says that.
UPDATE jobpool_outputs
SET output = NULL, place = NULL, dropped_at_ms = :now_ms
WHERE job_id IN (
  SELECT job_id
  FROM jobpool_outputs
  WHERE place IS NOT NULL
    AND place <= (
      SELECT max(place) FROM jobpool_outputs WHERE place IS NOT NULL
    ) - :kept_kib
  ORDER BY place
  LIMIT :limit
)

-- name: delete_outputs
-- Of pruned jobs.
DELETE FROM jobpool_outputs WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: delete_attempts
-- Of pruned jobs.
DELETE FROM jobpool_attempts WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: delete_jobs
-- Last, so that no row is left without its job.
DELETE FROM jobpool_jobs WHERE id IN (SELECT value FROM json_each(:ids))

-- name: belongings
-- Of some jobs: rows of attempts, and of outputs.
SELECT
  (
    SELECT count(*)
    FROM jobpool_attempts
    WHERE job_id IN (SELECT value FROM json_each(:ids))
  ),
  (
    SELECT count(*)
    FROM jobpool_outputs
    WHERE job_id IN (SELECT value FROM json_each(:ids))
  )

-- name: erase_jobs
-- What is left says nothing about anybody: kind, state, times, counters, figures.
UPDATE jobpool_jobs
SET
  key = NULL,
  unique_text = NULL,
  tenant = NULL,
  reason = :reason,
  error_class = NULL,
  error = NULL,
  progress = NULL,
  checkpoint = NULL,
  codec = NULL,
  trace = NULL,
  lane = NULL,
  quota_values = NULL,
  throttled = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND finished_at_ms IS NOT NULL
RETURNING id

-- name: erase_payloads
-- Empty, which no arguments are: such a job cannot run again.
UPDATE jobpool_payloads
SET payload = x''
WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: delete_running
-- Of erased jobs: what an ended lease has left behind.
DELETE FROM jobpool_running WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: prune_kinds
-- Of runs that ended long ago, if a newer run has published the kind again.
DELETE FROM jobpool_kinds
WHERE run_id IN (
    SELECT id FROM jobpool_runs WHERE ended_at_ms < :before_ms
  )
  AND EXISTS (
    SELECT 1
    FROM jobpool_kinds AS newer
    WHERE newer.kind = jobpool_kinds.kind
      AND newer.run_id <> jobpool_kinds.run_id
      AND newer.updated_at_ms > jobpool_kinds.updated_at_ms
  )

-- name: prune_runs
-- Runs that ended long ago and whose kinds other runs have published since.
DELETE FROM jobpool_runs
WHERE ended_at_ms < :before_ms
  AND NOT EXISTS (
    SELECT 1 FROM jobpool_kinds AS k WHERE k.run_id = jobpool_runs.id
  )
