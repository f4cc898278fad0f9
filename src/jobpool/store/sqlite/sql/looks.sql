-- Looks at jobs: each reads a window of an index, however many jobs there are. The
-- conditions of a filter are then held against those alone.

-- name: ids_of_key
-- At most one of each kind; from kind to kind by the index of keys, which begins with them.
WITH RECURSIVE kinds (kind) AS (
  SELECT (SELECT j.kind FROM jobpool_jobs AS j WHERE j.key IS NOT NULL ORDER BY j.kind LIMIT 1)
  UNION ALL
  SELECT (
    SELECT j.kind
    FROM jobpool_jobs AS j
    WHERE j.key IS NOT NULL AND j.kind > k.kind
    ORDER BY j.kind
    LIMIT 1
  )
  FROM kinds AS k
  WHERE k.kind IS NOT NULL
)
SELECT j.id
FROM kinds AS k
CROSS JOIN jobpool_jobs AS j ON j.kind = k.kind AND j.key = :key

-- name: ids_of_flow
-- All of its members.
SELECT j.id
FROM jobpool_steps AS s
INNER JOIN jobpool_jobs AS j ON s.id = j.step
WHERE s.flow = :flow

-- name: look_newest
-- The newest ids.
SELECT 0, id FROM jobpool_jobs WHERE id < :before_id ORDER BY id DESC LIMIT :window

-- name: look_ended
-- The latest ends of the states that are meant, each from the index of its own.
SELECT finished_at_ms, id
FROM (
  SELECT finished_at_ms, id
  FROM (
    SELECT finished_at_ms, id
    FROM jobpool_jobs
    WHERE state = 'succeeded' AND :succeeded
      AND (finished_at_ms, id) < (:at_ms, :before_id)
    ORDER BY finished_at_ms DESC, id DESC
    LIMIT :window
  )
  UNION ALL
  SELECT finished_at_ms, id
  FROM (
    SELECT finished_at_ms, id
    FROM jobpool_jobs
    WHERE state = 'dead' AND :dead
      AND (finished_at_ms, id) < (:at_ms, :before_id)
    ORDER BY finished_at_ms DESC, id DESC
    LIMIT :window
  )
  UNION ALL
  SELECT finished_at_ms, id
  FROM (
    SELECT finished_at_ms, id
    FROM jobpool_jobs
    WHERE state = 'quarantined' AND :quarantined
      AND (finished_at_ms, id) < (:at_ms, :before_id)
    ORDER BY finished_at_ms DESC, id DESC
    LIMIT :window
  )
  UNION ALL
  SELECT finished_at_ms, id
  FROM (
    SELECT finished_at_ms, id
    FROM jobpool_jobs
    WHERE state = 'canceled' AND :canceled
      AND (finished_at_ms, id) < (:at_ms, :before_id)
    ORDER BY finished_at_ms DESC, id DESC
    LIMIT :window
  )
) AS ended
ORDER BY finished_at_ms DESC, id DESC
LIMIT :window

-- name: look_states
-- Any jobs of the states that are meant, each from the index of its own.
SELECT id
FROM (
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_jobs
    WHERE state = 'pending' AND :pending
    ORDER BY run_at_ms
    LIMIT :window
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_jobs
    WHERE state = 'waiting' AND :waiting
    ORDER BY step
    LIMIT :window
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_jobs
    WHERE state = 'runnable' AND :runnable
    ORDER BY pool
    LIMIT :window
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_jobs
    WHERE state = 'leased' AND :leased
    ORDER BY supervisor
    LIMIT :window
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_jobs
    WHERE state = 'succeeded' AND :succeeded
    ORDER BY finished_at_ms
    LIMIT :window
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_jobs
    WHERE state = 'dead' AND :dead
    ORDER BY finished_at_ms
    LIMIT :window
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_jobs
    WHERE state = 'quarantined' AND :quarantined
    ORDER BY finished_at_ms
    LIMIT :window
  )
  UNION ALL
  SELECT id
  FROM (
    SELECT id
    FROM jobpool_jobs
    WHERE state = 'canceled' AND :canceled
    ORDER BY finished_at_ms
    LIMIT :window
  )
) AS meant
LIMIT :window

-- name: look_tally
-- Jobs by state, each up to a number.
SELECT 'pending', count(*)
FROM (
  SELECT id FROM jobpool_jobs WHERE state = 'pending' ORDER BY run_at_ms LIMIT :most
) AS few
UNION ALL
SELECT 'waiting', count(*)
FROM (
  SELECT id FROM jobpool_jobs WHERE state = 'waiting' ORDER BY step LIMIT :most
) AS few
UNION ALL
SELECT 'runnable', count(*)
FROM (
  SELECT id FROM jobpool_jobs WHERE state = 'runnable' ORDER BY pool LIMIT :most
) AS few
UNION ALL
SELECT 'leased', count(*)
FROM (
  SELECT id FROM jobpool_jobs WHERE state = 'leased' ORDER BY supervisor LIMIT :most
) AS few
UNION ALL
SELECT 'succeeded', count(*)
FROM (
  SELECT id FROM jobpool_jobs WHERE state = 'succeeded' ORDER BY finished_at_ms LIMIT :most
) AS few
UNION ALL
SELECT 'dead', count(*)
FROM (
  SELECT id FROM jobpool_jobs WHERE state = 'dead' ORDER BY finished_at_ms LIMIT :most
) AS few
UNION ALL
SELECT 'quarantined', count(*)
FROM (
  SELECT id FROM jobpool_jobs WHERE state = 'quarantined' ORDER BY finished_at_ms LIMIT :most
) AS few
UNION ALL
SELECT 'canceled', count(*)
FROM (
  SELECT id FROM jobpool_jobs WHERE state = 'canceled' ORDER BY finished_at_ms LIMIT :most
) AS few

-- name: look_matching
-- Those of some ids that a filter means; as find_jobs.
SELECT j.id
FROM json_each(:ids) AS w
CROSS JOIN jobpool_jobs AS j ON j.id = w.value
WHERE (:states IS NULL OR j.state IN (SELECT value FROM json_each(:states)))
  AND (:kind IS NULL OR j.kind = :kind)
  AND (:pool IS NULL OR j.pool = :pool)
  AND (:tenant IS NULL OR j.tenant = :tenant)
  AND (:outcome IS NULL OR j.outcome = :outcome)
  AND (
    :error_class IS NULL
    OR j.error_class = :error_class
    OR substr(j.error_class, -length(:error_class) - 1) = '.' || :error_class
  )
  AND (:since_ms IS NULL OR coalesce(j.finished_at_ms, j.created_at_ms) >= :since_ms)
  AND (
    :text IS NULL
    OR instr(j.key, :text) > 0
    OR instr(j.tenant, :text) > 0
    OR instr(j.reason, :text) > 0
  )

-- name: look_records
-- Some jobs; as find_jobs.
SELECT
  r.*,
  (SELECT j.replays FROM jobpool_jobs AS j WHERE j.id = r.id),
  (SELECT j.replaced_by FROM jobpool_jobs AS j WHERE j.id = r.id),
  (SELECT j.codec FROM jobpool_jobs AS j WHERE j.id = r.id),
  (SELECT j.throttled FROM jobpool_jobs AS j WHERE j.id = r.id),
  d.until_start, d.replacements, d.postponements, d.follows,
  (
    SELECT w.job_id
    FROM jobpool_debounced AS w
    WHERE w.waits = 1 AND w.kind = r.kind AND w.unique_text = r.unique_text
      AND r.finished_at_ms IS NULL
  ),
  d.shared_text
FROM json_each(:ids) AS w
CROSS JOIN jobpool_job_records AS r ON r.id = w.value
LEFT JOIN jobpool_debounced_records AS d ON d.job_id = r.id
ORDER BY r.id DESC
