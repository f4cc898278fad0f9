-- Whether more jobs may wait. These also run on a caller's own connection (see
-- enqueue.sql).

-- name: waiting_of
-- Due jobs of a pool, of a kind, or of all (NULL): how many, up to :most; for how long
-- the oldest has waited, and its kind. It is found by a step of the index for each pool,
-- kind and priority, up to :steps. NULL: none waits.
WITH RECURSIVE pools (pool) AS (
  SELECT
    coalesce(:pool, (
      SELECT min(j.pool) FROM jobpool_jobs AS j WHERE j.state = 'runnable'
    ))
  UNION ALL
  SELECT (
    SELECT min(j.pool) FROM jobpool_jobs AS j
    WHERE j.state = 'runnable' AND j.pool > such.pool
  )
  FROM pools AS such
  WHERE such.pool IS NOT NULL AND :pool IS NULL
),
kinds (pool, kind) AS (
  SELECT
    such.pool,
    coalesce(:kind, (
      SELECT min(j.kind) FROM jobpool_jobs AS j
      WHERE j.state = 'runnable' AND j.pool = such.pool
    ))
  FROM pools AS such
  WHERE such.pool IS NOT NULL
  UNION ALL
  SELECT
    k.pool,
    (
      SELECT min(j.kind) FROM jobpool_jobs AS j
      WHERE j.state = 'runnable' AND j.pool = k.pool AND j.kind > k.kind
    )
  FROM kinds AS k
  WHERE k.kind IS NOT NULL AND :kind IS NULL
),
heads (pool, kind, priority) AS (
  SELECT
    k.pool,
    k.kind,
    (
      SELECT max(j.priority) FROM jobpool_jobs AS j
      WHERE j.state = 'runnable' AND j.pool = k.pool AND j.kind = k.kind
    )
  FROM kinds AS k
  WHERE k.kind IS NOT NULL
  UNION ALL
  SELECT
    h.pool,
    h.kind,
    (
      SELECT max(j.priority) FROM jobpool_jobs AS j
      WHERE j.state = 'runnable' AND j.pool = h.pool AND j.kind = h.kind
        AND j.priority < h.priority
    )
  FROM heads AS h
  WHERE h.priority IS NOT NULL
  LIMIT :steps
)
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT 1
      FROM kinds AS k
      CROSS JOIN jobpool_jobs AS j
        ON j.state = 'runnable' AND j.pool = k.pool AND j.kind = k.kind
      WHERE k.kind IS NOT NULL
      LIMIT :most
    )
  ),
  :now_ms - min(oldest.run_at_ms),
  CAST(oldest.kind AS BLOB)
FROM (
  SELECT
    h.kind,
    (
      SELECT min(j.run_at_ms) FROM jobpool_jobs AS j
      WHERE j.state = 'runnable' AND j.pool = h.pool AND j.kind = h.kind
        AND j.priority = h.priority
    ) AS run_at_ms
  FROM heads AS h
  WHERE h.priority IS NOT NULL
) AS oldest

-- name: waiting_of_tenant
-- As waiting_of.
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT 1 FROM jobpool_jobs AS j
      WHERE j.state = 'runnable' AND j.tenant IS NOT NULL AND j.tenant = :tenant
      LIMIT :most
    )
  ),
  :now_ms - min(j.run_at_ms),
  NULL
FROM jobpool_jobs AS j
WHERE j.state = 'runnable' AND j.tenant IS NOT NULL AND j.tenant = :tenant

-- name: waiting_tenants
-- Those of which the most jobs are due and wait, or of which one has waited for longer
-- than :older_ms: how many, and for how long the oldest has.
SELECT j.tenant, count(*), :now_ms - min(j.run_at_ms)
FROM jobpool_jobs AS j
WHERE j.state = 'runnable' AND j.tenant IS NOT NULL
GROUP BY j.tenant
HAVING count(*) >= :least OR min(j.run_at_ms) < :now_ms - :older_ms
ORDER BY count(*) DESC, j.tenant
LIMIT :most

-- name: unfinished_up_to
-- As count_unfinished, but no more than :most are counted.
SELECT count(*)
FROM (
  SELECT 1 FROM jobpool_jobs WHERE state = 'runnable'
  UNION ALL
  SELECT 1 FROM jobpool_jobs WHERE state = 'pending'
  UNION ALL
  SELECT 1 FROM jobpool_jobs WHERE state = 'waiting'
  UNION ALL
  SELECT 1 FROM jobpool_jobs WHERE state = 'leased'
  LIMIT :most
)

-- name: ended_lately
-- Of the newest :most jobs that have succeeded within :within_ms: how many are of a pool,
-- of a kind, of a tenant (NULL: of any); how many there are, and how long ago the oldest
-- of them ended.
SELECT
  count(*) FILTER (
    WHERE (:pool IS NULL OR ended.pool = :pool)
      AND (:kind IS NULL OR ended.kind = :kind)
      AND (:tenant IS NULL OR ended.tenant = :tenant)
  ),
  count(*),
  :now_ms - min(ended.finished_at_ms)
FROM (
  SELECT j.pool, j.kind, j.tenant, j.finished_at_ms
  FROM jobpool_jobs AS j
  WHERE j.state = 'succeeded' AND j.finished_at_ms > :now_ms - :within_ms
  ORDER BY j.finished_at_ms DESC
  LIMIT :most
) AS ended

-- name: held_for
-- For how long nothing of a kind begins in a pool for a tenant, in milliseconds: because
-- of pauses that end, or since all of its lanes wait for a time. NULL: that is not so.
SELECT max(held.until_ms) - :now_ms
FROM (
  SELECT p.until_ms
  FROM jobpool_pauses AS p
  WHERE p.until_ms > :now_ms
    AND (
      p.what = 'store'
      OR (p.what = 'pool' AND p.name = :pool)
      OR (p.what = 'kind' AND p.name = :kind)
      OR (p.what = 'tenant' AND p.name = :tenant)
    )
  UNION ALL
  SELECT min(l.open_at_ms)
  FROM (
    SELECT open_at_ms, pool, kind, tenant FROM jobpool_lanes
    WHERE open_at_ms > :now_ms AND open_at_ms > 0
    ORDER BY open_at_ms
    LIMIT :most
  ) AS l
  WHERE l.pool = :pool AND l.kind = :kind AND (:tenant IS NULL OR l.tenant = :tenant)
    AND NOT EXISTS (
      SELECT 1 FROM jobpool_lanes AS o
      WHERE o.waits = 1 AND o.open_at_ms = 0 AND o.blocked_by IS NULL
        AND o.pool = :pool AND o.kind = :kind
        AND (:tenant IS NULL OR o.tenant = :tenant)
    )
) AS held
