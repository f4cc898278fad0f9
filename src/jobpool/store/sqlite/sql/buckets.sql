-- Buckets of quotas, and the permits that attempts hold of them.

-- name: make_buckets
-- :rows holds [id, quota, value], in order.
INSERT INTO jobpool_buckets (id, quota, value, checked_at_ms)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  :now_ms
FROM json_each(:rows)
WHERE true
ON CONFLICT (id) DO NOTHING

-- name: lock_buckets
-- :ids of buckets, in order.
SELECT id, quota, value, tat_us, block_until_ms, contested, checked_at_ms, breaker
FROM jobpool_buckets
WHERE id IN (SELECT value FROM json_each(:ids))
ORDER BY id

-- name: try_buckets
-- As lock_buckets: there is one writer.
SELECT id, quota, value, tat_us, block_until_ms, contested, checked_at_ms, breaker
FROM jobpool_buckets
WHERE id IN (SELECT value FROM json_each(:ids))
ORDER BY id

-- name: permits_in_use
-- :ids of buckets. At most so many; some may be dead.
SELECT bucket, sum(cost)
FROM jobpool_permits
WHERE bucket IN (SELECT value FROM json_each(:ids))
GROUP BY bucket

-- name: sweep_permits
-- :ids of buckets. Of attempts that have ended, on whatever path.
DELETE FROM jobpool_permits
WHERE bucket IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_jobs AS j
    WHERE j.id = jobpool_permits.job_id
      AND (
        j.token = jobpool_permits.token
        OR (
          j.completed_token = jobpool_permits.token
          AND EXISTS (
            SELECT 1
            FROM jobpool_runs AS r
            WHERE r.id = jobpool_permits.run_id AND r.ended_at_ms IS NULL
          )
        )
      )
  )
RETURNING bucket

-- name: insert_permits
-- :rows holds [bucket, token, n, job, cost, held from].
INSERT OR IGNORE INTO jobpool_permits (
  bucket, token, n, job_id, run_id, cost, held_from_us
)
SELECT
  json_extract(value, '$[0]'),
  json_extract(value, '$[1]'),
  json_extract(value, '$[2]'),
  json_extract(value, '$[3]'),
  :run_id,
  json_extract(value, '$[4]'),
  json_extract(value, '$[5]')
FROM json_each(:rows)

-- name: change_buckets
-- :rows holds [id, arrival time, blocked until, contested, checked at, breaker].
UPDATE jobpool_buckets
SET
  tat_us = json_extract(changed.value, '$[1]'),
  block_until_ms = json_extract(changed.value, '$[2]'),
  contested = json_extract(changed.value, '$[3]'),
  checked_at_ms = json_extract(changed.value, '$[4]'),
  breaker = json_extract(changed.value, '$[5]')
FROM json_each(:rows) AS changed
WHERE jobpool_buckets.id = json_extract(changed.value, '$[0]')

-- name: wanted_buckets
-- :ids of buckets. Those that lanes wait for.
SELECT wanted.value
FROM json_each(:ids) AS wanted
WHERE EXISTS (SELECT 1 FROM jobpool_lanes AS l WHERE l.blocked_by = wanted.value)

-- name: take_bucket_notes
-- What has happened to buckets, in order.
DELETE FROM jobpool_bucket_notes
WHERE id IN (SELECT id FROM jobpool_bucket_notes ORDER BY id LIMIT :limit)
RETURNING bucket, refund, held_from_us, block_until_ms

-- name: note_buckets
-- :rows holds [bucket, blocked until].
INSERT INTO jobpool_bucket_notes (bucket, block_until_ms)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:rows)

-- name: free_permits
-- :tokens of attempts that have ended.
DELETE FROM jobpool_permits
WHERE token IN (SELECT value FROM json_each(:tokens))
RETURNING bucket, token, cost, held_from_us

-- name: freed_buckets
-- :ids of buckets; with whether lanes wait for them.
SELECT id, quota, value, contested
FROM jobpool_buckets
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: note_refunds
-- :rows holds [bucket, refund, held from].
INSERT INTO jobpool_bucket_notes (bucket, refund, held_from_us)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
FROM json_each(:rows)

-- name: permits_asked
-- :rows holds [job, token, bucket, n]. Those whose attempt has not ended: their place,
-- and whether it has the permit already.
SELECT
  asked.key,
  EXISTS (
    SELECT 1
    FROM jobpool_permits AS p
    WHERE p.bucket = json_extract(asked.value, '$[2]')
      AND p.token = json_extract(asked.value, '$[1]')
      AND p.n = json_extract(asked.value, '$[3]')
  )
FROM json_each(:rows) AS asked
CROSS JOIN jobpool_jobs AS j ON j.id = json_extract(asked.value, '$[0]')
WHERE (
    j.token = json_extract(asked.value, '$[1]') AND j.supervisor = :run_id
  )
  OR j.completed_token = json_extract(asked.value, '$[1]')

-- name: return_permits
-- :rows holds [token, n].
DELETE FROM jobpool_permits
WHERE token IN (SELECT json_extract(value, '$[0]') FROM json_each(:rows))
  AND (token, n) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:rows)
  )
RETURNING bucket, token, cost, held_from_us

-- name: contested_buckets
-- Those that were looked at longest ago.
SELECT id, quota, value, tat_us, block_until_ms, contested, checked_at_ms, breaker
FROM jobpool_buckets
WHERE contested = 1 AND checked_at_ms <= :before_ms
ORDER BY checked_at_ms
LIMIT :limit

-- name: living_probes
-- :rows holds [job, token]. Tokens of leases that have not ended.
SELECT j.token
FROM json_each(:rows) AS probe
CROSS JOIN jobpool_jobs AS j ON j.id = json_extract(probe.value, '$[0]')
WHERE j.token = json_extract(probe.value, '$[1]')
