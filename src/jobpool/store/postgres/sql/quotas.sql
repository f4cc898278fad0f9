-- Quotas: what is in force.

-- name: bump_limits
-- What is in force changes with this transaction. Random, so that the number of one that
-- was rolled back does not come again.
UPDATE jobpool.meta
SET value = value % 4503599627370496 + 1 + floor(random() * 1048576)::bigint
WHERE name = 'limits_version'

-- name: published_limits
-- By runs that have not ended.
SELECT id, version, host, pid, coalesce(app_since_ms, 0), lease_until_ms, limits
FROM jobpool.runs
WHERE ended_at_ms IS NULL

-- name: published_needs
-- By runs that have not ended; with the kind's other names, if they are known.
SELECT k.run_id, k.kind, k.at_most_once, k.needs
FROM jobpool.kinds AS k
JOIN jobpool.runs AS r ON r.id = k.run_id
WHERE k.needs IS NOT NULL AND r.ended_at_ms IS NULL

-- name: quota_pauses
-- Of tenants and quotas.
SELECT what, name, until_ms, note
FROM jobpool.pauses
WHERE what IN ('tenant', 'quota') AND (until_ms IS NULL OR until_ms > %(now_ms)s)

-- name: whole_store_paused
-- A row, if it is.
SELECT 1
FROM jobpool.pauses
WHERE what = 'store' AND (until_ms IS NULL OR until_ms > %(now_ms)s)

-- name: limits_version
-- It changes whenever something does that is in force.
SELECT value FROM jobpool.meta WHERE name = 'limits_version'

-- name: note_contested
-- Something has changed for lanes that wait for buckets.
INSERT INTO jobpool.bucket_notes (bucket)
SELECT id FROM jobpool.buckets WHERE contested ORDER BY checked_at_ms LIMIT %(limit)s

-- name: publish_limits
-- Of a run; NULL: none.
UPDATE jobpool.runs SET limits = %(limits)s WHERE id = %(run_id)s

-- name: set_quota
-- Above what applications define.
INSERT INTO jobpool.quotas (
  name, rate_permits, rate_per_s, burst, concurrency, until_ms, who, note, updated_at_ms
)
VALUES (
  %(name)s, %(rate_permits)s, %(rate_per_s)s, %(burst)s, %(concurrency)s, %(until_ms)s, %(who)s,
  %(note)s, %(now_ms)s
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
INSERT INTO jobpool.tenants (
  name, concurrency, rate_permits, rate_per_s, burst, weight, who, updated_at_ms
)
VALUES (
  %(name)s, %(concurrency)s, %(rate_permits)s, %(rate_per_s)s, %(burst)s, %(weight)s, %(who)s,
  %(now_ms)s
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
FROM jobpool.buckets
WHERE quota = %(quota)s
  AND (
    block_until_ms > %(now_ms)s OR tat_us > 1000 * %(now_ms)s::bigint
    OR breaker IS NOT NULL
  )
ORDER BY id

-- name: prune_quotas
-- What was set for a while, which is over.
DELETE FROM jobpool.quotas WHERE until_ms <= %(now_ms)s

-- name: leave_idle_lanes
-- Whose jobs went on another path, since no quota concerns their kind any more. A lane
-- that gets a job at this moment gets another `vtime` with it.
UPDATE jobpool.lanes
SET waits = false, open_at_ms = 0, blocked_by = NULL
WHERE ctid = ANY (
    ARRAY(
      SELECT l.ctid
      FROM jobpool.lanes AS l
      WHERE l.waits AND l.vtime < %(before_ms)s
        AND NOT EXISTS (
          SELECT 1
          FROM jobpool.jobs AS r
          WHERE r.lane = l.id AND r.state || '' = 'runnable'
          OFFSET 0
        )
      LIMIT %(limit)s
      FOR UPDATE SKIP LOCKED
    )
  )

-- name: prune_lanes
-- Without a runnable job for long; a note makes them again.
DELETE FROM jobpool.lanes
WHERE ctid = ANY (
    ARRAY(
      SELECT l.ctid
      FROM jobpool.lanes AS l
      WHERE NOT l.waits AND l.vtime < %(before_ms)s
        AND NOT EXISTS (SELECT 1 FROM jobpool.lane_notes AS n WHERE n.lane = l.id)
      LIMIT %(limit)s
      FOR UPDATE SKIP LOCKED
    )
  )

-- name: prune_buckets
-- Of which nothing was used for long; a claim makes them again.
DELETE FROM jobpool.buckets
WHERE ctid = ANY (
    ARRAY(
      SELECT b.ctid
      FROM jobpool.buckets AS b
      WHERE NOT b.contested AND b.breaker IS NULL
        AND b.checked_at_ms < %(before_ms)s
        AND b.block_until_ms < %(before_ms)s
        AND b.tat_us < 1000 * %(before_ms)s::bigint
        AND NOT EXISTS (SELECT 1 FROM jobpool.permits AS p WHERE p.bucket = b.id)
      LIMIT %(limit)s
      FOR UPDATE OF b SKIP LOCKED
    )
  )

-- name: idle_counts
-- Buckets of which something was counted, and that nobody has looked at for long.
SELECT id, quota, value, breaker
FROM jobpool.buckets
WHERE breaker IS NOT NULL AND checked_at_ms < %(before_ms)s
ORDER BY checked_at_ms
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: drop_counts
-- Of buckets of :ids; others are looked at again later.
UPDATE jobpool.buckets
SET breaker = NULL
WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))

-- name: laned_jobs
-- Runnable jobs by what they count by, of those that are of a lane; with whether it is
-- one of retries.
SELECT j.pool, j.kind, j.tenant, j.quota_values, (j.lane < 0)::integer, counted.jobs
FROM (
  SELECT lane, count(*) AS jobs, min(id) AS id
  FROM jobpool.jobs
  WHERE state || '' = 'runnable' AND lane IS NOT NULL
  GROUP BY lane
) AS counted
JOIN jobpool.jobs AS j ON j.id = counted.id

-- name: unstamped_jobs
-- Likewise of those that are of none, among the first.
SELECT pool, kind, tenant, quota_values, again, count(*)
FROM (
  SELECT pool, kind, tenant, quota_values, (failures + crashes > 0)::integer AS again
  FROM jobpool.jobs
  WHERE state = 'runnable' AND lane IS NULL
    AND kind IN (SELECT value FROM jsonb_array_elements_text(%(kinds)s::jsonb))
  LIMIT %(limit)s
) AS first
GROUP BY pool, kind, tenant, quota_values, again

-- name: kinds_that_wait
-- With their pools.
SELECT DISTINCT pool, kind FROM jobpool.jobs WHERE state = 'runnable'

-- name: counted_by
-- What a runnable job counts by, and whether it is a retry.
SELECT kind, tenant, quota_values, coalesce((lane < 0)::integer, (failures + crashes > 0)::integer)
FROM jobpool.jobs
WHERE id = %(id)s AND state || '' = 'runnable'

-- name: buckets_of
-- Of a quota, or of all; with what is held, which may be more than what counts.
SELECT
  b.id, b.quota, b.value, b.tat_us, b.block_until_ms, b.breaker,
  (SELECT coalesce(sum(p.cost), 0)::bigint FROM jobpool.permits AS p WHERE p.bucket = b.id)
FROM jobpool.buckets AS b
WHERE %(quota)s::text IS NULL OR b.quota = %(quota)s::text
ORDER BY b.quota, b.value
LIMIT %(limit)s

-- name: buckets_by_id
-- As buckets_of, of :ids.
SELECT
  b.id, b.quota, b.value, b.tat_us, b.block_until_ms, b.breaker,
  (SELECT coalesce(sum(p.cost), 0)::bigint FROM jobpool.permits AS p WHERE p.bucket = b.id)
FROM jobpool.buckets AS b
WHERE b.id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))

-- name: notes_of_buckets
-- What has happened to buckets that no claim has seen yet, in order.
SELECT bucket, refund, held_from_us, block_until_ms
FROM jobpool.bucket_notes
ORDER BY id
LIMIT %(limit)s

-- name: holders
-- Jobs that hold permits of a bucket.
SELECT DISTINCT job_id FROM jobpool.permits WHERE bucket = %(bucket)s ORDER BY job_id LIMIT %(limit)s

-- name: completed_in_use
-- Those of :ids whose handlers have completed them and still work, with permits: without
-- its job, a permit would count for nothing.
SELECT j.id
FROM jobpool.jobs AS j
WHERE j.id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND j.completed_token IS NOT NULL
  AND EXISTS (
    SELECT 1
    FROM jobpool.permits AS p
    JOIN jobpool.runs AS r ON r.id = p.run_id
    WHERE p.token = j.completed_token AND r.ended_at_ms IS NULL
    OFFSET 0
  )

-- name: counted_values
-- What finished jobs of :ids were counted by.
SELECT tenant, quota_values
FROM jobpool.jobs
WHERE id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND finished_at_ms IS NOT NULL

-- name: forget_lanes
-- Of finished jobs of :ids, unless other jobs wait there. What a claim holds stays.
DELETE FROM jobpool.lanes
WHERE ctid = ANY (
    ARRAY(
      SELECT l.ctid
      FROM jobpool.jobs AS j
      JOIN jobpool.lanes AS l ON l.id = j.lane
      WHERE j.id = ANY (
          ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
        )
        AND j.finished_at_ms IS NOT NULL
        AND NOT EXISTS (
          SELECT 1
          FROM jobpool.jobs AS r
          WHERE r.lane = l.id AND r.state || '' = 'runnable'
          OFFSET 0
        )
      FOR UPDATE OF l SKIP LOCKED
    )
  )

-- name: forget_values
-- Buckets of :values, unless they are in use.
DELETE FROM jobpool.buckets
WHERE ctid = ANY (
    ARRAY(
      SELECT b.ctid
      FROM jobpool.buckets AS b
      WHERE b.value IN (SELECT value FROM jsonb_array_elements_text(%(values)s::jsonb))
        AND NOT b.contested AND b.breaker IS NULL AND b.block_until_ms <= %(now_ms)s
        AND b.tat_us <= 1000 * %(now_ms)s::bigint
        AND NOT EXISTS (SELECT 1 FROM jobpool.permits AS p WHERE p.bucket = b.id)
      FOR UPDATE OF b SKIP LOCKED
    )
  )
