-- Lanes and buckets, as leasing uses them: jobs that the same buckets hold back wait in
-- one lane, and nothing is read of a lane that is blocked.

-- name: lanes_look
-- Whether lanes have got jobs, whether buckets have got something, and when the next lane
-- opens by itself.
SELECT
  EXISTS (SELECT 1 FROM jobpool_lane_notes),
  EXISTS (SELECT 1 FROM jobpool_bucket_notes),
  (SELECT min(open_at_ms) FROM jobpool_lanes WHERE open_at_ms > 0)

-- name: lanes_opening
-- :kinds holds [pool, kind]. When the first of their lanes opens by itself, among those
-- that open next.
SELECT min(l.open_at_ms)
FROM (
  SELECT pool, kind, open_at_ms
  FROM jobpool_lanes
  WHERE open_at_ms > 0
  ORDER BY open_at_ms
  LIMIT :limit
) AS l
WHERE EXISTS (
  SELECT 1
  FROM json_each(:kinds) AS known
  WHERE json_extract(known.value, '$[0]') = l.pool
    AND json_extract(known.value, '$[1]') = l.kind
)

-- name: find_stragglers
-- :rows holds [pool, kind, priority, run_at, id]. The runnable jobs that follow in order,
-- perhaps more than asked for; each with whether it is of a lane, and the next lower
-- priority that there is.
SELECT
  look.key,
  (
    SELECT max(r.priority)
    FROM jobpool_jobs AS r
    WHERE r.state = 'runnable'
      AND r.pool = json_extract(look.value, '$[0]')
      AND r.kind = json_extract(look.value, '$[1]')
      AND r.priority < json_extract(look.value, '$[2]')
  ),
  j.id,
  j.run_at_ms,
  j.lane IS NOT NULL
FROM json_each(:rows) AS look
LEFT JOIN jobpool_jobs AS j ON j.id IN (
  SELECT id
  FROM (
    SELECT r.id
    FROM jobpool_jobs AS r
    WHERE r.state = 'runnable'
      AND r.pool = json_extract(look.value, '$[0]')
      AND r.kind = json_extract(look.value, '$[1]')
      AND r.priority = json_extract(look.value, '$[2]')
      AND r.run_at_ms = json_extract(look.value, '$[3]')
      AND r.id > json_extract(look.value, '$[4]')
    ORDER BY r.id
    LIMIT :limit
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT r.id
    FROM jobpool_jobs AS r
    WHERE r.state = 'runnable'
      AND r.pool = json_extract(look.value, '$[0]')
      AND r.kind = json_extract(look.value, '$[1]')
      AND r.priority = json_extract(look.value, '$[2]')
      AND r.run_at_ms > json_extract(look.value, '$[3]')
    ORDER BY r.run_at_ms, r.id
    LIMIT :limit
  )
)
ORDER BY look.key, j.run_at_ms, j.id

-- name: last_of_priority
-- In the order of the index, of one priority.
SELECT run_at_ms, id
FROM jobpool_jobs
WHERE state = 'runnable' AND pool = :pool AND kind = :kind
  AND priority = :priority
ORDER BY run_at_ms DESC, id DESC
LIMIT 1

-- name: jobs_of_lanes
-- :ids of lanes. Their first jobs.
SELECT j.id
FROM json_each(:ids) AS lane
CROSS JOIN jobpool_jobs AS j
WHERE j.id IN (
  SELECT r.id
  FROM jobpool_jobs AS r
  WHERE r.lane = lane.value AND r.state = 'runnable'
  ORDER BY r.run_at_ms, r.id
  LIMIT :limit
)
LIMIT :limit

-- name: hold_stragglers
-- :ids of jobs; whether each is a retry; and the arguments of those of :kinds, unless
-- they are encoded.
SELECT
  j.id, j.pool, j.kind, j.priority, j.tenant, j.quota_values,
  j.failures + j.crashes > 0,
  CASE
    WHEN j.codec IS NULL AND j.kind IN (SELECT value FROM json_each(:kinds))
      THEN p.payload
  END
FROM jobpool_jobs AS j
LEFT JOIN jobpool_payloads AS p ON p.job_id = j.id
WHERE j.id IN (SELECT value FROM json_each(:ids)) AND +j.state = 'runnable'
ORDER BY j.id

-- name: stamp_jobs
-- :rows holds [id, lane, values].
UPDATE jobpool_jobs
SET
  lane = json_extract(stamped.value, '$[1]'),
  quota_values = json_extract(stamped.value, '$[2]')
FROM json_each(:rows) AS stamped
WHERE jobpool_jobs.id = json_extract(stamped.value, '$[0]')
  AND +jobpool_jobs.state = 'runnable'

-- name: take_lane_notes
-- Lanes that have got a job, perhaps.
DELETE FROM jobpool_lane_notes
WHERE lane IN (SELECT lane FROM jobpool_lane_notes ORDER BY lane LIMIT :limit)
RETURNING lane

-- name: join_lanes
-- :ids of lanes, in order. Those that have a runnable job wait from now on; what is not
-- known of a lane is read from its first one. :aged: pools and milliseconds in which what
-- waits there rises by one priority; their lanes are all of one rank.
INSERT INTO jobpool_lanes (
  id, pool, kind, priority, tenant, values_json, rank, vtime, waits
)
SELECT
  noted.value, j.pool, j.kind, j.priority, j.tenant, coalesce(j.quota_values, '{}'),
  iif(aged.key IS NULL, j.priority, 0),
  j.run_at_ms - j.priority * coalesce(aged.value, 0),
  1
FROM json_each(:ids) AS noted
CROSS JOIN jobpool_jobs AS j
LEFT JOIN json_each(:aged) AS aged ON aged.key = j.pool
WHERE j.id = (
    SELECT r.id
    FROM jobpool_jobs AS r
    WHERE r.lane = noted.value AND r.state = 'runnable'
    ORDER BY r.run_at_ms, r.id
    LIMIT 1
  )
ON CONFLICT (id) DO UPDATE
SET rank = excluded.rank, vtime = excluded.vtime, waits = 1
WHERE waits = 0 OR vtime <> excluded.vtime OR rank <> excluded.rank
RETURNING id

-- name: lanes_of_jobs
-- The next lanes that have a runnable job, and whether each is not known to wait, or by
-- other rules of its pool (:aged as in join_lanes; :fair: pools, and who has shares).
WITH RECURSIVE walked (lane) AS (
  SELECT (
    SELECT min(r.lane) FROM jobpool_jobs AS r WHERE r.lane > :after AND r.state = 'runnable'
  )
  UNION ALL
  SELECT (
    SELECT min(r.lane)
    FROM jobpool_jobs AS r
    WHERE r.lane > walked.lane AND r.state = 'runnable'
  )
  FROM walked
  WHERE walked.lane IS NOT NULL
  LIMIT :limit
)
SELECT
  walked.lane,
  NOT EXISTS (
    SELECT 1
    FROM jobpool_lanes AS l
    LEFT JOIN json_each(:aged) AS aged ON aged.key = l.pool
    LEFT JOIN json_each(:fair) AS fair ON fair.key = l.pool
    WHERE l.id = walked.lane AND l.waits = 1
      AND l.rank = iif(aged.key IS NULL, l.priority, 0)
      AND (
        aged.key IS NULL
        OR l.vtime = (
          SELECT min(r.run_at_ms)
          FROM jobpool_jobs AS r
          WHERE r.lane = l.id AND r.state = 'runnable'
        ) - l.priority * aged.value
      )
      AND (
        fair.key IS NULL
        OR l.open_at_ms > 0
        OR l.blocked_by IS NOT NULL
        OR EXISTS (
          SELECT 1
          FROM jobpool_shares AS s
          WHERE s.pool = l.pool AND s.priority = l.priority AND s.kind = l.kind
            AND s.who = iif(fair.value = 'kind', l.kind, coalesce(l.tenant, ''))
            AND s.waits = 1
        )
      )
  )
FROM walked
WHERE walked.lane IS NOT NULL

-- name: open_due_lanes
-- Their time has come.
UPDATE jobpool_lanes
SET open_at_ms = 0, blocked_by = NULL
WHERE id IN (
  SELECT id
  FROM jobpool_lanes
  WHERE open_at_ms > 0 AND open_at_ms <= :now_ms
  ORDER BY open_at_ms
  LIMIT :limit
)

-- name: open_lanes
-- The first of each kind from its own range of the index, then the first of these.
SELECT l.id, l.kind, l.tenant, l.values_json, l.rank, l.vtime
FROM (
  SELECT c.id, c.rank, c.vtime
  FROM json_each(:kinds) AS known
  CROSS JOIN jobpool_lanes AS c
  WHERE known.value NOT IN (
      SELECT name
      FROM jobpool_pauses
      WHERE what = 'kind' AND (until_ms IS NULL OR until_ms > :now_ms)
    )
    AND :pool NOT IN (
      SELECT name
      FROM jobpool_pauses
      WHERE what = 'pool' AND (until_ms IS NULL OR until_ms > :now_ms)
    )
    AND c.id IN (
      SELECT n.id
      FROM jobpool_lanes AS n
      WHERE n.pool = :pool AND n.kind = known.value
        AND n.waits = 1 AND n.open_at_ms = 0 AND n.blocked_by IS NULL
      ORDER BY n.rank DESC, n.vtime, n.id
      LIMIT :limit
    )
  ORDER BY c.rank DESC, c.vtime, c.id
  LIMIT :limit
) AS best
CROSS JOIN jobpool_lanes AS l ON l.id = best.id
ORDER BY best.rank DESC, best.vtime, best.id

-- name: noted_lanes
-- Lanes that have got jobs since the last claim, as open_lanes.
SELECT n.lane, j.kind, j.tenant, j.quota_values, j.priority, j.run_at_ms
FROM jobpool_lane_notes AS n
CROSS JOIN jobpool_jobs AS j
WHERE j.id = (
    SELECT r.id
    FROM jobpool_jobs AS r
    WHERE r.lane = n.lane AND r.state = 'runnable'
    ORDER BY r.run_at_ms, r.id
    LIMIT 1
  )
  AND j.pool = :pool
  AND j.kind IN (SELECT value FROM json_each(:kinds))
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_pauses AS p
    WHERE (
        (p.what = 'kind' AND p.name = j.kind) OR (p.what = 'pool' AND p.name = :pool)
      )
      AND (p.until_ms IS NULL OR p.until_ms > :now_ms)
  )
LIMIT :limit

-- name: count_in_lanes
-- :ids of lanes. Their runnable jobs, each up to a limit.
SELECT
  lane.value,
  (
    SELECT count(*)
    FROM (
      SELECT 1
      FROM jobpool_jobs AS r
      WHERE r.lane = lane.value AND r.state = 'runnable'
      LIMIT :limit
    )
  )
FROM json_each(:ids) AS lane

-- name: lock_lanes
-- :ids of lanes. Those that are still open.
SELECT id
FROM jobpool_lanes
WHERE id IN (SELECT value FROM json_each(:ids))
  AND waits = 1 AND open_at_ms = 0 AND blocked_by IS NULL

-- name: free_lanes
-- The first of the lanes that wait for a bucket need not any more: those whose jobs have
-- waited longest, and in fair pools also those whose turn it is.
UPDATE jobpool_lanes
SET open_at_ms = 0, blocked_by = NULL
WHERE id IN (
  SELECT id
  FROM jobpool_lanes
  WHERE blocked_by = :bucket
  ORDER BY rank DESC, vtime, id
  LIMIT :limit
) OR id IN (
  SELECT id
  FROM jobpool_lanes
  WHERE blocked_by = :bucket AND turn IS NOT NULL
  ORDER BY rank DESC, turn, id
  LIMIT :limit
)

-- name: lane_heads
-- :ids of lanes. The first jobs of each, as lease_candidates, with the lane.
SELECT
  j.id, j.kind, j.pool, j.attempt, p.payload, j.checkpoint,
  j.max_attempts, j.timeout_s, j.memory_bytes,
  j.failures, j.crashes, j.interruptions, j.recoveries, j.throttled,
  j.reset_attempt, j.expires_at_ms, j.token, j.leased_at_ms,
  j.snoozes, j.snoozed_since_ms,
  j.priority, j.key, j.tenant, j.codec, j.tick, j.run_at_ms, j.step,
  j.trace, j.lane
FROM json_each(:ids) AS asked
CROSS JOIN jobpool_jobs AS j
LEFT JOIN jobpool_payloads AS p ON p.job_id = j.id
WHERE j.id IN (
  SELECT r.id
  FROM jobpool_jobs AS r
  WHERE r.lane = asked.value AND r.state = 'runnable'
    AND r.id NOT IN (SELECT job_id FROM jobpool_suspects)
    AND NOT EXISTS (
      SELECT 1
      FROM jobpool_misfits AS m
      CROSS JOIN jobpool_kinds AS own
        ON own.kind = r.kind AND own.run_id = :run_id
      WHERE m.job_id = r.id AND m.until_ms > :now_ms
        AND own.schema_digest = m.schema_digest
    )
  ORDER BY r.run_at_ms, r.id
  LIMIT :limit
)

-- name: leave_lanes
-- :rows holds [id, time, bucket, turn, aging] of lanes: what each waits for, unless it has
-- no job any more; whose turn it is, in a fair pool; and by how much its jobs rise, in an
-- aged one. And when its first one was due.
UPDATE jobpool_lanes
SET
  waits = left.run_at_ms IS NOT NULL,
  rank = iif(left.aging_ms IS NULL, priority, 0),
  vtime = coalesce(left.run_at_ms - priority * coalesce(left.aging_ms, 0), vtime),
  turn = left.turn,
  open_at_ms = iif(left.run_at_ms IS NULL, 0, left.open_at_ms),
  blocked_by = iif(left.run_at_ms IS NULL, NULL, left.blocked_by)
FROM (
  SELECT
    json_extract(value, '$[0]') AS id,
    json_extract(value, '$[1]') AS open_at_ms,
    json_extract(value, '$[2]') AS blocked_by,
    json_extract(value, '$[3]') AS turn,
    json_extract(value, '$[4]') AS aging_ms,
    (
      SELECT min(r.run_at_ms)
      FROM jobpool_jobs AS r
      WHERE r.lane = json_extract(value, '$[0]') AND r.state = 'runnable'
    ) AS run_at_ms
  FROM json_each(:rows)
) AS left
WHERE jobpool_lanes.id = left.id

-- name: open_lanes_of_rules
-- What is in force has changed. Those that would have to wait longest, and those that
-- wait for a bucket: perhaps their jobs do not need it any more.
UPDATE jobpool_lanes
SET open_at_ms = 0, blocked_by = NULL
WHERE id IN (
  SELECT id FROM jobpool_lanes WHERE open_at_ms > 0 ORDER BY open_at_ms DESC LIMIT :limit
) OR id IN (
  SELECT id
  FROM jobpool_lanes
  WHERE blocked_by IS NOT NULL
  ORDER BY blocked_by, rank DESC, vtime, id
  LIMIT :limit
)
