-- Lanes and buckets, as leasing uses them: jobs that the same buckets hold back wait in
-- one lane, and nothing is read of a lane that is blocked.
--
-- Locks are taken in this order: fair pools (shares.sql), notes and jobs (skipping what others hold), lanes that
-- got jobs (by id, waiting), buckets (by id, waiting), lanes that are leased from
-- (skipping). So whoever holds a bucket waits for nobody.
--
-- The index of lanes' jobs has the condition `state || ''`: a query that means it can use
-- no other, which stale statistics may report as empty.

-- name: lanes_look
-- Whether lanes have got jobs, whether buckets have got something, and when the next lane
-- opens by itself.
SELECT
  EXISTS (SELECT 1 FROM jobpool.lane_notes),
  EXISTS (SELECT 1 FROM jobpool.bucket_notes),
  (SELECT min(open_at_ms) FROM jobpool.lanes WHERE open_at_ms > 0)

-- name: lanes_opening
-- :kinds holds [pool, kind]. When the first of their lanes opens by itself, among those
-- that open next.
SELECT min(l.open_at_ms)
FROM (
  SELECT pool, kind, open_at_ms
  FROM jobpool.lanes
  WHERE open_at_ms > 0
  ORDER BY open_at_ms
  LIMIT %(limit)s
) AS l
WHERE EXISTS (
  SELECT 1
  FROM jsonb_array_elements(%(kinds)s::jsonb) AS known (value)
  WHERE known.value ->> 0 = l.pool AND known.value ->> 1 = l.kind
)

-- name: find_stragglers
-- :rows holds [pool, kind, priority, run_at, id]. The runnable jobs that follow in order,
-- perhaps more than asked for; each with whether it is of a lane, and the next lower
-- priority that there is.
SELECT
  (look.place - 1)::integer,
  (
    SELECT max(r.priority)
    FROM jobpool.jobs AS r
    WHERE r.state = 'runnable'
      AND r.pool = look.value ->> 0
      AND r.kind = look.value ->> 1
      AND r.priority < (look.value ->> 2)::integer
  ),
  j.id,
  j.run_at_ms,
  j.is_in_lane
FROM jsonb_array_elements(%(rows)s::jsonb) WITH ORDINALITY AS look (value, place)
LEFT JOIN LATERAL (
  SELECT r.id, r.run_at_ms, r.lane IS NOT NULL AS is_in_lane
  FROM jobpool.jobs AS r
  WHERE r.state = 'runnable'
    AND r.pool = look.value ->> 0
    AND r.kind = look.value ->> 1
    AND r.priority = (look.value ->> 2)::integer
    AND (r.run_at_ms, r.id) > ((look.value ->> 3)::bigint, (look.value ->> 4)::bigint)
  ORDER BY r.run_at_ms, r.id
  LIMIT %(limit)s
) AS j ON true
ORDER BY look.place, j.run_at_ms, j.id

-- name: last_of_priority
-- In the order of the index, of one priority.
SELECT run_at_ms, id
FROM jobpool.jobs
WHERE state = 'runnable' AND pool = %(pool)s AND kind = %(kind)s
  AND priority = %(priority)s
ORDER BY run_at_ms DESC, id DESC
LIMIT 1

-- name: jobs_of_lanes
-- :ids of lanes. Their first jobs.
SELECT j.id
FROM jsonb_array_elements_text(%(ids)s::jsonb) AS lane (id)
CROSS JOIN LATERAL (
  SELECT r.id
  FROM jobpool.jobs AS r
  WHERE r.lane = lane.id::bigint AND r.state || '' = 'runnable'
  ORDER BY r.run_at_ms, r.id
  LIMIT %(limit)s
) AS j
LIMIT %(limit)s

-- name: hold_stragglers
-- :ids of jobs; whether each is a retry; and the arguments of those of :kinds, unless
-- they are encoded.
SELECT
  j.id, j.pool, j.kind, j.priority, j.tenant, j.quota_values,
  (j.failures + j.crashes > 0)::integer,
  CASE
    WHEN j.codec IS NULL
      AND j.kind IN (SELECT value FROM jsonb_array_elements_text(%(kinds)s::jsonb))
      THEN j.payload
  END
FROM jobpool.jobs AS j
WHERE j.id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND j.state || '' = 'runnable'
ORDER BY j.id
FOR UPDATE OF j SKIP LOCKED

-- name: stamp_jobs
-- :rows holds [id, lane, values].
UPDATE jobpool.jobs AS j
SET lane = (stamped.value ->> 1)::bigint, quota_values = stamped.value ->> 2
FROM jsonb_array_elements(%(rows)s::jsonb) AS stamped
WHERE j.id = (stamped.value ->> 0)::bigint AND j.state || '' = 'runnable'

-- name: take_lane_notes
-- Lanes that have got a job, perhaps.
DELETE FROM jobpool.lane_notes
WHERE ctid = ANY (
    ARRAY(
      SELECT ctid
      FROM jobpool.lane_notes
      ORDER BY lane, xact
      LIMIT %(limit)s
      FOR UPDATE SKIP LOCKED
    )
  )
RETURNING lane

-- name: join_lanes
-- :ids of lanes, in order. Those that have a runnable job wait from now on; what is not
-- known of a lane is read from its first one. :aged: pools and milliseconds in which what
-- waits there rises by one priority; their lanes are all of one rank.
INSERT INTO jobpool.lanes AS l (
  id, pool, kind, priority, tenant, values_json, rank, vtime, waits
)
SELECT
  noted.id, j.pool, j.kind, j.priority, j.tenant, coalesce(j.quota_values, '{}'),
  CASE WHEN aged.aging_ms IS NULL THEN j.priority ELSE 0 END,
  j.run_at_ms - j.priority * coalesce(aged.aging_ms, 0),
  true
FROM (
  SELECT value::bigint AS id
  FROM jsonb_array_elements_text(%(ids)s::jsonb)
  ORDER BY value::bigint
) AS noted
CROSS JOIN LATERAL (
  SELECT r.pool, r.kind, r.priority, r.tenant, r.quota_values, r.run_at_ms
  FROM jobpool.jobs AS r
  WHERE r.lane = noted.id AND r.state || '' = 'runnable'
  ORDER BY r.run_at_ms, r.id
  LIMIT 1
) AS j
LEFT JOIN LATERAL (
  SELECT (%(aged)s::jsonb ->> j.pool)::double precision AS aging_ms
) AS aged ON true
ORDER BY noted.id
ON CONFLICT (id) DO UPDATE
SET rank = excluded.rank, vtime = excluded.vtime, waits = true
WHERE NOT l.waits OR l.vtime <> excluded.vtime OR l.rank <> excluded.rank
RETURNING id

-- name: lanes_of_jobs
-- The next lanes that have a runnable job, and whether each is not known to wait, or by
-- other rules of its pool (:aged as in join_lanes; :fair: pools, and who has shares).
WITH RECURSIVE step (lane, place) AS (
  SELECT
    (
      SELECT r.lane
      FROM jobpool.jobs AS r
      WHERE r.lane > %(after)s AND r.state || '' = 'runnable'
      ORDER BY r.lane
      LIMIT 1
    ),
    1
  UNION ALL
  SELECT
    (
      SELECT r.lane
      FROM jobpool.jobs AS r
      WHERE r.lane > step.lane AND r.state || '' = 'runnable'
      ORDER BY r.lane
      LIMIT 1
    ),
    step.place + 1
  FROM step
  WHERE step.lane IS NOT NULL AND step.place < %(limit)s::integer
)
SELECT
  step.lane,
  NOT EXISTS (
    SELECT 1
    FROM jobpool.lanes AS l
    CROSS JOIN LATERAL (
      SELECT
        (%(aged)s::jsonb ->> l.pool)::double precision AS aging_ms,
        %(fair)s::jsonb ->> l.pool AS fair
    ) AS pool
    WHERE l.id = step.lane AND l.waits
      AND l.rank = CASE WHEN pool.aging_ms IS NULL THEN l.priority ELSE 0 END
      AND (
        pool.aging_ms IS NULL
        OR l.vtime = (
          SELECT r.run_at_ms
          FROM jobpool.jobs AS r
          WHERE r.lane = l.id AND r.state || '' = 'runnable'
          ORDER BY r.run_at_ms, r.id
          LIMIT 1
        ) - l.priority * pool.aging_ms
      )
      AND (
        pool.fair IS NULL
        OR l.open_at_ms > 0
        OR l.blocked_by IS NOT NULL
        OR EXISTS (
          SELECT 1
          FROM jobpool.shares AS s
          WHERE s.pool = l.pool AND s.priority = l.priority AND s.kind = l.kind
            AND s.who = CASE WHEN pool.fair = 'kind' THEN l.kind ELSE coalesce(l.tenant, '') END
            AND s.waits
        )
      )
  )
FROM step
WHERE step.lane IS NOT NULL

-- name: open_due_lanes
-- Their time has come.
UPDATE jobpool.lanes
SET open_at_ms = 0, blocked_by = NULL
WHERE ctid = ANY (
    ARRAY(
      SELECT ctid
      FROM jobpool.lanes
      WHERE open_at_ms > 0 AND open_at_ms <= %(now_ms)s
      ORDER BY open_at_ms
      LIMIT %(limit)s
      FOR UPDATE SKIP LOCKED
    )
  )

-- name: open_lanes
-- The first of each kind from its own range of the index, then the first of these.
WITH known AS MATERIALIZED (
  SELECT k.kind
  FROM jsonb_array_elements_text(%(kinds)s::jsonb) AS k (kind)
  WHERE NOT EXISTS (
    SELECT 1
    FROM jobpool.pauses AS p
    WHERE (
        (p.what = 'kind' AND p.name = k.kind)
        OR (p.what = 'pool' AND p.name = %(pool)s::text)
      )
      AND (
        p.until_ms IS NULL
        OR p.until_ms > coalesce(
          %(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint
        )
      )
  )
)
SELECT c.id, c.kind, c.tenant, c.values_json, c.rank, c.vtime
FROM known
CROSS JOIN LATERAL (
  SELECT n.id, n.kind, n.tenant, n.values_json, n.rank, n.vtime
  FROM jobpool.lanes AS n
  WHERE n.pool = %(pool)s::text AND n.kind = known.kind
    AND n.waits AND n.open_at_ms = 0 AND n.blocked_by IS NULL
  ORDER BY n.rank DESC, n.vtime, n.id
  LIMIT %(limit)s::bigint
) AS c
ORDER BY c.rank DESC, c.vtime, c.id
LIMIT %(limit)s::bigint

-- name: noted_lanes
-- Lanes that have got jobs since the last claim, as open_lanes.
SELECT n.lane, j.kind, j.tenant, j.quota_values, j.priority, j.run_at_ms
FROM (SELECT DISTINCT lane FROM jobpool.lane_notes) AS n
CROSS JOIN LATERAL (
  SELECT r.kind, r.pool, r.tenant, r.quota_values, r.priority, r.run_at_ms
  FROM jobpool.jobs AS r
  WHERE r.lane = n.lane AND r.state || '' = 'runnable'
  ORDER BY r.run_at_ms, r.id
  LIMIT 1
) AS j
WHERE j.pool = %(pool)s::text
  AND j.kind IN (SELECT value FROM jsonb_array_elements_text(%(kinds)s::jsonb))
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.pauses AS p
    WHERE (
        (p.what = 'kind' AND p.name = j.kind)
        OR (p.what = 'pool' AND p.name = %(pool)s::text)
      )
      AND (p.until_ms IS NULL OR p.until_ms > %(now_ms)s)
  )
LIMIT %(limit)s

-- name: count_in_lanes
-- :ids of lanes. Their runnable jobs, each up to a limit.
SELECT
  lane.id::bigint,
  (
    SELECT count(*)
    FROM (
      SELECT 1
      FROM jobpool.jobs AS r
      WHERE r.lane = lane.id::bigint AND r.state || '' = 'runnable'
      ORDER BY r.run_at_ms, r.id
      LIMIT %(limit)s
    ) AS first
  )
FROM jsonb_array_elements_text(%(ids)s::jsonb) AS lane (id)

-- name: lock_lanes
-- :ids of lanes. Those that are still open, and that nobody else leases from now.
SELECT id
FROM jobpool.lanes
WHERE id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND waits AND open_at_ms + 0 = 0 AND coalesce(blocked_by, 0) = 0
FOR UPDATE SKIP LOCKED

-- name: free_lanes
-- The first of the lanes that wait for a bucket need not any more: those whose jobs have
-- waited longest, and in fair pools also those whose turn it is.
UPDATE jobpool.lanes
SET open_at_ms = 0, blocked_by = NULL
WHERE ctid = ANY (
    ARRAY(
      SELECT ctid
      FROM jobpool.lanes
      WHERE blocked_by = %(bucket)s
      ORDER BY rank DESC, vtime, id
      LIMIT %(limit)s
      FOR UPDATE SKIP LOCKED
    ) || ARRAY(
      SELECT ctid
      FROM jobpool.lanes
      WHERE blocked_by = %(bucket)s AND turn IS NOT NULL
      ORDER BY rank DESC, turn, id
      LIMIT %(limit)s
      FOR UPDATE SKIP LOCKED
    )
  )

-- name: lane_heads
-- :ids of lanes. The first jobs of each, as lease_candidates, with the lane. Nobody else
-- leases from these lanes, which are locked.
WITH first AS MATERIALIZED (
  SELECT c.id
  FROM jsonb_array_elements_text(%(ids)s::jsonb) AS asked (lane)
  CROSS JOIN LATERAL (
    SELECT r.id
    FROM jobpool.jobs AS r
    WHERE r.lane = asked.lane::bigint AND r.state || '' = 'runnable'
      AND r.id <> ALL (ARRAY(SELECT job_id FROM jobpool.suspects))
      AND (
        NOT (SELECT EXISTS (SELECT 1 FROM jobpool.misfits))
        OR NOT EXISTS (
          SELECT 1
          FROM jobpool.misfits AS m
          JOIN jobpool.kinds AS own
            ON own.kind = r.kind AND own.schema_digest = m.schema_digest
          WHERE m.job_id = r.id AND own.run_id = %(run_id)s::text
            AND m.until_ms > %(now_ms)s
          OFFSET 0
        )
      )
    ORDER BY r.run_at_ms, r.id
    LIMIT %(limit)s
  ) AS c
)
SELECT
  j.id, j.kind, j.pool, j.attempt, j.payload, j.checkpoint,
  j.max_attempts, j.timeout_s, j.memory_bytes,
  j.failures, j.crashes, j.interruptions, j.recoveries, j.throttled,
  j.reset_attempt, j.expires_at_ms, j.token, j.leased_at_ms,
  j.snoozes, j.snoozed_since_ms,
  j.priority, j.key, j.tenant, j.codec, j.tick, j.run_at_ms, j.step,
  j.trace, j.lane
FROM jobpool.jobs AS j
WHERE j.id = ANY (ARRAY(SELECT id FROM first)) AND j.state || '' = 'runnable'
FOR UPDATE OF j SKIP LOCKED

-- name: leave_lanes
-- :rows holds [id, time, bucket, turn, aging] of lanes, which are locked: what each waits
-- for, unless it has no job any more; whose turn it is, in a fair pool; and by how much its
-- jobs rise, in an aged one. And when its first one was due.
UPDATE jobpool.lanes AS l
SET
  waits = remaining.run_at_ms IS NOT NULL,
  rank = CASE WHEN remaining.aging_ms IS NULL THEN l.priority ELSE 0 END,
  vtime = coalesce(
    remaining.run_at_ms - l.priority * coalesce(remaining.aging_ms, 0), l.vtime
  ),
  turn = remaining.turn,
  open_at_ms = CASE
    WHEN remaining.run_at_ms IS NULL THEN 0
    ELSE remaining.open_at_ms
  END,
  blocked_by = CASE WHEN remaining.run_at_ms IS NOT NULL THEN remaining.blocked_by END
FROM (
  SELECT
    (value ->> 0)::bigint AS id,
    (value ->> 1)::bigint AS open_at_ms,
    (value ->> 2)::bigint AS blocked_by,
    (value ->> 3)::double precision AS turn,
    (value ->> 4)::double precision AS aging_ms,
    (
      SELECT r.run_at_ms
      FROM jobpool.jobs AS r
      WHERE r.lane = (value ->> 0)::bigint AND r.state || '' = 'runnable'
      ORDER BY r.run_at_ms, r.id
      LIMIT 1
    ) AS run_at_ms
  FROM jsonb_array_elements(%(rows)s::jsonb)
) AS remaining
WHERE l.id = remaining.id

-- name: open_lanes_of_rules
-- What is in force has changed. Those that would have to wait longest, and those that
-- wait for a bucket: perhaps their jobs do not need it any more.
UPDATE jobpool.lanes
SET open_at_ms = 0, blocked_by = NULL
WHERE ctid = ANY (
    ARRAY(
      SELECT ctid
      FROM jobpool.lanes
      WHERE open_at_ms > 0
      ORDER BY open_at_ms DESC
      LIMIT %(limit)s
      FOR UPDATE SKIP LOCKED
    ) || ARRAY(
      SELECT ctid
      FROM jobpool.lanes
      WHERE blocked_by IS NOT NULL
      ORDER BY blocked_by, rank DESC, vtime, id
      LIMIT %(limit)s
      FOR UPDATE SKIP LOCKED
    )
  )
