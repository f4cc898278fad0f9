-- Damaged rows (`jobpool.store.statements.integrity`): found and repaired.

-- name: hold_jobs
-- Locked until the commit; rows that others hold are skipped.
SELECT id
FROM jobpool.jobs
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)
ORDER BY id
FOR UPDATE SKIP LOCKED

-- name: next_jobs
-- The next step of a walk over all jobs. With both ends, as look_newest.
SELECT id
FROM jobpool.jobs
WHERE id > %(after)s AND id <= 9223372036854775807
ORDER BY id
LIMIT %(limit)s

-- name: due_jobs
-- The jobs that promote_due changes.
SELECT id
FROM jobpool.jobs
WHERE state = 'pending' AND run_at_ms <= %(now_ms)s
ORDER BY run_at_ms
LIMIT %(limit)s

-- name: raw_jobs
-- Every column, in the order of `integrity.JOB`; bytes are replaced by empty ones.
SELECT
  id, kind, pool, state, priority, key, unique_text, tenant, max_attempts, timeout_s,
  memory_bytes, attempt, reset_attempt, failures, crashes, interruptions, recoveries,
  snoozes, snoozed_since_ms, created_at_ms, run_at_ms, expires_at_ms, finished_at_ms,
  token, completed_token, supervisor, leased_at_ms, cancel_requested::integer, slot,
  started_at_ms, last_heartbeat_at_ms, outcome, reason, error_class, error,
  duration_s, cpu_s, peak_rss_bytes,
  CASE WHEN progress IS NOT NULL THEN ''::bytea END,
  CASE WHEN checkpoint IS NOT NULL THEN ''::bytea END,
  codec, lane, quota_values, throttled, step
FROM jobpool.jobs
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)

-- name: rewrite_job
-- Every column; bytes are kept or set to NULL.
UPDATE jobpool.jobs
SET
  kind = %(kind)s,
  pool = %(pool)s,
  state = %(state)s,
  priority = %(priority)s,
  key = %(key)s,
  unique_text = %(unique_text)s,
  tenant = %(tenant)s,
  max_attempts = %(max_attempts)s,
  timeout_s = %(timeout_s)s,
  memory_bytes = %(memory_bytes)s,
  attempt = %(attempt)s,
  reset_attempt = %(reset_attempt)s,
  failures = %(failures)s,
  crashes = %(crashes)s,
  interruptions = %(interruptions)s,
  recoveries = %(recoveries)s,
  snoozes = %(snoozes)s,
  snoozed_since_ms = %(snoozed_since_ms)s,
  created_at_ms = %(created_at_ms)s,
  run_at_ms = %(run_at_ms)s,
  expires_at_ms = %(expires_at_ms)s,
  finished_at_ms = %(finished_at_ms)s,
  token = %(token)s,
  completed_token = %(completed_token)s,
  supervisor = %(supervisor)s,
  leased_at_ms = %(leased_at_ms)s,
  cancel_requested = %(cancel_requested)s::integer = 1,
  slot = %(slot)s,
  started_at_ms = %(started_at_ms)s,
  last_heartbeat_at_ms = %(last_heartbeat_at_ms)s,
  outcome = %(outcome)s,
  reason = %(reason)s,
  error_class = %(error_class)s,
  error = %(error)s,
  duration_s = %(duration_s)s,
  cpu_s = %(cpu_s)s,
  peak_rss_bytes = %(peak_rss_bytes)s,
  progress = CASE WHEN %(progress)s::bytea IS NOT NULL THEN progress END,
  checkpoint = CASE WHEN %(checkpoint)s::bytea IS NOT NULL THEN checkpoint END,
  codec = %(codec)s,
  lane = %(lane)s,
  quota_values = %(quota_values)s,
  throttled = %(throttled)s,
  step = %(step)s
WHERE id = %(id)s

-- name: raw_runs
-- Every column.
SELECT
  id, host, boot_id, pid, pid_namespace, version, pools, started_at_ms,
  heartbeat_at_ms, lease_until_ms, ended_at_ms, leaving_at_ms, died_at_ms,
  died_with_jobs, format, application, app_version, renewals, limits
FROM jobpool.runs

-- name: rewrite_run
-- Every column.
UPDATE jobpool.runs
SET
  host = %(host)s,
  boot_id = %(boot_id)s,
  pid = %(pid)s,
  pid_namespace = %(pid_namespace)s,
  version = %(version)s,
  pools = %(pools)s,
  started_at_ms = %(started_at_ms)s,
  heartbeat_at_ms = %(heartbeat_at_ms)s,
  lease_until_ms = %(lease_until_ms)s,
  ended_at_ms = %(ended_at_ms)s,
  leaving_at_ms = %(leaving_at_ms)s,
  died_at_ms = %(died_at_ms)s,
  died_with_jobs = %(died_with_jobs)s,
  format = %(format)s,
  application = %(application)s,
  app_version = %(app_version)s,
  renewals = %(renewals)s,
  limits = %(limits)s
WHERE id = %(id)s

-- name: drop_run
-- Without a readable id it belongs to no run.
DELETE FROM jobpool.runs WHERE id = %(id)s

-- name: raw_kinds
-- Every column.
SELECT
  kind, run_id, pool, schema, timeout_s, memory_bytes, max_attempts, max_crashes,
  updated_at_ms, schema_digest, at_most_once, needs
FROM jobpool.kinds

-- name: drop_kind
-- Its supervisor publishes it again when it starts or is reloaded.
DELETE FROM jobpool.kinds WHERE kind = %(kind)s AND run_id = %(run_id)s

-- name: raw_suspects
-- Every column.
SELECT job_id, since_ms FROM jobpool.suspects

-- name: rewrite_suspect
-- It stays a suspect.
UPDATE jobpool.suspects SET since_ms = %(now_ms)s WHERE job_id = %(job_id)s

-- name: raw_debounced
-- Every column.
SELECT
  job_id, kind, unique_text, waits::integer, until_start::integer, replacements,
  postponements
FROM jobpool.debounced

-- name: drop_debounced
-- A job that waits goes on, without the text that it was to get.
DELETE FROM jobpool.debounced WHERE job_id = %(job_id)s

-- name: raw_misfits
-- Every column.
SELECT job_id, schema_digest, since_ms, until_ms FROM jobpool.misfits

-- name: drop_misfit
-- At worst it is tried again.
DELETE FROM jobpool.misfits
WHERE job_id = %(job_id)s AND schema_digest = %(schema_digest)s

-- name: raw_pauses
-- Every column, also of those that have ended.
SELECT what, name, since_ms, until_ms, who, note FROM jobpool.pauses ORDER BY what, name

-- name: drop_pause
-- What cannot be read holds nothing back.
DELETE FROM jobpool.pauses WHERE what = %(what)s AND name = %(name)s

-- name: raw_quotas
-- Every column.
SELECT
  name, rate_permits, rate_per_s, burst, concurrency, until_ms, who, note, updated_at_ms
FROM jobpool.quotas

-- name: drop_quota
-- What cannot be read sets nothing.
DELETE FROM jobpool.quotas WHERE name = %(name)s

-- name: raw_tenants
-- Every column.
SELECT
  name, concurrency, rate_permits, rate_per_s, burst, weight, who, updated_at_ms
FROM jobpool.tenants

-- name: drop_tenant
-- What cannot be read sets nothing.
DELETE FROM jobpool.tenants WHERE name = %(name)s

-- name: raw_breakers
-- Every column.
SELECT kind, state, crashes, last_job, next_at_ms, changed_at_ms
FROM jobpool.breakers
ORDER BY kind

-- name: position
-- How far a store has come: the newest time of the past in it, tokens, ids, restores.
SELECT
  (
    SELECT max(at_ms)
    FROM (
      SELECT max(heartbeat_at_ms) AS at_ms FROM jobpool.runs
      UNION ALL
      SELECT created_at_ms FROM jobpool.jobs WHERE id = (SELECT max(id) FROM jobpool.jobs)
      UNION ALL
      SELECT max(finished_at_ms) FROM jobpool.jobs WHERE state = 'succeeded'
      UNION ALL
      SELECT max(finished_at_ms) FROM jobpool.jobs WHERE state = 'dead'
      UNION ALL
      SELECT max(finished_at_ms) FROM jobpool.jobs WHERE state = 'quarantined'
      UNION ALL
      SELECT max(finished_at_ms) FROM jobpool.jobs WHERE state = 'canceled'
      UNION ALL
      SELECT max(leased_at_ms) FROM jobpool.jobs WHERE state = 'leased'
      UNION ALL
      SELECT finished_at_ms
      FROM jobpool.attempts
      WHERE id = (SELECT max(id) FROM jobpool.attempts)
      UNION ALL
      SELECT max(at_ms) FROM jobpool.audit
    ) AS known
  ),
  (SELECT last_value - (NOT is_called)::integer FROM jobpool.tokens),
  greatest(
    (SELECT last_value - (NOT is_called)::integer FROM jobpool.job_ids),
    (SELECT max(id) FROM jobpool.jobs)
  ),
  coalesce(
    (SELECT max(id) FROM jobpool.jobs),
    (SELECT last_value - (NOT is_called)::integer FROM jobpool.job_ids)
  ),
  (SELECT value FROM jobpool.meta WHERE name = 'restores')

-- name: unfinished_kinds
-- Unfinished jobs: those that may have run by now, and those that have not.
SELECT
  kind,
  pool,
  count(CASE WHEN run_at_ms <= %(now_ms)s THEN 1 END),
  count(CASE WHEN run_at_ms > %(now_ms)s THEN 1 END)
FROM (
  SELECT kind, pool, run_at_ms FROM jobpool.jobs WHERE state = 'runnable'
  UNION ALL
  SELECT kind, pool, run_at_ms FROM jobpool.jobs WHERE state = 'pending'
  UNION ALL
  SELECT kind, pool, run_at_ms FROM jobpool.jobs WHERE state = 'waiting'
  UNION ALL
  SELECT kind, pool, leased_at_ms FROM jobpool.jobs WHERE state = 'leased'
) AS unfinished
GROUP BY kind, pool
ORDER BY kind, pool

-- name: count_restore
-- The store was restored.
INSERT INTO jobpool.meta (name, value)
VALUES ('restores', 1)
ON CONFLICT (name) DO UPDATE SET value = jobpool.meta.value + 1
