-- Buckets of quotas, and the permits that attempts hold of them. A bucket, and which lanes
-- wait for it, is only changed under its lock (lanes.sql).

-- name: make_buckets
-- :rows holds [id, quota, value], in order.
INSERT INTO jobpool.buckets (id, quota, value, checked_at_ms)
SELECT (value ->> 0)::bigint, value ->> 1, value ->> 2, %(now_ms)s
FROM jsonb_array_elements(%(rows)s::jsonb) WITH ORDINALITY AS given (value, place)
ORDER BY place
ON CONFLICT (id) DO NOTHING

-- name: lock_buckets
-- :ids of buckets. In order, waiting: to skip one would spend its permits twice, or
-- leave them unused.
SELECT id, quota, value, tat_us, block_until_ms, contested::integer, checked_at_ms, breaker
FROM jobpool.buckets
WHERE id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
ORDER BY id
FOR UPDATE

-- name: try_buckets
-- As lock_buckets, for who holds some already: those that others hold are left out.
SELECT id, quota, value, tat_us, block_until_ms, contested::integer, checked_at_ms, breaker
FROM jobpool.buckets
WHERE id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
ORDER BY id
FOR UPDATE SKIP LOCKED

-- name: permits_in_use
-- :ids of buckets. At most so many; some may be dead.
SELECT bucket, sum(cost)::bigint
FROM jobpool.permits
WHERE bucket = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
GROUP BY bucket

-- name: sweep_permits
-- :ids of buckets. Of attempts that have ended, on whatever path.
DELETE FROM jobpool.permits
WHERE ctid = ANY (
    ARRAY(
      SELECT p.ctid
      FROM jobpool.permits AS p
      WHERE p.bucket = ANY (
          ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
        )
        AND NOT EXISTS (
          SELECT 1
          FROM jobpool.jobs AS j
          WHERE j.id = p.job_id
            AND (
              j.token = p.token
              OR (
                j.completed_token = p.token
                AND EXISTS (
                  SELECT 1
                  FROM jobpool.runs AS r
                  WHERE r.id = p.run_id AND r.ended_at_ms IS NULL
                )
              )
            )
          OFFSET 0
        )
      FOR UPDATE OF p SKIP LOCKED
    )
  )
RETURNING bucket

-- name: insert_permits
-- :rows holds [bucket, token, n, job, cost, held from].
INSERT INTO jobpool.permits (bucket, token, n, job_id, run_id, cost, held_from_us)
SELECT
  (value ->> 0)::bigint,
  (value ->> 1)::bigint,
  (value ->> 2)::bigint,
  (value ->> 3)::bigint,
  %(run_id)s,
  (value ->> 4)::bigint,
  (value ->> 5)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb)
ON CONFLICT (bucket, token, n) DO NOTHING

-- name: change_buckets
-- :rows holds [id, arrival time, blocked until, contested, checked at, breaker]. The buckets are
-- locked already.
UPDATE jobpool.buckets AS b
SET
  tat_us = (changed.value ->> 1)::bigint,
  block_until_ms = (changed.value ->> 2)::bigint,
  contested = (changed.value ->> 3)::integer = 1,
  checked_at_ms = (changed.value ->> 4)::bigint,
  breaker = changed.value ->> 5
FROM jsonb_array_elements(%(rows)s::jsonb) AS changed
WHERE b.id = (changed.value ->> 0)::bigint

-- name: wanted_buckets
-- :ids of buckets. Those that lanes wait for.
SELECT wanted.id::bigint
FROM jsonb_array_elements_text(%(ids)s::jsonb) AS wanted (id)
WHERE EXISTS (SELECT 1 FROM jobpool.lanes AS l WHERE l.blocked_by = wanted.id::bigint)

-- name: take_bucket_notes
-- What has happened to buckets, in order.
DELETE FROM jobpool.bucket_notes
WHERE ctid = ANY (
    ARRAY(
      SELECT ctid FROM jobpool.bucket_notes ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
  )
RETURNING bucket, refund, held_from_us, block_until_ms

-- name: note_buckets
-- :rows holds [bucket, blocked until].
INSERT INTO jobpool.bucket_notes (bucket, block_until_ms)
SELECT (value ->> 0)::bigint, (value ->> 1)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb)

-- name: free_permits
-- :tokens of attempts that have ended. What a sweep deletes at this moment is left to it.
DELETE FROM jobpool.permits
WHERE ctid = ANY (
    ARRAY(
      SELECT ctid
      FROM jobpool.permits
      WHERE token = ANY (
          ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(tokens)s::jsonb))
        )
      FOR UPDATE SKIP LOCKED
    )
  )
RETURNING bucket, token, cost, held_from_us

-- name: free_ended
-- :tokens of attempts: the permits of those that have ended by now, as free_permits, and
-- the notes of their buckets, if these are of :capped quotas (NULL: of any). Whether lanes
-- wait for one of them.
WITH freed AS (
  DELETE FROM jobpool.permits
  WHERE ctid = ANY (
      ARRAY(
        SELECT p.ctid
        FROM jobpool.permits AS p
        WHERE p.token = ANY (
            ARRAY(
              SELECT value::bigint FROM jsonb_array_elements_text(%(tokens)s::jsonb)
            )
          )
          AND NOT EXISTS (
            SELECT 1
            FROM jobpool.jobs AS j
            WHERE j.id = p.job_id AND p.token IN (j.token, j.completed_token)
            OFFSET 0
          )
        FOR UPDATE OF p SKIP LOCKED
      )
    )
  RETURNING bucket
),
capped AS (
  SELECT b.id, b.contested
  FROM (SELECT DISTINCT bucket FROM freed) AS f
  JOIN jobpool.buckets AS b ON b.id = f.bucket
  WHERE %(capped)s::jsonb IS NULL
    OR b.quota IN (SELECT value FROM jsonb_array_elements_text(%(capped)s::jsonb))
),
noted AS (
  INSERT INTO jobpool.bucket_notes (bucket) SELECT id FROM capped RETURNING bucket
)
SELECT EXISTS (SELECT 1 FROM capped WHERE contested) FROM (SELECT count(*) FROM noted) AS n

-- name: freed_buckets
-- :ids of buckets; with whether lanes wait for them, as far as can be seen.
SELECT id, quota, value, contested::integer
FROM jobpool.buckets
WHERE id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )

-- name: note_refunds
-- :rows holds [bucket, refund, held from].
INSERT INTO jobpool.bucket_notes (bucket, refund, held_from_us)
SELECT (value ->> 0)::bigint, (value ->> 1)::bigint, (value ->> 2)::bigint
FROM jsonb_array_elements(%(rows)s::jsonb)

-- name: permits_asked
-- :rows holds [job, token, bucket, n]. Those whose attempt has not ended: their place,
-- and whether it has the permit already.
SELECT
  (asked.place - 1)::integer,
  EXISTS (
    SELECT 1
    FROM jobpool.permits AS p
    WHERE p.bucket = (asked.value ->> 2)::bigint
      AND p.token = (asked.value ->> 1)::bigint
      AND p.n = (asked.value ->> 3)::bigint
  )
FROM jsonb_array_elements(%(rows)s::jsonb) WITH ORDINALITY AS asked (value, place)
JOIN jobpool.jobs AS j ON j.id = (asked.value ->> 0)::bigint
WHERE (j.token = (asked.value ->> 1)::bigint AND j.supervisor = %(run_id)s)
  OR j.completed_token = (asked.value ->> 1)::bigint

-- name: return_permits
-- :rows holds [token, n].
DELETE FROM jobpool.permits
WHERE ctid = ANY (
    ARRAY(
      SELECT p.ctid
      FROM jsonb_array_elements(%(rows)s::jsonb) AS given
      JOIN jobpool.permits AS p ON p.token = (given.value ->> 0)::bigint
      WHERE p.n = (given.value ->> 1)::bigint
      FOR UPDATE OF p SKIP LOCKED
    )
  )
RETURNING bucket, token, cost, held_from_us

-- name: contested_buckets
-- Those that were looked at longest ago.
SELECT id, quota, value, tat_us, block_until_ms, contested::integer, checked_at_ms, breaker
FROM jobpool.buckets
WHERE contested AND checked_at_ms <= %(before_ms)s
ORDER BY checked_at_ms
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: living_probes
-- :rows holds [job, token]. Tokens of leases that have not ended.
SELECT j.token
FROM jsonb_array_elements(%(rows)s::jsonb) AS probe
JOIN jobpool.jobs AS j ON j.id = (probe.value ->> 0)::bigint
WHERE j.token = (probe.value ->> 1)::bigint
