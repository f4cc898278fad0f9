-- Flows as people and programs see them; one that is still being built is none yet.

-- name: find_flows
-- Newest first.
SELECT
  id, name, key, tenant, state, failure, ending, generation, created_at_ms,
  finished_at_ms
FROM jobpool.flows
WHERE state <> 'building'
  AND (
    %(ids)s::jsonb IS NULL
    OR id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND (
    %(states)s::jsonb IS NULL
    OR state IN (SELECT value FROM jsonb_array_elements_text(%(states)s::jsonb))
  )
  AND (%(name)s::text IS NULL OR name = %(name)s::text)
  AND (%(key)s::text IS NULL OR key = %(key)s::text)
  AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s::text)
  AND (%(before_id)s::bigint IS NULL OR id < %(before_id)s::bigint)
ORDER BY id DESC
LIMIT %(limit)s

-- name: steps_of_flow
-- In order of their numbers.
SELECT id, number, name, state, failed, hook, is_external, timeout_ms, until_ms
FROM jobpool.steps
WHERE flow = %(flow)s
ORDER BY number

-- name: edges_of_flow
-- A step's number, the number of one before it, and how that must have ended.
SELECT s.number, b.number, e.when_ended
FROM jobpool.steps AS s
INNER JOIN jobpool.edges AS e ON s.id = e.to_step
INNER JOIN jobpool.steps AS b ON e.from_step = b.id
WHERE s.flow = %(flow)s
ORDER BY s.number, b.number

-- name: member_counts
-- How many members of each step are in which state, the first of them, when the first
-- began and when the last ended; replaced ones do not count.
SELECT
  s.number, j.state, count(*), min(j.id), min(j.started_at_ms), max(j.finished_at_ms)
FROM jobpool.steps AS s
INNER JOIN jobpool.jobs AS j ON s.id = j.step
WHERE s.flow = %(flow)s AND j.replaced_by IS NULL
GROUP BY s.number, j.state

-- name: place_of_member
-- Its flow, its step's number, the generation of its row, and its step.
SELECT s.flow, s.number, coalesce(j.generation, 1), s.id
FROM jobpool.jobs AS j
INNER JOIN jobpool.steps AS s ON j.step = s.id
WHERE j.id = %(id)s

-- name: numbers_before
-- Numbers of the steps right before a step.
SELECT b.number
FROM jobpool.edges AS e
INNER JOIN jobpool.steps AS b ON e.from_step = b.id
WHERE e.to_step = %(step)s
ORDER BY b.number

-- name: step_results
-- Of members that have succeeded and were not replaced; the page is chosen before the
-- results are read. Not by the index of all jobs that have succeeded.
SELECT p.id, p.number, p.kind, r.result, p.codec, p.reason
FROM (
  SELECT found.id, s.number, found.kind, found.codec, found.reason
  FROM jobpool.steps AS s
  CROSS JOIN LATERAL (
    SELECT j.id, j.kind, j.codec, j.reason
    FROM jobpool.jobs AS j
    WHERE j.step = s.id AND j.step IS NOT NULL AND j.id > %(after_id)s
      AND j.state || '' = 'succeeded' AND j.replaced_by IS NULL
    ORDER BY j.id
    LIMIT %(limit)s
  ) AS found
  WHERE s.flow = %(flow)s
    AND (
      %(numbers)s::jsonb IS NULL
      OR s.number IN (SELECT value::bigint FROM jsonb_array_elements_text(%(numbers)s::jsonb))
    )
  ORDER BY found.id
  LIMIT %(limit)s
) AS p
INNER JOIN jobpool.job_records AS r ON p.id = r.id
ORDER BY p.id

-- name: asking_steps
-- Of the oldest open flows, external steps that are ready and that nobody has decided.
-- Their flow, its name, their number and name, when their time has run out.
SELECT f.id, f.name, s.number, s.name, s.until_ms
FROM (
  SELECT id, name
  FROM jobpool.flows
  WHERE finished_at_ms IS NULL AND state = 'open'
  ORDER BY id
  LIMIT %(most)s
) AS f
JOIN jobpool.steps AS s ON s.flow = f.id
WHERE s.is_external AND s.state = 'ready' AND s.state IN ('closed', 'ready', 'skipping')
  AND EXISTS (
    SELECT 1
    FROM jobpool.jobs AS j
    WHERE j.step = s.id AND j.finished_at_ms IS NULL
  )
ORDER BY f.id, s.number
LIMIT %(limit)s

-- name: stray_jobs
-- Jobs that wait for nothing that is there: one for each step that is not, and those that
-- wait neither for a step nor for a text. From step to step by the index of waiting jobs:
-- of :most steps, and of as many jobs without. Not by min(): that is of those that are not
-- null, which another index has, with all members that have ended.
WITH RECURSIVE waited (step) AS (
  (
    SELECT j.step FROM jobpool.jobs AS j WHERE j.state = 'waiting' ORDER BY j.step LIMIT 1
  )
  UNION ALL
  SELECT (
    SELECT min(j.step) FROM jobpool.jobs AS j WHERE j.state = 'waiting' AND j.step > w.step
  )
  FROM waited AS w
  WHERE w.step IS NOT NULL
)
SELECT (
  SELECT j.id FROM jobpool.jobs AS j WHERE j.state = 'waiting' AND j.step = w.step LIMIT 1
)
FROM (SELECT step FROM waited LIMIT %(most)s) AS w
WHERE w.step IS NOT NULL
  AND (SELECT 1 FROM jobpool.steps AS s WHERE s.id = w.step) IS NULL
UNION ALL
SELECT alone.id
FROM (
  SELECT j.id FROM jobpool.jobs AS j WHERE j.state = 'waiting' AND j.step IS NULL LIMIT %(most)s
) AS alone
WHERE (SELECT 1 FROM jobpool.debounced AS d WHERE d.job_id = alone.id AND d.waits) IS NULL
ORDER BY 1
LIMIT %(limit)s
