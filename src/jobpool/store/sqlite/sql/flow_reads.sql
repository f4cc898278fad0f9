-- Flows as people and programs see them; one that is still being built is none yet.

-- name: find_flows
-- Newest first.
SELECT
  id, name, key, tenant, state, failure, ending, generation, created_at_ms,
  finished_at_ms
FROM jobpool_flows
WHERE state <> 'building'
  AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:name IS NULL OR name = :name)
  AND (:key IS NULL OR key = :key)
  AND (:tenant IS NULL OR tenant = :tenant)
  AND (:before_id IS NULL OR id < :before_id)
ORDER BY id DESC
LIMIT :limit

-- name: steps_of_flow
-- In order of their numbers.
SELECT id, number, name, state, failed, hook, is_external, timeout_ms, until_ms
FROM jobpool_steps
WHERE flow = :flow
ORDER BY number

-- name: edges_of_flow
-- A step's number, the number of one before it, and how that must have ended.
SELECT s.number, b.number, e.when_ended
FROM jobpool_steps AS s
INNER JOIN jobpool_edges AS e ON s.id = e.to_step
INNER JOIN jobpool_steps AS b ON e.from_step = b.id
WHERE s.flow = :flow
ORDER BY s.number, b.number

-- name: member_counts
-- How many members of each step are in which state, the first of them, when the first
-- began and when the last ended; replaced ones do not count.
SELECT
  s.number, j.state, count(*), min(j.id), min(j.started_at_ms), max(j.finished_at_ms)
FROM jobpool_steps AS s
INNER JOIN jobpool_jobs AS j ON s.id = j.step
WHERE s.flow = :flow AND j.replaced_by IS NULL
GROUP BY s.number, j.state

-- name: place_of_member
-- Its flow, its step's number, the generation of its row, and its step.
SELECT s.flow, s.number, coalesce(j.generation, 1), s.id
FROM jobpool_jobs AS j
INNER JOIN jobpool_steps AS s ON j.step = s.id
WHERE j.id = :id

-- name: numbers_before
-- Numbers of the steps right before a step.
SELECT b.number
FROM jobpool_edges AS e
INNER JOIN jobpool_steps AS b ON e.from_step = b.id
WHERE e.to_step = :step
ORDER BY b.number

-- name: step_results
-- Of members that have succeeded and were not replaced; the page is chosen before the
-- results are read.
SELECT p.id, p.number, p.kind, r.result, p.codec, p.reason
FROM (
  SELECT j.id, s.number, j.kind, j.codec, j.reason
  FROM jobpool_steps AS s
  INNER JOIN jobpool_jobs AS j ON s.id = j.step
  WHERE s.flow = :flow
    AND (:numbers IS NULL OR s.number IN (SELECT value FROM json_each(:numbers)))
    AND j.id > :after_id
    AND j.state = 'succeeded'
    AND j.replaced_by IS NULL
  ORDER BY j.id
  LIMIT :limit
) AS p
INNER JOIN jobpool_job_records AS r ON p.id = r.id
ORDER BY p.id

-- name: asking_steps
-- Of the oldest open flows, external steps that are ready and that nobody has decided.
-- Their flow, its name, their number and name, when their time has run out.
SELECT f.id, f.name, s.number, s.name, s.until_ms
FROM (
  SELECT id, name
  FROM jobpool_flows
  WHERE finished_at_ms IS NULL AND state = 'open'
  ORDER BY id
  LIMIT :most
) AS f
CROSS JOIN jobpool_steps AS s ON s.flow = f.id
WHERE s.is_external = 1 AND s.state = 'ready' AND s.state IN ('closed', 'ready', 'skipping')
  AND EXISTS (
    SELECT 1
    FROM jobpool_jobs AS j
    WHERE j.step = s.id AND j.finished_at_ms IS NULL
  )
ORDER BY f.id, s.number
LIMIT :limit

-- name: stray_jobs
-- Jobs that wait for nothing that is there: one for each step that is not, and those that
-- wait neither for a step nor for a text. From step to step by the index of waiting jobs:
-- of :most steps, and of as many jobs without.
WITH RECURSIVE waited (step) AS (
  SELECT (SELECT min(j.step) FROM jobpool_jobs AS j WHERE j.state = 'waiting')
  UNION ALL
  SELECT (
    SELECT min(j.step) FROM jobpool_jobs AS j WHERE j.state = 'waiting' AND j.step > w.step
  )
  FROM waited AS w
  WHERE w.step IS NOT NULL
)
SELECT (
  SELECT j.id FROM jobpool_jobs AS j WHERE j.state = 'waiting' AND j.step = w.step LIMIT 1
)
FROM (SELECT step FROM waited LIMIT :most) AS w
WHERE w.step IS NOT NULL
  AND (SELECT 1 FROM jobpool_steps AS s WHERE s.id = w.step) IS NULL
UNION ALL
SELECT alone.id
FROM (
  SELECT j.id FROM jobpool_jobs AS j WHERE j.state = 'waiting' AND j.step IS NULL LIMIT :most
) AS alone
WHERE (SELECT 1 FROM jobpool_debounced AS d WHERE d.job_id = alone.id AND d.waits = 1) IS NULL
ORDER BY 1
LIMIT :limit
