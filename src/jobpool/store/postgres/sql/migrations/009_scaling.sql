-- How many supervisors each pool needs, with the slots that one has: those of the newest
-- that has served the pool, so that it is known while none runs. What a quota, a pause, a
-- breaker or time holds back needs none. Pending jobs whose time has come count, and so
-- do ticks that are due: without a supervisor nothing makes them runnable.

-- expand:
CREATE VIEW jobpool.scaling AS
WITH
served AS (
  SELECT DISTINCT ON (p.key)
    p.key AS pool,
    greatest(1, split_part(p.value, '..', -1)::bigint) AS slots
  FROM jobpool.runs AS r
  CROSS JOIN LATERAL json_each_text(r.pools::json) AS p
  ORDER BY p.key, (r.ended_at_ms IS NULL) DESC, r.started_at_ms DESC
),
stopped AS (
  SELECT what, name
  FROM jobpool.pauses
  WHERE until_ms IS NULL OR until_ms > extract(epoch FROM clock_timestamp()) * 1000
),
work AS (
  SELECT pool, 0::bigint AS running, 0::bigint AS due FROM served
  UNION ALL
  SELECT pool, count(*), 0 FROM jobpool.jobs WHERE state = 'leased' GROUP BY pool
  UNION ALL
  SELECT
    o.pool, 0,
    CASE WHEN b.state = 'open' THEN least(1, o.jobs - o.blocked) ELSE o.jobs - o.blocked END
  FROM jobpool.oldest_runnable AS o
  LEFT JOIN jobpool.breakers AS b ON b.kind = o.kind
  WHERE o.known AND NOT o.paused AND NOT EXISTS (SELECT 1 FROM stopped WHERE what = 'store')
  UNION ALL
  SELECT j.pool, 0, count(*)
  FROM jobpool.jobs AS j
  WHERE j.state = 'pending'
    AND j.run_at_ms <= extract(epoch FROM clock_timestamp()) * 1000
    AND EXISTS (SELECT 1 FROM jobpool.kinds AS k WHERE k.kind = j.kind)
    AND NOT EXISTS (
      SELECT 1
      FROM stopped AS s
      WHERE s.what = 'store' OR (s.what = 'kind' AND s.name = j.kind)
        OR (s.what = 'pool' AND s.name = j.pool)
    )
  GROUP BY j.pool
  UNION ALL
  SELECT t.pool, 0, count(*)
  FROM jobpool.schedules AS t
  WHERE t.next_at_ms <= extract(epoch FROM clock_timestamp()) * 1000
  GROUP BY t.pool
)
SELECT
  w.pool,
  sum(w.running)::bigint AS running,
  sum(w.due)::bigint AS due,
  coalesce(s.slots, 1) AS slots,
  ((sum(w.running) + sum(w.due))::bigint + coalesce(s.slots, 1) - 1)
    / coalesce(s.slots, 1) AS wanted_replicas
FROM work AS w
LEFT JOIN served AS s ON s.pool = w.pool
GROUP BY w.pool, s.slots;
