-- Runs of supervisors, what they publish, and the deletion of what is old.

-- name: begin_run
-- A run that is alive may call this again and replaces its row. A lease that has run out
-- stays so, because the next renewal must find out, and none is shortened.
INSERT INTO jobpool.runs (
  id, host, boot_id, pid, pid_namespace, version, pools, format,
  application, app_version, app_since_ms,
  started_at_ms, heartbeat_at_ms, lease_until_ms
)
VALUES (
  %(id)s, %(host)s, %(boot_id)s, %(pid)s, %(pid_namespace)s, %(version)s, %(pools)s,
  %(format)s, %(application)s, %(app_version)s, %(now_ms)s,
  %(now_ms)s, %(now_ms)s, %(lease_until_ms)s
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
    WHEN jobpool.runs.app_version IS DISTINCT FROM excluded.app_version THEN excluded.app_since_ms
    ELSE jobpool.runs.app_since_ms
  END,
  heartbeat_at_ms = excluded.heartbeat_at_ms,
  lease_until_ms = CASE
    WHEN jobpool.runs.lease_until_ms > %(now_ms)s
      THEN greatest(jobpool.runs.lease_until_ms, excluded.lease_until_ms)
    ELSE jobpool.runs.lease_until_ms
  END
WHERE jobpool.runs.ended_at_ms IS NULL
RETURNING id

-- name: withdraw_kinds
-- What a run published before.
DELETE FROM jobpool.kinds WHERE run_id = %(run_id)s

-- name: publish_kinds
-- What its application knows now.
INSERT INTO jobpool.kinds (
  kind, run_id, pool, schema,
  timeout_s, memory_bytes, max_attempts, max_crashes, updated_at_ms,
  schema_digest, at_most_once, needs
)
SELECT
  value ->> 0,
  %(run_id)s,
  value ->> 1,
  value ->> 2,
  (value ->> 3)::double precision,
  (value ->> 4)::bigint,
  (value ->> 5)::bigint,
  (value ->> 6)::bigint,
  %(now_ms)s,
  value ->> 7,
  value ->> 8,
  value ->> 9
FROM jsonb_array_elements(%(rows)s::jsonb)

-- name: run_position
-- How far the store has come, for one of its runs: see jobpool.store.watermark.
SELECT
  coalesce(renewals, 0),
  (SELECT last_value FROM jobpool.tokens),
  (SELECT value FROM jobpool.meta WHERE name = 'restores')
FROM jobpool.runs
WHERE id = %(run_id)s

-- name: lease_until
-- Of a run that has not ended, and whether its format is below the store's least; it is
-- renewed in this transaction.
SELECT
  lease_until_ms,
  coalesce(format, 1) < (SELECT m.value FROM jobpool.meta AS m WHERE m.name = 'min_format')
FROM jobpool.runs
WHERE id = %(run_id)s AND ended_at_ms IS NULL
FOR NO KEY UPDATE

-- name: seize
-- As lease_until, for both runs; the seized run cannot renew or lease until this
-- transaction has ended. A run that renews or leases at this moment is skipped.
SELECT
  r.lease_until_ms,
  (SELECT own.lease_until_ms FROM jobpool.runs AS own WHERE own.id = %(by)s)
FROM jobpool.runs AS r
WHERE r.id = %(run_id)s AND r.ended_at_ms IS NULL
FOR UPDATE OF r SKIP LOCKED

-- name: lock_run
-- Waits for leases that are being committed, and blocks new ones until this transaction
-- has ended.
SELECT id FROM jobpool.runs WHERE id = %(run_id)s FOR UPDATE

-- name: expired_runs
-- Open runs that hold leases which have run out.
SELECT
  id, host, boot_id, pid, pid_namespace, version, pools,
  started_at_ms, heartbeat_at_ms, lease_until_ms, ended_at_ms,
  coalesce(format, 1), application, app_version, limits, leaving_at_ms IS NOT NULL
FROM jobpool.runs AS r
WHERE ended_at_ms IS NULL
  AND lease_until_ms <= %(now_ms)s
  AND EXISTS (
    SELECT 1 FROM jobpool.jobs AS j WHERE j.state = 'leased' AND j.supervisor = r.id
  )
ORDER BY started_at_ms, id

-- name: renew
-- One row holds the end of all of the run's leases.
UPDATE jobpool.runs
SET
  heartbeat_at_ms = %(now_ms)s,
  lease_until_ms = %(lease_until_ms)s,
  renewals = coalesce(renewals, 0) + 1
WHERE id = %(run_id)s AND ended_at_ms IS NULL
RETURNING renewals

-- name: renew_at_once
-- The same in a transaction of its own: a connection that stalls in the middle leaves no
-- lock behind. The clock is read once the row is locked. Nothing is changed in a store
-- that has not come as far as its run knows. Returns whether the lease was still valid
-- (one that was not is only extended with :anew), whether the run's format is below the
-- store's least, when it was renewed, and how far the store had come before.
WITH held AS MATERIALIZED (
  SELECT
    id,
    lease_until_ms,
    coalesce(renewals, 0) AS renewals,
    coalesce(format, 1)
      < (SELECT value FROM jobpool.meta WHERE name = 'min_format') AS is_outdated,
    (SELECT last_value FROM jobpool.tokens) AS tokens,
    (SELECT value FROM jobpool.meta WHERE name = 'restores') AS restores
  FROM jobpool.runs
  WHERE id = %(run_id)s AND ended_at_ms IS NULL
  FOR NO KEY UPDATE
),
moment AS MATERIALIZED (
  SELECT
    id,
    lease_until_ms,
    renewals,
    is_outdated,
    tokens,
    restores,
    coalesce(
      %(now_ms)s::bigint,
      floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
    ) AS now_ms
  FROM held
),
renewed AS (
  UPDATE jobpool.runs AS r
  SET
    heartbeat_at_ms = moment.now_ms,
    renewals = moment.renewals + 1,
    lease_until_ms = CASE
      WHEN moment.lease_until_ms > moment.now_ms OR %(anew)s
        THEN moment.now_ms + %(ttl_ms)s::bigint
      ELSE moment.lease_until_ms
    END
  FROM moment
  WHERE r.id = moment.id
    AND moment.renewals >= %(renewals)s::bigint
    AND moment.tokens >= %(tokens)s::bigint
    AND coalesce(moment.restores, 0)
      = coalesce(%(restores)s::bigint, moment.restores, 0)
)
SELECT
  coalesce(lease_until_ms > now_ms, false),
  is_outdated,
  renewals,
  tokens,
  restores
FROM moment

-- name: format_of_runs
-- The least format of a run that begins.
-- Keeps it as it is until this transaction has ended, and sees what a transaction that
-- was waited for has made of it.
SELECT value FROM jobpool.meta WHERE name = 'min_format'
FOR SHARE

-- name: formats
-- The least that may lease, and the one that was asked for.
SELECT
  (SELECT value FROM jobpool.meta WHERE name = 'min_format'),
  (SELECT value FROM jobpool.meta WHERE name = 'wanted_format')

-- name: want_format
-- It only rises.
UPDATE jobpool.meta
SET value = %(wanted)s
WHERE name = 'wanted_format' AND value < %(wanted)s

-- name: grant_format
-- It only rises.
UPDATE jobpool.meta
SET value = %(granted)s
WHERE name = 'min_format' AND value < %(granted)s

-- name: lock_formats
-- No run can begin until this transaction has ended.
SELECT value FROM jobpool.meta WHERE name = 'min_format' FOR UPDATE

-- name: lock_gone_runs
-- Open runs of an older format that hold no leases and whose own ran out before
-- :before_ms. They cannot renew until this transaction has ended. A run that renews or
-- leases at this moment is skipped.
SELECT r.id
FROM jobpool.runs AS r
WHERE r.ended_at_ms IS NULL
  AND coalesce(r.format, 1) < %(wanted)s
  AND r.lease_until_ms < %(before_ms)s
  AND NOT EXISTS (
    SELECT 1 FROM jobpool.jobs AS j WHERE j.state = 'leased' AND j.supervisor = r.id
  )
FOR UPDATE OF r SKIP LOCKED

-- name: end_unaware
-- Those among them whose code does not know formats: if they come back, they find that
-- they have ended. The others find that they are outdated.
UPDATE jobpool.runs
SET ended_at_ms = %(now_ms)s
WHERE id IN (SELECT value FROM jsonb_array_elements_text(%(ids)s::jsonb))
  AND format IS NULL

-- name: count_leases
-- How many a run holds.
SELECT count(*) FROM jobpool.jobs WHERE state = 'leased' AND supervisor = %(run_id)s

-- name: end_run
-- Its heartbeat stays, for operators to see.
UPDATE jobpool.runs
SET ended_at_ms = %(now_ms)s
WHERE id = %(run_id)s AND ended_at_ms IS NULL

-- name: open_runs
-- Oldest first.
SELECT
  id, host, boot_id, pid, pid_namespace, version, pools,
  started_at_ms, heartbeat_at_ms, lease_until_ms, ended_at_ms,
  coalesce(format, 1), application, app_version, limits, leaving_at_ms IS NOT NULL
FROM jobpool.runs
WHERE ended_at_ms IS NULL
ORDER BY started_at_ms, id

-- name: cancel_requests
-- Tokens of a run's leases whose cancellation was requested.
SELECT token
FROM jobpool.jobs
WHERE cancel_requested AND supervisor = %(run_id)s
ORDER BY token

-- name: drop_outputs
-- The oldest of those for which newer ones leave no room. What stays says that.
UPDATE jobpool.outputs
SET output = NULL, place = NULL, dropped_at_ms = %(now_ms)s
WHERE job_id IN (
  SELECT job_id
  FROM jobpool.outputs
  WHERE place IS NOT NULL
    AND place <= (
      SELECT max(place) FROM jobpool.outputs WHERE place IS NOT NULL
    ) - %(kept_kib)s::bigint
  ORDER BY place
  LIMIT %(limit)s
)

-- name: delete_outputs
-- Of pruned jobs.
DELETE FROM jobpool.outputs WHERE job_id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))

-- name: add_sketches
-- :rows holds [kind, pool, measure, bucket, attempts, censored]. In the same order for
-- all, so that no two supervisors wait for each other. Counts end at 2^53, so that it
-- never fails.
INSERT INTO jobpool.sketches (
  week, kind, pool, measure, bucket, attempts, censored
)
SELECT
  %(week)s,
  value ->> 0,
  value ->> 1,
  value ->> 2,
  (value ->> 3)::bigint,
  (value ->> 4)::bigint,
  (value ->> 5)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb)
ORDER BY (value ->> 0) COLLATE "C", (value ->> 1) COLLATE "C", value ->> 2, (value ->> 3)::bigint
ON CONFLICT (week, kind, pool, measure, bucket) DO UPDATE
SET
  attempts = least(jobpool.sketches.attempts, 9007199254740992) + excluded.attempts,
  censored = least(jobpool.sketches.censored, 9007199254740992) + excluded.censored

-- name: prune_sketches
-- Of weeks long past, but for what another supervisor deletes at this moment.
DELETE FROM jobpool.sketches
WHERE (week, kind, pool, measure, bucket) IN (
    SELECT week, kind, pool, measure, bucket
    FROM jobpool.sketches
    WHERE week < %(before_week)s
    FOR UPDATE SKIP LOCKED
  )

-- name: delete_attempts
-- Of pruned jobs.
DELETE FROM jobpool.attempts
WHERE job_id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)

-- name: delete_jobs
-- Last, so that no row is left without its job.
DELETE FROM jobpool.jobs WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))

-- name: belongings
-- Of some jobs: rows of attempts, and of outputs.
WITH wanted AS (
  SELECT ARRAY(
    SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb)
  ) AS ids
)
SELECT
  (SELECT count(*) FROM jobpool.attempts WHERE job_id = ANY (wanted.ids)),
  (SELECT count(*) FROM jobpool.outputs WHERE job_id = ANY (wanted.ids))
FROM wanted

-- name: erase_jobs
-- What is left says nothing about anybody: kind, state, times, counters, figures. An
-- empty payload, which no arguments are, says that it cannot run again.
UPDATE jobpool.jobs
SET
  key = NULL,
  unique_text = NULL,
  tenant = NULL,
  payload = '',
  reason = %(reason)s,
  error_class = NULL,
  error = NULL,
  progress = NULL,
  checkpoint = NULL,
  result = NULL,
  codec = NULL,
  trace = NULL,
  lane = NULL,
  quota_values = NULL,
  throttled = NULL
WHERE id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)
  AND finished_at_ms IS NOT NULL
RETURNING id

-- name: delete_running
-- Of erased jobs: what an ended lease has left behind.
DELETE FROM jobpool.running
WHERE job_id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)

-- name: prune_kinds
-- Of runs that ended long ago, if a newer run has published the kind again.
DELETE FROM jobpool.kinds AS k
USING
  jobpool.runs AS r,
  (
    SELECT kind, max(updated_at_ms) AS updated_at_ms
    FROM jobpool.kinds
    GROUP BY kind
  ) AS newest
WHERE r.id = k.run_id
  AND r.ended_at_ms < %(before_ms)s
  AND newest.kind = k.kind
  AND newest.updated_at_ms > k.updated_at_ms

-- name: prune_runs
-- Runs that ended long ago and whose kinds other runs have published since.
DELETE FROM jobpool.runs
WHERE ended_at_ms < %(before_ms)s
  AND NOT EXISTS (
    SELECT 1 FROM jobpool.kinds AS k WHERE k.run_id = jobpool.runs.id
  )

-- name: end_lapsed_runs
-- Runs whose leases ran out long ago and were all taken over: nothing else ends them.
UPDATE jobpool.runs
SET ended_at_ms = %(now_ms)s
WHERE ended_at_ms IS NULL
  AND lease_until_ms < %(before_ms)s
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.jobs AS j
    WHERE j.state = 'leased' AND j.supervisor = jobpool.runs.id
  )
