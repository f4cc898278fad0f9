-- How many supervisors each pool needs, with the slots that one has: those of the newest
-- that has served the pool, so that it is known while none runs. What a quota, a pause, a
-- breaker or time holds back needs none. Pending jobs whose time has come count, and so
-- do ticks that are due: without a supervisor nothing makes them runnable.
CREATE VIEW jobpool_scaling AS
WITH
served AS (
  SELECT pool, slots
  FROM (
    SELECT
      p.key AS pool,
      max(1, CAST(substr(p.value, instr(p.value, '..') + iif(p.value LIKE '%..%', 2, 1))
        AS INTEGER)) AS slots,
      row_number() OVER (
        PARTITION BY p.key
        ORDER BY r.ended_at_ms IS NULL DESC, r.started_at_ms DESC
      ) AS place
    FROM jobpool_runs AS r
    CROSS JOIN json_each(iif(json_valid(r.pools), r.pools, '{}')) AS p
  )
  WHERE place = 1
),
stopped AS (
  SELECT what, name
  FROM jobpool_pauses
  WHERE until_ms IS NULL OR until_ms > strftime('%s', 'now') * 1000
),
work AS (
  SELECT pool, 0 AS running, 0 AS due FROM served
  UNION ALL
  SELECT pool, count(*), 0 FROM jobpool_jobs WHERE state = 'leased' GROUP BY pool
  UNION ALL
  SELECT o.pool, 0, iif(b.state = 'open', min(1, o.jobs - o.blocked), o.jobs - o.blocked)
  FROM jobpool_oldest_runnable AS o
  LEFT JOIN jobpool_breakers AS b ON b.kind = o.kind
  WHERE o.known AND NOT o.paused AND NOT EXISTS (SELECT 1 FROM stopped WHERE what = 'store')
  UNION ALL
  SELECT j.pool, 0, count(*)
  FROM jobpool_jobs AS j
  WHERE j.state = 'pending' AND j.run_at_ms <= strftime('%s', 'now') * 1000
    AND EXISTS (SELECT 1 FROM jobpool_kinds AS k WHERE k.kind = j.kind)
    AND NOT EXISTS (
      SELECT 1
      FROM stopped AS s
      WHERE s.what = 'store' OR (s.what = 'kind' AND s.name = j.kind)
        OR (s.what = 'pool' AND s.name = j.pool)
    )
  GROUP BY j.pool
  UNION ALL
  SELECT t.pool, 0, count(*)
  FROM jobpool_schedules AS t
  WHERE t.next_at_ms <= strftime('%s', 'now') * 1000
  GROUP BY t.pool
)
SELECT
  w.pool,
  sum(w.running) AS running,
  sum(w.due) AS due,
  coalesce(s.slots, 1) AS slots,
  (sum(w.running) + sum(w.due) + coalesce(s.slots, 1) - 1) / coalesce(s.slots, 1)
    AS wanted_replicas
FROM work AS w
LEFT JOIN served AS s ON s.pool = w.pool
GROUP BY w.pool;
