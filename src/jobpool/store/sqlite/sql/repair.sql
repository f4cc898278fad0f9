-- Damaged rows (`jobpool.store.statements.integrity`): found and repaired. At the end: a
-- store that was restored from a backup.

-- name: next_jobs
-- The next step of a walk over all jobs.
SELECT id FROM jobpool_jobs WHERE id > :after ORDER BY id LIMIT :limit

-- name: due_jobs
-- The jobs that promote_due changes.
SELECT id
FROM jobpool_jobs
WHERE state = 'pending' AND run_at_ms <= :now_ms
ORDER BY run_at_ms
LIMIT :limit

-- name: raw_jobs
-- Every column, in the order of `integrity.JOB`; bytes are replaced by empty ones.
SELECT
  id, kind, pool, state, priority, key, unique_text, tenant, max_attempts, timeout_s,
  memory_bytes, attempt, reset_attempt, failures, crashes, interruptions, recoveries,
  snoozes, snoozed_since_ms, created_at_ms, run_at_ms, expires_at_ms, finished_at_ms,
  token, completed_token, supervisor, leased_at_ms, cancel_requested, slot,
  started_at_ms, last_heartbeat_at_ms, outcome, reason, error_class, error,
  duration_s, cpu_s, peak_rss_bytes,
  CASE WHEN typeof(progress) = 'blob' THEN x'' ELSE progress END,
  CASE WHEN typeof(checkpoint) = 'blob' THEN x'' ELSE checkpoint END,
  codec, lane, quota_values, throttled, step
FROM jobpool_jobs
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: rewrite_job
-- Every column; bytes are kept or set to NULL.
UPDATE jobpool_jobs
SET
  kind = :kind,
  pool = :pool,
  state = :state,
  priority = :priority,
  key = :key,
  unique_text = :unique_text,
  tenant = :tenant,
  max_attempts = :max_attempts,
  timeout_s = :timeout_s,
  memory_bytes = :memory_bytes,
  attempt = :attempt,
  reset_attempt = :reset_attempt,
  failures = :failures,
  crashes = :crashes,
  interruptions = :interruptions,
  recoveries = :recoveries,
  snoozes = :snoozes,
  snoozed_since_ms = :snoozed_since_ms,
  created_at_ms = :created_at_ms,
  run_at_ms = :run_at_ms,
  expires_at_ms = :expires_at_ms,
  finished_at_ms = :finished_at_ms,
  token = :token,
  completed_token = :completed_token,
  supervisor = :supervisor,
  leased_at_ms = :leased_at_ms,
  cancel_requested = :cancel_requested,
  slot = :slot,
  started_at_ms = :started_at_ms,
  last_heartbeat_at_ms = :last_heartbeat_at_ms,
  outcome = :outcome,
  reason = :reason,
  error_class = :error_class,
  error = :error,
  duration_s = :duration_s,
  cpu_s = :cpu_s,
  peak_rss_bytes = :peak_rss_bytes,
  progress = CASE WHEN :progress IS NOT NULL THEN progress END,
  checkpoint = CASE WHEN :checkpoint IS NOT NULL THEN checkpoint END,
  codec = :codec,
  lane = :lane,
  quota_values = :quota_values,
  throttled = :throttled,
  step = :step
WHERE id = :id

-- name: raw_runs
-- Every column.
SELECT
  id, host, boot_id, pid, pid_namespace, version, pools, started_at_ms,
  heartbeat_at_ms, lease_until_ms, ended_at_ms, leaving_at_ms, died_at_ms,
  died_with_jobs, format, application, app_version, renewals, limits
FROM jobpool_runs

-- name: rewrite_run
-- Every column.
UPDATE jobpool_runs
SET
  host = :host,
  boot_id = :boot_id,
  pid = :pid,
  pid_namespace = :pid_namespace,
  version = :version,
  pools = :pools,
  started_at_ms = :started_at_ms,
  heartbeat_at_ms = :heartbeat_at_ms,
  lease_until_ms = :lease_until_ms,
  ended_at_ms = :ended_at_ms,
  leaving_at_ms = :leaving_at_ms,
  died_at_ms = :died_at_ms,
  died_with_jobs = :died_with_jobs,
  format = :format,
  application = :application,
  app_version = :app_version,
  renewals = :renewals,
  limits = :limits
WHERE id = :id

-- name: drop_run
-- Without a readable id it belongs to no run.
DELETE FROM jobpool_runs WHERE id = :id

-- name: raw_kinds
-- Every column.
SELECT
  kind, run_id, pool, schema, timeout_s, memory_bytes, max_attempts, max_crashes,
  updated_at_ms, schema_digest, at_most_once, needs
FROM jobpool_kinds

-- name: drop_kind
-- Its supervisor publishes it again when it starts or is reloaded.
DELETE FROM jobpool_kinds WHERE kind = :kind AND run_id = :run_id

-- name: raw_suspects
-- Every column.
SELECT job_id, since_ms FROM jobpool_suspects

-- name: rewrite_suspect
-- It stays a suspect.
UPDATE jobpool_suspects SET since_ms = :now_ms WHERE job_id = :job_id

-- name: raw_debounced
-- Every column.
SELECT
  job_id, kind, unique_text, waits, until_start, replacements, postponements
FROM jobpool_debounced

-- name: drop_debounced
-- A job that waits goes on, without the text that it was to get.
DELETE FROM jobpool_debounced WHERE job_id = :job_id

-- name: raw_misfits
-- Every column.
SELECT job_id, schema_digest, since_ms, until_ms FROM jobpool_misfits

-- name: drop_misfit
-- At worst it is tried again.
DELETE FROM jobpool_misfits
WHERE job_id = :job_id AND schema_digest = :schema_digest

-- name: raw_pauses
-- Every column, also of those that have ended.
SELECT what, name, since_ms, until_ms, who, note FROM jobpool_pauses ORDER BY what, name

-- name: drop_pause
-- What cannot be read holds nothing back.
DELETE FROM jobpool_pauses WHERE what = :what AND name = :name

-- name: raw_quotas
-- Every column.
SELECT
  name, rate_permits, rate_per_s, burst, concurrency, until_ms, who, note, updated_at_ms
FROM jobpool_quotas

-- name: drop_quota
-- What cannot be read sets nothing.
DELETE FROM jobpool_quotas WHERE name = :name

-- name: raw_tenants
-- Every column.
SELECT
  name, concurrency, rate_permits, rate_per_s, burst, weight, who, updated_at_ms
FROM jobpool_tenants

-- name: drop_tenant
-- What cannot be read sets nothing.
DELETE FROM jobpool_tenants WHERE name = :name

-- name: raw_breakers
-- Every column.
SELECT kind, state, crashes, last_job, next_at_ms, changed_at_ms
FROM jobpool_breakers
ORDER BY kind

-- name: spent_ids
-- For the tables with AUTOINCREMENT: the id that the next one follows, and the id that it
-- should follow. An id at the very end leaves none for new rows.
SELECT
  'jobpool_jobs',
  max(
    coalesce(max(id), 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobpool_jobs'), 0)
  ),
  (SELECT coalesce(max(id), 0) FROM jobpool_jobs WHERE id < 4611686018427387904)
FROM jobpool_jobs
UNION ALL
SELECT
  'jobpool_attempts',
  max(
    coalesce(max(id), 0),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobpool_attempts'), 0)
  ),
  (SELECT coalesce(max(id), 0) FROM jobpool_attempts WHERE id < 4611686018427387904)
FROM jobpool_attempts

-- name: far_jobs
-- Ids beyond all that were given out; a leased job keeps its id for now.
SELECT id
FROM jobpool_jobs
WHERE id >= 4611686018427387904 AND +state <> 'leased'
ORDER BY id
LIMIT :limit

-- name: far_attempts
-- As far_jobs.
SELECT id FROM jobpool_attempts WHERE id >= 4611686018427387904 ORDER BY id LIMIT :limit

-- name: renumber_job
-- Together with the next four, which renumber what belongs to it.
UPDATE jobpool_jobs SET id = :new WHERE id = :id

-- name: renumber_payload
-- A row that another program has put in its place is replaced.
UPDATE OR REPLACE jobpool_payloads SET job_id = :new WHERE job_id = :id

-- name: renumber_result
-- Likewise.
UPDATE OR REPLACE jobpool_results SET job_id = :new WHERE job_id = :id

-- name: renumber_parts
-- Likewise.
UPDATE OR REPLACE jobpool_result_parts SET job_id = :new WHERE job_id = :id

-- name: renumber_history
-- Likewise.
UPDATE jobpool_attempts SET job_id = :new WHERE job_id = :id

-- name: renumber_attempt
-- It becomes the last one in the history.
UPDATE jobpool_attempts SET id = :new WHERE id = :id

-- name: count_on_from
-- Sets where AUTOINCREMENT continues.
UPDATE sqlite_sequence SET seq = :last WHERE name = :name

-- name: position
-- How far a store has come: the newest time of the past in it, tokens, ids, restores.
SELECT
  (
    SELECT max(at_ms)
    FROM (
      SELECT max(heartbeat_at_ms) AS at_ms FROM jobpool_runs
      UNION ALL
      SELECT created_at_ms FROM jobpool_jobs WHERE id = (SELECT max(id) FROM jobpool_jobs)
      UNION ALL
      SELECT max(finished_at_ms) FROM jobpool_jobs WHERE state = 'succeeded'
      UNION ALL
      SELECT max(finished_at_ms) FROM jobpool_jobs WHERE state = 'dead'
      UNION ALL
      SELECT max(finished_at_ms) FROM jobpool_jobs WHERE state = 'quarantined'
      UNION ALL
      SELECT max(finished_at_ms) FROM jobpool_jobs WHERE state = 'canceled'
      UNION ALL
      SELECT max(leased_at_ms) FROM jobpool_jobs WHERE state = 'leased'
      UNION ALL
      SELECT finished_at_ms
      FROM jobpool_attempts
      WHERE id = (SELECT max(id) FROM jobpool_attempts)
      UNION ALL
      SELECT max(at_ms) FROM jobpool_audit
    )
  ),
  (SELECT value FROM jobpool_meta WHERE name = 'tokens'),
  max(
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobpool_jobs'), 0),
    coalesce((SELECT max(id) FROM jobpool_jobs), 0)
  ),
  coalesce(
    (SELECT max(id) FROM jobpool_jobs),
    (SELECT seq FROM sqlite_sequence WHERE name = 'jobpool_jobs')
  ),
  (SELECT value FROM jobpool_meta WHERE name = 'restores')

-- name: unfinished_kinds
-- Unfinished jobs: those that may have run by now, and those that have not.
SELECT
  kind,
  pool,
  count(CASE WHEN run_at_ms <= :now_ms THEN 1 END),
  count(CASE WHEN run_at_ms > :now_ms THEN 1 END)
FROM (
  SELECT kind, pool, run_at_ms FROM jobpool_jobs WHERE state = 'runnable'
  UNION ALL
  SELECT kind, pool, run_at_ms FROM jobpool_jobs WHERE state = 'pending'
  UNION ALL
  SELECT kind, pool, run_at_ms FROM jobpool_jobs WHERE state = 'waiting'
  UNION ALL
  SELECT kind, pool, leased_at_ms FROM jobpool_jobs WHERE state = 'leased'
)
GROUP BY kind, pool
ORDER BY kind, pool

-- name: count_restore
-- The store was restored.
INSERT INTO jobpool_meta (name, value)
VALUES ('restores', 1)
ON CONFLICT (name) DO UPDATE SET value = jobpool_meta.value + 1

-- name: raise_tokens
-- Also if the counter is missing.
INSERT INTO jobpool_meta (name, value)
VALUES ('tokens', :last)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)

-- name: make_ids
-- AUTOINCREMENT has no row before the first job, or flow.
INSERT INTO sqlite_sequence (name, seq)
SELECT column1, 0
FROM (VALUES ('jobpool_jobs'), ('jobpool_flows'))
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = column1)

-- name: raise_ids_to
-- Of jobs and of flows; never lowered.
UPDATE sqlite_sequence
SET seq = max(seq, :last)
WHERE name IN ('jobpool_jobs', 'jobpool_flows')
