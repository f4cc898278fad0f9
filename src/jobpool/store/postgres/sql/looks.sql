-- Looks at jobs: each reads a window of an index, however many jobs there are. The
-- conditions of a filter are then held against those alone.

-- name: ids_of_key
-- At most one of each kind; from kind to kind by the index of keys, which begins with them.
WITH RECURSIVE kinds (kind) AS (
  (SELECT j.kind FROM jobpool.jobs AS j WHERE j.key IS NOT NULL ORDER BY j.kind LIMIT 1)
  UNION ALL
  SELECT (
    SELECT j.kind
    FROM jobpool.jobs AS j
    WHERE j.key IS NOT NULL AND j.kind > k.kind
    ORDER BY j.kind
    LIMIT 1
  )
  FROM kinds AS k
  WHERE k.kind IS NOT NULL
)
SELECT holder.id
FROM kinds AS k
CROSS JOIN LATERAL (
  SELECT j.id FROM jobpool.jobs AS j WHERE j.kind = k.kind AND j.key = %(key)s::text LIMIT 1
) AS holder

-- name: ids_of_flow
-- All of its members.
SELECT j.id
FROM jobpool.steps AS s
INNER JOIN jobpool.jobs AS j ON s.id = j.step
WHERE s.flow = %(flow)s

-- name: look_newest
-- The newest ids. Both ends are given: without statistics such a range counts as narrow,
-- while one with a single end counts as a third of all jobs, which would be read and sorted.
SELECT 0, id
FROM jobpool.jobs
WHERE id >= 0 AND id < %(before_id)s
ORDER BY id DESC
LIMIT %(window)s

-- name: look_ended
-- The latest ends of the states that are meant, each from the index of its own.
SELECT finished_at_ms, id
FROM (
  (
    SELECT finished_at_ms, id
    FROM jobpool.jobs
    WHERE state = 'succeeded' AND %(succeeded)s::boolean
      AND (finished_at_ms, id) < (%(at_ms)s::bigint, %(before_id)s::bigint)
    ORDER BY finished_at_ms DESC, id DESC
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT finished_at_ms, id
    FROM jobpool.jobs
    WHERE state = 'dead' AND %(dead)s::boolean
      AND (finished_at_ms, id) < (%(at_ms)s::bigint, %(before_id)s::bigint)
    ORDER BY finished_at_ms DESC, id DESC
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT finished_at_ms, id
    FROM jobpool.jobs
    WHERE state = 'quarantined' AND %(quarantined)s::boolean
      AND (finished_at_ms, id) < (%(at_ms)s::bigint, %(before_id)s::bigint)
    ORDER BY finished_at_ms DESC, id DESC
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT finished_at_ms, id
    FROM jobpool.jobs
    WHERE state = 'canceled' AND %(canceled)s::boolean
      AND (finished_at_ms, id) < (%(at_ms)s::bigint, %(before_id)s::bigint)
    ORDER BY finished_at_ms DESC, id DESC
    LIMIT %(window)s
  )
) AS ended
ORDER BY finished_at_ms DESC, id DESC
LIMIT %(window)s

-- name: look_states
-- Any jobs of the states that are meant, each from the index of its own.
SELECT id
FROM (
  (
    SELECT id
    FROM jobpool.jobs
    WHERE state = 'pending' AND %(pending)s::boolean
    ORDER BY run_at_ms
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT id
    FROM jobpool.jobs
    WHERE state = 'waiting' AND %(waiting)s::boolean
    ORDER BY step
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT id
    FROM jobpool.jobs
    WHERE state = 'runnable' AND %(runnable)s::boolean
    ORDER BY pool
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT id
    FROM jobpool.jobs
    WHERE state = 'leased' AND %(leased)s::boolean
    ORDER BY supervisor
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT id
    FROM jobpool.jobs
    WHERE state = 'succeeded' AND %(succeeded)s::boolean
    ORDER BY finished_at_ms
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT id
    FROM jobpool.jobs
    WHERE state = 'dead' AND %(dead)s::boolean
    ORDER BY finished_at_ms
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT id
    FROM jobpool.jobs
    WHERE state = 'quarantined' AND %(quarantined)s::boolean
    ORDER BY finished_at_ms
    LIMIT %(window)s
  )
  UNION ALL
  (
    SELECT id
    FROM jobpool.jobs
    WHERE state = 'canceled' AND %(canceled)s::boolean
    ORDER BY finished_at_ms
    LIMIT %(window)s
  )
) AS meant
LIMIT %(window)s

-- name: look_tally
-- Jobs by state, each up to a number.
SELECT 'pending', count(*)
FROM (
  SELECT id FROM jobpool.jobs WHERE state = 'pending' ORDER BY run_at_ms LIMIT %(most)s
) AS few
UNION ALL
SELECT 'waiting', count(*)
FROM (
  SELECT id FROM jobpool.jobs WHERE state = 'waiting' ORDER BY step LIMIT %(most)s
) AS few
UNION ALL
SELECT 'runnable', count(*)
FROM (
  SELECT id FROM jobpool.jobs WHERE state = 'runnable' ORDER BY pool LIMIT %(most)s
) AS few
UNION ALL
SELECT 'leased', count(*)
FROM (
  SELECT id FROM jobpool.jobs WHERE state = 'leased' ORDER BY supervisor LIMIT %(most)s
) AS few
UNION ALL
SELECT 'succeeded', count(*)
FROM (
  SELECT id FROM jobpool.jobs WHERE state = 'succeeded' ORDER BY finished_at_ms LIMIT %(most)s
) AS few
UNION ALL
SELECT 'dead', count(*)
FROM (
  SELECT id FROM jobpool.jobs WHERE state = 'dead' ORDER BY finished_at_ms LIMIT %(most)s
) AS few
UNION ALL
SELECT 'quarantined', count(*)
FROM (
  SELECT id FROM jobpool.jobs WHERE state = 'quarantined' ORDER BY finished_at_ms LIMIT %(most)s
) AS few
UNION ALL
SELECT 'canceled', count(*)
FROM (
  SELECT id FROM jobpool.jobs WHERE state = 'canceled' ORDER BY finished_at_ms LIMIT %(most)s
) AS few

-- name: look_matching
-- Those of some ids that a filter means; as find_jobs.
SELECT j.id
FROM jobpool.jobs AS j
WHERE j.id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND (
    %(states)s::jsonb IS NULL
    OR j.state IN (SELECT value FROM jsonb_array_elements_text(%(states)s::jsonb))
  )
  AND (%(kind)s::text IS NULL OR j.kind = %(kind)s::text)
  AND (%(pool)s::text IS NULL OR j.pool = %(pool)s::text)
  AND (%(tenant)s::text IS NULL OR j.tenant = %(tenant)s::text)
  AND (%(outcome)s::text IS NULL OR j.outcome = %(outcome)s::text)
  AND (
    %(error_class)s::text IS NULL
    OR j.error_class = %(error_class)s::text
    OR right(j.error_class, length(%(error_class)s::text) + 1)
    = '.' || %(error_class)s::text
  )
  AND (
    %(since_ms)s::bigint IS NULL
    OR coalesce(j.finished_at_ms, j.created_at_ms) >= %(since_ms)s::bigint
  )
  AND (
    %(text)s::text IS NULL
    OR strpos(j.key, %(text)s::text) > 0
    OR strpos(j.tenant, %(text)s::text) > 0
    OR strpos(j.reason, %(text)s::text) > 0
  )

-- name: look_records
-- Some jobs; as find_jobs.
SELECT
  r.*,
  (SELECT j.replays FROM jobpool.jobs AS j WHERE j.id = r.id),
  (SELECT j.replaced_by FROM jobpool.jobs AS j WHERE j.id = r.id),
  (SELECT j.codec FROM jobpool.jobs AS j WHERE j.id = r.id),
  (SELECT j.throttled FROM jobpool.jobs AS j WHERE j.id = r.id),
  d.until_start, d.replacements, d.postponements, d.follows,
  (
    SELECT w.job_id
    FROM jobpool.debounced AS w
    WHERE w.waits AND w.kind = r.kind AND w.unique_text = r.unique_text
      AND r.finished_at_ms IS NULL
  ),
  d.shared_text
FROM jobpool.job_records AS r
LEFT JOIN jobpool.debounced_records AS d ON d.job_id = r.id
WHERE r.id = ANY (
  ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
)
ORDER BY r.id DESC
