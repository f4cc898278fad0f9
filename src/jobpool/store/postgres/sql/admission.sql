-- Whether more jobs may wait. These also run on a caller's own connection.

-- name: waiting_of
-- Due jobs of a pool, of a kind, or of all (NULL): how many, up to :most; for how long
-- the oldest has waited, and its kind. It is found by a step of the index for each pool,
-- kind and priority, up to :steps. NULL: none waits.
WITH RECURSIVE pools (pool) AS (
  SELECT
    coalesce(%(pool)s::text COLLATE "C", (
      SELECT min(j.pool) FROM jobpool.jobs AS j WHERE j.state = 'runnable'
    ))
  UNION ALL
  SELECT
    (
      SELECT min(j.pool) FROM jobpool.jobs AS j
      WHERE j.state = 'runnable' AND j.pool > such.pool
    )
  FROM pools AS such
  WHERE such.pool IS NOT NULL AND %(pool)s::text IS NULL
),
kinds (pool, kind) AS (
  SELECT
    such.pool,
    coalesce(%(kind)s::text COLLATE "C", (
      SELECT min(j.kind) FROM jobpool.jobs AS j
      WHERE j.state = 'runnable' AND j.pool = such.pool
    ))
  FROM pools AS such
  WHERE such.pool IS NOT NULL
  UNION ALL
  SELECT
    k.pool,
    (
      SELECT min(j.kind) FROM jobpool.jobs AS j
      WHERE j.state = 'runnable' AND j.pool = k.pool AND j.kind > k.kind
    )
  FROM kinds AS k
  WHERE k.kind IS NOT NULL AND %(kind)s::text IS NULL
),
heads (pool, kind, priority) AS (
  SELECT
    k.pool,
    k.kind,
    (
      SELECT max(j.priority) FROM jobpool.jobs AS j
      WHERE j.state = 'runnable' AND j.pool = k.pool AND j.kind = k.kind
    )
  FROM kinds AS k
  WHERE k.kind IS NOT NULL
  UNION ALL
  SELECT
    h.pool,
    h.kind,
    (
      SELECT max(j.priority) FROM jobpool.jobs AS j
      WHERE j.state = 'runnable' AND j.pool = h.pool AND j.kind = h.kind
        AND j.priority < h.priority
    )
  FROM heads AS h
  WHERE h.priority IS NOT NULL
),
oldest (kind, run_at_ms) AS (
  SELECT
    h.kind,
    (
      SELECT min(j.run_at_ms) FROM jobpool.jobs AS j
      WHERE j.state = 'runnable' AND j.pool = h.pool AND j.kind = h.kind
        AND j.priority = h.priority
    )
  FROM (SELECT * FROM heads LIMIT %(steps)s) AS h
  WHERE h.priority IS NOT NULL
)
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT 1
      FROM kinds AS k
      CROSS JOIN LATERAL (
        SELECT 1 FROM jobpool.jobs AS j
        WHERE j.state = 'runnable' AND j.pool = k.pool AND j.kind = k.kind
        LIMIT %(most)s
      ) AS each
      WHERE k.kind IS NOT NULL
      LIMIT %(most)s
    ) AS counted
  ),
  coalesce(%(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint)
    - first.run_at_ms,
  convert_to(first.kind, 'UTF8')
FROM (SELECT 1) AS one
LEFT JOIN (
  SELECT kind, run_at_ms FROM oldest WHERE run_at_ms IS NOT NULL
  ORDER BY run_at_ms LIMIT 1
) AS first ON true

-- name: waiting_of_tenant
-- As waiting_of. The state is written as only the tenants' index has it: else there are
-- statistics by which a walk over all runnable jobs looks as cheap.
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT 1 FROM jobpool.jobs AS j
      WHERE j.state || '' = 'runnable' AND j.tenant IS NOT NULL
        AND j.tenant = %(tenant)s::text
      LIMIT %(most)s
    ) AS counted
  ),
  coalesce(%(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint)
    - min(j.run_at_ms),
  NULL::bytea
FROM jobpool.jobs AS j
WHERE j.state || '' = 'runnable' AND j.tenant IS NOT NULL
  AND j.tenant = %(tenant)s::text

-- name: waiting_tenants
-- Those of which the most jobs are due and wait, or of which one has waited for longer
-- than :older_ms: how many, and for how long the oldest has.
WITH moment AS MATERIALIZED (
  SELECT
    coalesce(
      %(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint
    ) AS now_ms
)
SELECT j.tenant, count(*), (SELECT now_ms FROM moment) - min(j.run_at_ms)
FROM jobpool.jobs AS j
WHERE j.state || '' = 'runnable' AND j.tenant IS NOT NULL
GROUP BY j.tenant
HAVING
  count(*) >= %(least)s
  OR min(j.run_at_ms) < (SELECT now_ms FROM moment) - %(older_ms)s::bigint
ORDER BY count(*) DESC, j.tenant
LIMIT %(most)s

-- name: unfinished_up_to
-- As count_unfinished, but no more than :most are counted.
SELECT count(*)
FROM (
  SELECT 1 FROM jobpool.jobs WHERE state = 'runnable'
  UNION ALL
  SELECT 1 FROM jobpool.jobs WHERE state = 'pending'
  UNION ALL
  SELECT 1 FROM jobpool.jobs WHERE state = 'waiting'
  UNION ALL
  SELECT 1 FROM jobpool.jobs WHERE state = 'leased'
  LIMIT %(most)s
) AS unfinished

-- name: ended_lately
-- Of the newest :most jobs that have succeeded within :within_ms: how many are of a pool,
-- of a kind, of a tenant (NULL: of any); how many there are, and how long ago the oldest
-- of them ended.
WITH moment AS MATERIALIZED (
  SELECT
    coalesce(
      %(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint
    ) AS now_ms
)
SELECT
  count(*) FILTER (
    WHERE (%(pool)s::text IS NULL OR ended.pool = %(pool)s::text)
      AND (%(kind)s::text IS NULL OR ended.kind = %(kind)s::text)
      AND (%(tenant)s::text IS NULL OR ended.tenant = %(tenant)s::text)
  ),
  count(*),
  (SELECT now_ms FROM moment) - min(ended.finished_at_ms)
FROM (
  SELECT j.pool, j.kind, j.tenant, j.finished_at_ms
  FROM jobpool.jobs AS j
  WHERE j.state = 'succeeded'
    AND j.finished_at_ms > (SELECT now_ms FROM moment) - %(within_ms)s
  ORDER BY j.finished_at_ms DESC
  LIMIT %(most)s
) AS ended

-- name: held_for
-- For how long nothing of a kind begins in a pool for a tenant, in milliseconds: because
-- of pauses that end, or since all of its lanes wait for a time. NULL: that is not so.
WITH moment AS MATERIALIZED (
  SELECT
    coalesce(
      %(now_ms)s::bigint, floor(extract(epoch FROM now()) * 1000)::bigint
    ) AS now_ms
)
SELECT max(held.until_ms) - (SELECT now_ms FROM moment)
FROM (
  SELECT p.until_ms
  FROM jobpool.pauses AS p
  WHERE p.until_ms > (SELECT now_ms FROM moment)
    AND (
      p.what = 'store'
      OR (p.what = 'pool' AND p.name = %(pool)s::text)
      OR (p.what = 'kind' AND p.name = %(kind)s::text)
      OR (p.what = 'tenant' AND p.name = %(tenant)s::text)
    )
  UNION ALL
  SELECT min(l.open_at_ms)
  FROM (
    SELECT open_at_ms, pool, kind, tenant FROM jobpool.lanes
    WHERE open_at_ms > (SELECT now_ms FROM moment) AND open_at_ms > 0
    ORDER BY open_at_ms
    LIMIT %(most)s
  ) AS l
  WHERE l.pool = %(pool)s::text AND l.kind = %(kind)s::text
    AND (%(tenant)s::text IS NULL OR l.tenant = %(tenant)s::text)
    AND NOT EXISTS (
      SELECT 1 FROM jobpool.lanes AS o
      WHERE o.waits AND o.open_at_ms = 0 AND o.blocked_by IS NULL
        AND o.pool = %(pool)s::text AND o.kind = %(kind)s::text
        AND (%(tenant)s::text IS NULL OR o.tenant = %(tenant)s::text)
    )
) AS held
