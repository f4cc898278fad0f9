-- Quotas: what is in force.

-- name: bump_limits
-- What is in force changes with this transaction. Random, so that the number of one that
-- was rolled back does not come again.
UPDATE jobpool_meta
SET value = CAST(value AS INTEGER) % 4503599627370496 + 1 + abs(random() % 1048576)
WHERE name = 'limits_version'

-- name: published_limits
-- By runs that have not ended.
SELECT id, version, host, pid, coalesce(app_since_ms, 0), lease_until_ms, limits
FROM jobpool_runs
WHERE ended_at_ms IS NULL

-- name: published_needs
-- By runs that have not ended; with the kind's other names, if they are known.
SELECT k.run_id, k.kind, k.at_most_once, k.needs
FROM jobpool_kinds AS k
CROSS JOIN jobpool_runs AS r ON r.id = k.run_id
WHERE k.needs IS NOT NULL AND r.ended_at_ms IS NULL

-- name: quota_pauses
-- Of tenants and quotas.
SELECT what, name, until_ms, note
FROM jobpool_pauses
WHERE what IN ('tenant', 'quota') AND (until_ms IS NULL OR until_ms > :now_ms)

-- name: whole_store_paused
-- A row, if it is.
SELECT 1
FROM jobpool_pauses
WHERE what = 'store' AND (until_ms IS NULL OR until_ms > :now_ms)

-- name: limits_version
-- It changes whenever something does that is in force.
SELECT value FROM jobpool_meta WHERE name = 'limits_version'

-- name: note_contested
-- Something has changed for lanes that wait for buckets.
INSERT INTO jobpool_bucket_notes (bucket)
SELECT id FROM jobpool_buckets WHERE contested = 1 ORDER BY checked_at_ms LIMIT :limit

-- name: publish_limits
-- Of a run; NULL: none.
UPDATE jobpool_runs SET limits = :limits WHERE id = :run_id

-- name: set_quota
-- Above what applications define.
INSERT INTO jobpool_quotas (
  name, rate_permits, rate_per_s, burst, concurrency, until_ms, who, note, updated_at_ms
)
VALUES (
  :name, :rate_permits, :rate_per_s, :burst, :concurrency, :until_ms, :who,
  :note, :now_ms
)
ON CONFLICT (name) DO UPDATE
SET
  rate_permits = excluded.rate_permits,
  rate_per_s = excluded.rate_per_s,
  burst = excluded.burst,
  concurrency = excluded.concurrency,
  until_ms = excluded.until_ms,
  who = excluded.who,
  note = excluded.note,
  updated_at_ms = excluded.updated_at_ms

-- name: set_tenant
-- Above what applications define.
INSERT INTO jobpool_tenants (
  name, concurrency, rate_permits, rate_per_s, burst, weight, who, updated_at_ms
)
VALUES (
  :name, :concurrency, :rate_permits, :rate_per_s, :burst, :weight, :who,
  :now_ms
)
ON CONFLICT (name) DO UPDATE
SET
  concurrency = excluded.concurrency,
  rate_permits = excluded.rate_permits,
  rate_per_s = excluded.rate_per_s,
  burst = excluded.burst,
  weight = excluded.weight,
  who = excluded.who,
  updated_at_ms = excluded.updated_at_ms

-- name: used_buckets
-- Of a quota: those that are blocked, whose rate was used lately, or whose service was
-- seen to fail.
SELECT id
FROM jobpool_buckets
WHERE quota = :quota
  AND (block_until_ms > :now_ms OR tat_us > 1000 * :now_ms OR breaker IS NOT NULL)
ORDER BY id

-- name: prune_quotas
-- What was set for a while, which is over.
DELETE FROM jobpool_quotas WHERE until_ms <= :now_ms

-- name: leave_idle_lanes
-- Whose jobs went on another path, since no quota concerns their kind any more.
UPDATE jobpool_lanes
SET waits = 0, open_at_ms = 0, blocked_by = NULL
WHERE id IN (
  SELECT l.id
  FROM jobpool_lanes AS l
  WHERE l.waits = 1 AND l.vtime < :before_ms
    AND NOT EXISTS (
      SELECT 1 FROM jobpool_jobs AS r WHERE r.lane = l.id AND r.state = 'runnable'
    )
  LIMIT :limit
)

-- name: prune_lanes
-- Without a runnable job for long; a note makes them again.
DELETE FROM jobpool_lanes
WHERE id IN (
  SELECT l.id
  FROM jobpool_lanes AS l
  WHERE l.waits = 0 AND l.vtime < :before_ms
    AND NOT EXISTS (SELECT 1 FROM jobpool_lane_notes AS n WHERE n.lane = l.id)
  LIMIT :limit
)

-- name: prune_buckets
-- Of which nothing was used for long; a claim makes them again.
DELETE FROM jobpool_buckets
WHERE id IN (
  SELECT b.id
  FROM jobpool_buckets AS b
  WHERE b.contested = 0 AND b.breaker IS NULL AND b.checked_at_ms < :before_ms
    AND b.block_until_ms < :before_ms AND b.tat_us < 1000 * :before_ms
    AND NOT EXISTS (SELECT 1 FROM jobpool_permits AS p WHERE p.bucket = b.id)
  LIMIT :limit
)

-- name: idle_counts
-- Buckets of which something was counted, and that nobody has looked at for long.
SELECT id, quota, value, breaker
FROM jobpool_buckets
WHERE breaker IS NOT NULL AND checked_at_ms < :before_ms
ORDER BY checked_at_ms
LIMIT :limit

-- name: drop_counts
-- Of buckets of :ids; others are looked at again later.
UPDATE jobpool_buckets
SET breaker = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: laned_jobs
-- Runnable jobs by what they count by, of those that are of a lane; with whether it is
-- one of retries.
SELECT j.pool, j.kind, j.tenant, j.quota_values, j.lane < 0, counted.jobs
FROM (
  SELECT lane, count(*) AS jobs, min(id) AS id
  FROM jobpool_jobs
  WHERE state = 'runnable' AND lane IS NOT NULL
  GROUP BY lane
) AS counted
CROSS JOIN jobpool_jobs AS j ON j.id = counted.id

-- name: unstamped_jobs
-- Likewise of those that are of none, among the first.
SELECT pool, kind, tenant, quota_values, again, count(*)
FROM (
  SELECT pool, kind, tenant, quota_values, failures + crashes > 0 AS again
  FROM jobpool_jobs
  WHERE state = 'runnable' AND lane IS NULL
    AND kind IN (SELECT value FROM json_each(:kinds))
  LIMIT :limit
) AS first
GROUP BY pool, kind, tenant, quota_values, again

-- name: kinds_that_wait
-- With their pools.
SELECT DISTINCT pool, kind FROM jobpool_jobs WHERE state = 'runnable'

-- name: counted_by
-- What a runnable job counts by, and whether it is a retry.
SELECT kind, tenant, quota_values, coalesce(lane < 0, failures + crashes > 0)
FROM jobpool_jobs
WHERE id = :id AND +state = 'runnable'

-- name: buckets_of
-- Of a quota, or of all; with what is held, which may be more than what counts.
SELECT
  b.id, b.quota, b.value, b.tat_us, b.block_until_ms, b.breaker,
  (SELECT coalesce(sum(p.cost), 0) FROM jobpool_permits AS p WHERE p.bucket = b.id)
FROM jobpool_buckets AS b
WHERE :quota IS NULL OR b.quota = :quota
ORDER BY b.quota, b.value
LIMIT :limit

-- name: buckets_by_id
-- As buckets_of, of :ids.
SELECT
  b.id, b.quota, b.value, b.tat_us, b.block_until_ms, b.breaker,
  (SELECT coalesce(sum(p.cost), 0) FROM jobpool_permits AS p WHERE p.bucket = b.id)
FROM jobpool_buckets AS b
WHERE b.id IN (SELECT value FROM json_each(:ids))

-- name: notes_of_buckets
-- What has happened to buckets that no claim has seen yet, in order.
SELECT bucket, refund, held_from_us, block_until_ms
FROM jobpool_bucket_notes
ORDER BY id
LIMIT :limit

-- name: holders
-- Jobs that hold permits of a bucket.
SELECT DISTINCT job_id FROM jobpool_permits WHERE bucket = :bucket ORDER BY job_id LIMIT :limit

-- name: completed_in_use
-- Those of :ids whose handlers have completed them and still work, with permits: without
-- its job, a permit would count for nothing.
SELECT j.id
FROM jobpool_jobs AS j
WHERE j.id IN (SELECT value FROM json_each(:ids))
  AND j.completed_token IS NOT NULL
  AND EXISTS (
    SELECT 1
    FROM jobpool_permits AS p
    JOIN jobpool_runs AS r ON r.id = p.run_id
    WHERE p.token = j.completed_token AND r.ended_at_ms IS NULL
  )

-- name: counted_values
-- What finished jobs of :ids were counted by.
SELECT tenant, quota_values
FROM jobpool_jobs
WHERE id IN (SELECT value FROM json_each(:ids)) AND finished_at_ms IS NOT NULL

-- name: forget_lanes
-- Of finished jobs of :ids, unless other jobs wait there.
DELETE FROM jobpool_lanes
WHERE id IN (
    SELECT j.lane
    FROM jobpool_jobs AS j
    WHERE j.id IN (SELECT value FROM json_each(:ids))
      AND j.finished_at_ms IS NOT NULL AND j.lane IS NOT NULL
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_jobs AS r
    WHERE r.lane = jobpool_lanes.id AND r.state = 'runnable'
  )

-- name: forget_values
-- Buckets of :values, unless they are in use.
DELETE FROM jobpool_buckets
WHERE value IN (SELECT value FROM json_each(:values))
  AND contested = 0 AND breaker IS NULL AND block_until_ms <= :now_ms AND tat_us <= 1000 * :now_ms
  AND NOT EXISTS (SELECT 1 FROM jobpool_permits AS p WHERE p.bucket = jobpool_buckets.id)
