-- Fair pools: whose turn it is. See lanes.sql for what is leased.

-- name: make_fair_pools
-- :pools. From now on, lanes that open there leave a note.
INSERT INTO jobpool_fair_pools (pool)
SELECT value FROM json_each(:pools)
WHERE true
ON CONFLICT (pool) DO NOTHING

-- name: drop_tenants_shares
-- :pools that are fair by kind. They may have been fair by tenant before.
DELETE FROM jobpool_shares
WHERE pool IN (SELECT value FROM json_each(:pools)) AND who <> kind

-- name: lock_fair_pools
-- :pools. With the virtual time that claims have come to.
SELECT pool, clocks
FROM jobpool_fair_pools
WHERE pool IN (SELECT value FROM json_each(:pools))
ORDER BY pool

-- name: share_notes_look
-- :pools. Whether anything is noted of them.
SELECT EXISTS (
  SELECT 1
  FROM json_each(:pools) AS asked
  CROSS JOIN jobpool_share_notes AS n ON n.pool = asked.value
)

-- name: take_share_notes
-- :pools.
DELETE FROM jobpool_share_notes
WHERE id IN (
  SELECT n.id
  FROM json_each(:pools) AS asked
  CROSS JOIN jobpool_share_notes AS n ON n.pool = asked.value
  LIMIT :limit
)
RETURNING pool, kind, priority, tenant, refund

-- name: note_open_lanes
-- :ids of lanes. Those that are open leave a note, as if they opened now.
INSERT INTO jobpool_share_notes (pool, kind, priority, tenant)
SELECT l.pool, l.kind, l.priority, l.tenant
FROM jobpool_lanes AS l
WHERE l.id IN (SELECT value FROM json_each(:ids))
  AND l.waits = 1 AND l.open_at_ms = 0 AND l.blocked_by IS NULL
  AND l.pool IN (SELECT pool FROM jobpool_fair_pools)

-- name: note_unbegun
-- :ids of jobs whose leases went back before they began: their shares get the turn back.
INSERT INTO jobpool_share_notes (pool, kind, priority, tenant, refund)
SELECT j.pool, j.kind, j.priority, j.tenant, 1
FROM jobpool_jobs AS j
WHERE j.id IN (SELECT value FROM json_each(:ids))
  AND j.pool IN (SELECT pool FROM jobpool_fair_pools)

-- name: join_shares
-- :rows holds [pool, priority, who, kind]. They may have open lanes. Another kind of who
-- has a share already has its turn.
INSERT INTO jobpool_shares (pool, priority, who, kind, vtime, waits)
SELECT
  json_extract(value, '$[0]'),
  json_extract(value, '$[1]'),
  json_extract(value, '$[2]'),
  json_extract(value, '$[3]'),
  coalesce(
    (
      SELECT max(s.vtime)
      FROM jobpool_shares AS s
      WHERE s.pool = json_extract(value, '$[0]')
        AND s.priority = json_extract(value, '$[1]')
        AND s.who = json_extract(value, '$[2]')
    ),
    0.0
  ),
  1
FROM json_each(:rows)
WHERE true
ON CONFLICT (pool, priority, who, kind) DO UPDATE SET waits = 1 WHERE waits = 0

-- name: fair_lanes
-- The shares whose turn it is, each with some of its open lanes; one without any is to be
-- told that it does not wait. Priorities go by their number, or in an aged pool by the
-- oldest lane of each, less what it has risen.
WITH RECURSIVE known (kind) AS MATERIALIZED (
  SELECT k.value
  FROM json_each(:kinds) AS k
  WHERE k.value NOT IN (
      SELECT name
      FROM jobpool_pauses
      WHERE what = 'kind' AND (until_ms IS NULL OR until_ms > :now_ms)
    )
    AND :pool NOT IN (
      SELECT name
      FROM jobpool_pauses
      WHERE what = 'pool' AND (until_ms IS NULL OR until_ms > :now_ms)
    )
),
walked (kind, priority, depth) AS (
  SELECT
    known.kind,
    (
      SELECT max(s.priority)
      FROM jobpool_shares AS s
      WHERE s.pool = :pool AND s.kind = known.kind AND s.waits = 1
    ),
    1
  FROM known
  UNION ALL
  SELECT
    walked.kind,
    (
      SELECT max(s.priority)
      FROM jobpool_shares AS s
      WHERE s.pool = :pool AND s.kind = walked.kind AND s.waits = 1
        AND s.priority < walked.priority
    ),
    walked.depth + 1
  FROM walked
  WHERE walked.priority IS NOT NULL AND walked.depth < :depth
),
placed (priority, place) AS MATERIALIZED (
  SELECT
    priority,
    min(
      CASE
        WHEN :aging_ms = 0 THEN -priority
        ELSE coalesce(
          (
            SELECT min(l.vtime)
            FROM jobpool_lanes AS l
            WHERE l.pool = :pool AND l.kind = walked.kind AND l.rank = walked.priority
              AND l.waits = 1 AND l.open_at_ms = 0 AND l.blocked_by IS NULL
          ),
          9e18
        ) - priority * :aging_ms
      END
    )
  FROM walked
  WHERE priority IS NOT NULL
  GROUP BY priority
),
turns AS MATERIALIZED (
  SELECT s.id, s.priority, s.who, s.kind, s.vtime, placed.place
  FROM walked
  CROSS JOIN placed ON placed.priority = walked.priority
  CROSS JOIN jobpool_shares AS s
  WHERE s.id IN (
    SELECT n.id
    FROM jobpool_shares AS n
    WHERE n.pool = :pool AND n.kind = walked.kind AND n.priority = walked.priority
      AND n.waits = 1
    ORDER BY n.vtime, n.who
    LIMIT :limit
  )
  ORDER BY placed.place, s.vtime, s.who
  LIMIT :limit
)
SELECT
  t.id, t.priority, t.who, t.vtime, t.kind, l.id, l.tenant, l.values_json, l.vtime
FROM turns AS t
LEFT JOIN jobpool_lanes AS l ON l.id IN (
  SELECT id
  FROM (
    SELECT n.id
    FROM jobpool_lanes AS n
    WHERE :fair = 'tenant'
      AND n.pool = :pool AND n.kind = t.kind AND n.priority = t.priority
      AND coalesce(n.tenant, '') = +t.who
      AND n.waits = 1 AND n.open_at_ms = 0 AND n.blocked_by IS NULL
      AND n.id NOT IN (SELECT value FROM json_each(:spent))
    ORDER BY n.vtime, n.id
    LIMIT :each
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT n.id
    FROM jobpool_lanes AS n
    WHERE :fair = 'kind' AND t.who = t.kind
      AND n.pool = :pool AND n.kind = t.kind AND n.rank = t.priority
      AND n.waits = 1 AND n.open_at_ms = 0 AND n.blocked_by IS NULL
      AND n.id NOT IN (SELECT value FROM json_each(:spent))
    ORDER BY n.vtime, n.id
    LIMIT :each
  )
)
ORDER BY t.place, t.vtime, t.who, l.vtime, l.id

-- name: next_of_lanes
-- :ids of lanes of an aged pool. How many of its next jobs are of each.
SELECT lane, count(*)
FROM (
  SELECT asked.value AS lane
  FROM json_each(:ids) AS asked
  CROSS JOIN jobpool_jobs AS j
  WHERE j.id IN (
    SELECT r.id
    FROM jobpool_jobs AS r
    WHERE r.lane = asked.value AND r.state = 'runnable'
    ORDER BY r.run_at_ms, r.id
    LIMIT :limit
  )
  ORDER BY j.run_at_ms - j.priority * :aging_ms, j.priority DESC, j.run_at_ms, j.id
  LIMIT :limit
)
GROUP BY lane

-- name: spend_shares
-- :rows holds [pool, priority, who, clock, more]. Turns that were taken, or (negative) go
-- back.
UPDATE jobpool_shares
SET vtime = max(0.0, max(vtime, spent.clock) + spent.more)
FROM (
  SELECT
    json_extract(value, '$[0]') AS pool,
    json_extract(value, '$[1]') AS priority,
    json_extract(value, '$[2]') AS who,
    json_extract(value, '$[3]') AS clock,
    json_extract(value, '$[4]') AS more
  FROM json_each(:rows)
) AS spent
WHERE jobpool_shares.pool = spent.pool AND jobpool_shares.priority = spent.priority
  AND jobpool_shares.who = spent.who

-- name: set_clocks
-- :rows holds [pool, clocks].
UPDATE jobpool_fair_pools
SET clocks = json_extract(now.value, '$[1]')
FROM json_each(:rows) AS now
WHERE jobpool_fair_pools.pool = json_extract(now.value, '$[0]')

-- name: leave_shares
-- :rows holds [id, fair] of shares. Those without any open lane do not wait: what opens one
-- leaves a note.
UPDATE jobpool_shares
SET waits = 0
WHERE id IN (
  SELECT s.id
  FROM json_each(:rows) AS seen
  CROSS JOIN jobpool_shares AS s ON s.id = json_extract(seen.value, '$[0]')
  WHERE NOT EXISTS (
      SELECT 1
      FROM jobpool_lanes AS l
      WHERE json_extract(seen.value, '$[1]') = 'tenant'
        AND l.pool = s.pool AND l.kind = s.kind AND l.priority = s.priority
        AND coalesce(l.tenant, '') = +s.who
        AND l.waits = 1 AND l.open_at_ms = 0 AND l.blocked_by IS NULL
    )
    AND NOT EXISTS (
      SELECT 1
      FROM jobpool_lanes AS l
      WHERE json_extract(seen.value, '$[1]') = 'kind' AND s.who = s.kind
        AND l.pool = s.pool AND l.kind = s.kind AND l.rank = s.priority
        AND l.waits = 1 AND l.open_at_ms = 0 AND l.blocked_by IS NULL
    )
)

-- name: forget_shares
-- Of :values, unless they wait.
DELETE FROM jobpool_shares
WHERE waits = 0 AND who IN (SELECT value FROM json_each(:values))

-- name: prune_fair_pools
-- :pools that are fair. What others had is not needed any more.
DELETE FROM jobpool_fair_pools WHERE pool NOT IN (SELECT value FROM json_each(:pools))

-- name: prune_share_notes
-- Of pools that are not fair any more.
DELETE FROM jobpool_share_notes
WHERE id IN (
  SELECT id
  FROM jobpool_share_notes
  WHERE pool NOT IN (SELECT pool FROM jobpool_fair_pools)
  LIMIT :limit
)

-- name: prune_shares
-- Those that count as no more than the clock, unless they wait; all of pools that are not
-- fair.
DELETE FROM jobpool_shares
WHERE id IN (
  SELECT s.id
  FROM jobpool_shares AS s
  LEFT JOIN jobpool_fair_pools AS f ON f.pool = s.pool
  WHERE f.pool IS NULL
    OR (
      s.waits = 0
      AND s.vtime <= coalesce(json_extract(f.clocks, '$."' || s.priority || '"'), 0)
    )
  LIMIT :limit
)
