-- Fair pools: whose turn it is. See lanes.sql for what is leased. Only who holds the row
-- of a fair pool, which a claim locks before anything else, reads or changes its shares.

-- name: make_fair_pools
-- :pools. From now on, lanes that open there leave a note.
INSERT INTO jobpool.fair_pools (pool)
SELECT value FROM jsonb_array_elements_text(%(pools)s::jsonb) ORDER BY value
ON CONFLICT (pool) DO NOTHING

-- name: drop_tenants_shares
-- :pools that are fair by kind. They may have been fair by tenant before. What a claim
-- holds stays: it is left by the next that finds it.
DELETE FROM jobpool.shares
WHERE id = ANY (
    ARRAY(
      SELECT s.id
      FROM jobpool.shares AS s
      WHERE s.pool IN (SELECT value FROM jsonb_array_elements_text(%(pools)s::jsonb))
        AND s.who <> s.kind
      FOR UPDATE OF s SKIP LOCKED
    )
  )

-- name: lock_fair_pools
-- :pools. With the virtual time that claims have come to.
SELECT pool, clocks
FROM jobpool.fair_pools
WHERE pool IN (SELECT value FROM jsonb_array_elements_text(%(pools)s::jsonb))
ORDER BY pool
FOR UPDATE

-- name: share_notes_look
-- :pools. Whether anything is noted of them.
SELECT EXISTS (
  SELECT 1
  FROM jsonb_array_elements_text(%(pools)s::jsonb) AS asked (pool)
  JOIN jobpool.share_notes AS n ON n.pool = asked.pool
)

-- name: take_share_notes
-- :pools.
DELETE FROM jobpool.share_notes
WHERE id = ANY (
    ARRAY(
      SELECT n.id
      FROM jsonb_array_elements_text(%(pools)s::jsonb) AS asked (pool)
      JOIN jobpool.share_notes AS n ON n.pool = asked.pool
      LIMIT %(limit)s
      FOR UPDATE OF n SKIP LOCKED
    )
  )
RETURNING pool, kind, priority, tenant, refund

-- name: note_open_lanes
-- :ids of lanes. Those that are open leave a note, as if they opened now.
INSERT INTO jobpool.share_notes (pool, kind, priority, tenant)
SELECT l.pool, l.kind, l.priority, l.tenant
FROM jobpool.lanes AS l
WHERE l.id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND l.waits AND l.open_at_ms = 0 AND l.blocked_by IS NULL
  AND l.pool IN (SELECT pool FROM jobpool.fair_pools)

-- name: note_unbegun
-- :ids of jobs whose leases went back before they began: their shares get the turn back.
INSERT INTO jobpool.share_notes (pool, kind, priority, tenant, refund)
SELECT j.pool, j.kind, j.priority, j.tenant, 1
FROM jobpool.jobs AS j
WHERE j.id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND j.pool IN (SELECT pool FROM jobpool.fair_pools)

-- name: join_shares
-- :rows holds [pool, priority, who, kind]. They may have open lanes. Another kind of who
-- has a share already has its turn.
INSERT INTO jobpool.shares AS s (pool, priority, who, kind, vtime, waits)
SELECT
  fresh.pool, fresh.priority, fresh.who, fresh.kind,
  coalesce(
    (
      SELECT max(o.vtime)
      FROM jobpool.shares AS o
      WHERE o.pool = fresh.pool AND o.priority = fresh.priority AND o.who = fresh.who
    ),
    0
  ),
  true
FROM (
  SELECT
    value ->> 0 AS pool,
    (value ->> 1)::bigint AS priority,
    value ->> 2 AS who,
    value ->> 3 AS kind
  FROM jsonb_array_elements(%(rows)s::jsonb)
) AS fresh
ON CONFLICT (pool, priority, who, kind) DO UPDATE SET waits = true WHERE NOT s.waits

-- name: fair_lanes
-- The shares whose turn it is, each with some of its open lanes; one without any is to be
-- told that it does not wait. Priorities go by their number, or in an aged pool by the
-- oldest lane of each, less what it has risen.
WITH RECURSIVE known AS MATERIALIZED (
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
),
walked (kind, priority, depth) AS (
  SELECT
    known.kind,
    (
      SELECT s.priority
      FROM jobpool.shares AS s
      WHERE s.pool = %(pool)s::text AND s.kind = known.kind AND s.waits
      ORDER BY s.priority DESC
      LIMIT 1
    ),
    1
  FROM known
  UNION ALL
  SELECT
    walked.kind,
    (
      SELECT s.priority
      FROM jobpool.shares AS s
      WHERE s.pool = %(pool)s::text AND s.kind = walked.kind AND s.waits
        AND s.priority < walked.priority
      ORDER BY s.priority DESC
      LIMIT 1
    ),
    walked.depth + 1
  FROM walked
  WHERE walked.priority IS NOT NULL AND walked.depth < %(depth)s::integer
),
placed AS MATERIALIZED (
  SELECT
    walked.priority,
    min(
      CASE
        WHEN %(aging_ms)s::double precision = 0 THEN -walked.priority
        ELSE coalesce(
          (
            SELECT l.vtime
            FROM jobpool.lanes AS l
            WHERE l.pool = %(pool)s::text
              AND l.kind = walked.kind
              AND l.rank = walked.priority
              AND l.waits AND l.open_at_ms = 0 AND l.blocked_by IS NULL
            ORDER BY l.vtime
            LIMIT 1
          ),
          9e18
        ) - walked.priority * %(aging_ms)s::double precision
      END
    ) AS place
  FROM walked
  WHERE walked.priority IS NOT NULL
  GROUP BY walked.priority
),
turns AS MATERIALIZED (
  SELECT s.id, s.priority, s.who, s.kind, s.vtime, placed.place
  FROM walked
  JOIN placed ON placed.priority = walked.priority
  CROSS JOIN LATERAL (
    SELECT n.id, n.priority, n.who, n.kind, n.vtime
    FROM jobpool.shares AS n
    WHERE n.pool = %(pool)s::text
      AND n.kind = walked.kind
      AND n.priority = walked.priority
      AND n.waits
    ORDER BY n.vtime, n.who
    LIMIT %(limit)s::bigint
  ) AS s
  ORDER BY placed.place, s.vtime, s.who
  LIMIT %(limit)s::bigint
)
SELECT
  t.id, t.priority, t.who, t.vtime, t.kind, l.id, l.tenant, l.values_json, l.vtime
FROM turns AS t
LEFT JOIN LATERAL (
  (
    SELECT n.id, n.tenant, n.values_json, n.vtime
    FROM jobpool.lanes AS n
    WHERE %(fair)s::text = 'tenant'
      AND n.pool = %(pool)s::text
      AND n.kind = t.kind
      AND n.priority = t.priority
      AND coalesce(n.tenant, '') = t.who
      AND n.waits AND n.open_at_ms + 0 = 0 AND n.blocked_by IS NULL
      AND n.id <> ALL (
        ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(spent)s::jsonb))
      )
    ORDER BY n.vtime, n.id
    LIMIT %(each)s::bigint
  )
  UNION ALL
  (
    SELECT n.id, n.tenant, n.values_json, n.vtime
    FROM jobpool.lanes AS n
    WHERE %(fair)s::text = 'kind'
      AND t.who = t.kind
      AND n.pool = %(pool)s::text
      AND n.kind = t.kind
      AND n.rank = t.priority
      AND n.waits AND n.open_at_ms = 0 AND n.blocked_by IS NULL
      AND n.id <> ALL (
        ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(spent)s::jsonb))
      )
    ORDER BY n.vtime, n.id
    LIMIT %(each)s::bigint
  )
) AS l ON true
ORDER BY t.place, t.vtime, t.who, l.vtime, l.id

-- name: next_of_lanes
-- :ids of lanes of an aged pool. How many of its next jobs are of each.
SELECT lane, count(*)
FROM (
  SELECT asked.lane::bigint AS lane
  FROM jsonb_array_elements_text(%(ids)s::jsonb) AS asked (lane)
  CROSS JOIN LATERAL (
    SELECT r.id, r.run_at_ms, r.priority
    FROM jobpool.jobs AS r
    WHERE r.lane = asked.lane::bigint AND r.state || '' = 'runnable'
    ORDER BY r.run_at_ms, r.id
    LIMIT %(limit)s::bigint
  ) AS j
  ORDER BY
    j.run_at_ms - j.priority * %(aging_ms)s::double precision,
    j.priority DESC, j.run_at_ms, j.id
  LIMIT %(limit)s::bigint
) AS following
GROUP BY lane

-- name: spend_shares
-- :rows holds [pool, priority, who, clock, more]. Turns that were taken, or (negative) go
-- back.
UPDATE jobpool.shares AS s
SET vtime = greatest(0, greatest(s.vtime, spent.clock) + spent.more)
FROM (
  SELECT
    value ->> 0 AS pool,
    (value ->> 1)::bigint AS priority,
    value ->> 2 AS who,
    (value ->> 3)::double precision AS clock,
    (value ->> 4)::double precision AS more
  FROM jsonb_array_elements(%(rows)s::jsonb)
) AS spent
WHERE s.pool = spent.pool AND s.priority = spent.priority AND s.who = spent.who

-- name: set_clocks
-- :rows holds [pool, clocks].
UPDATE jobpool.fair_pools AS f
SET clocks = now.value ->> 1
FROM jsonb_array_elements(%(rows)s::jsonb) AS now
WHERE f.pool = now.value ->> 0

-- name: leave_shares
-- :rows holds [id, fair] of shares. Those without any open lane do not wait: what opens one
-- leaves a note.
UPDATE jobpool.shares AS s
SET waits = false
FROM (
  SELECT (value ->> 0)::bigint AS id, value ->> 1 AS fair
  FROM jsonb_array_elements(%(rows)s::jsonb)
) AS seen
WHERE s.id = seen.id
  AND s.waits
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.lanes AS l
    WHERE seen.fair = 'tenant'
      AND l.pool = s.pool AND l.kind = s.kind AND l.priority = s.priority
      AND coalesce(l.tenant, '') = s.who
      AND l.waits AND l.open_at_ms + 0 = 0 AND l.blocked_by IS NULL
    OFFSET 0
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.lanes AS l
    WHERE seen.fair = 'kind' AND s.who = s.kind
      AND l.pool = s.pool AND l.kind = s.kind AND l.rank = s.priority
      AND l.waits AND l.open_at_ms = 0 AND l.blocked_by IS NULL
    OFFSET 0
  )

-- name: forget_shares
-- Of :values, unless they wait. What a claim holds stays.
DELETE FROM jobpool.shares
WHERE id = ANY (
    ARRAY(
      SELECT s.id
      FROM jobpool.shares AS s
      WHERE NOT s.waits
        AND s.who IN (SELECT value FROM jsonb_array_elements_text(%(values)s::jsonb))
      FOR UPDATE OF s SKIP LOCKED
    )
  )

-- name: prune_fair_pools
-- :pools that are fair. What others had is not needed any more.
DELETE FROM jobpool.fair_pools
WHERE pool NOT IN (SELECT value FROM jsonb_array_elements_text(%(pools)s::jsonb))

-- name: prune_share_notes
-- Of pools that are not fair any more.
DELETE FROM jobpool.share_notes
WHERE ctid = ANY (
    ARRAY(
      SELECT ctid
      FROM jobpool.share_notes
      WHERE pool NOT IN (SELECT pool FROM jobpool.fair_pools)
      LIMIT %(limit)s
      FOR UPDATE SKIP LOCKED
    )
  )

-- name: prune_shares
-- Those that count as no more than the clock, unless they wait; all of pools that are not
-- fair.
DELETE FROM jobpool.shares
WHERE id = ANY (
    ARRAY(
      SELECT s.id
      FROM jobpool.shares AS s
      LEFT JOIN jobpool.fair_pools AS f ON f.pool = s.pool
      WHERE f.pool IS NULL
        OR (
          NOT s.waits
          AND s.vtime <= coalesce(
            (f.clocks::jsonb ->> s.priority::text)::double precision, 0
          )
        )
      LIMIT %(limit)s
      FOR UPDATE OF s SKIP LOCKED
    )
  )
