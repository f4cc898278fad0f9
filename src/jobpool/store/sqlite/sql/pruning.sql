-- Jobs that are not kept any more; flows that are deleted or erased.

-- name: old_succeeded
-- Finished before the retention period, and not before it was last looked for: id, end.
SELECT id, finished_at_ms
FROM jobpool_jobs
WHERE state = 'succeeded' AND step IS NULL
  AND finished_at_ms >= :since_ms AND finished_at_ms < :before_ms
ORDER BY finished_at_ms
LIMIT :limit

-- name: old_canceled
-- Finished before the retention period, and not before it was last looked for: id, end.
SELECT id, finished_at_ms
FROM jobpool_jobs
WHERE state = 'canceled' AND step IS NULL
  AND finished_at_ms >= :since_ms AND finished_at_ms < :before_ms
ORDER BY finished_at_ms
LIMIT :limit

-- name: old_dead
-- Finished before the retention period, and not before it was last looked for: id, end.
SELECT id, finished_at_ms
FROM jobpool_jobs
WHERE state = 'dead' AND step IS NULL
  AND finished_at_ms >= :since_ms AND finished_at_ms < :before_ms
ORDER BY finished_at_ms
LIMIT :limit

-- name: old_quarantined
-- Finished before the retention period, and not before it was last looked for: id, end.
SELECT id, finished_at_ms
FROM jobpool_jobs
WHERE state = 'quarantined' AND step IS NULL
  AND finished_at_ms >= :since_ms AND finished_at_ms < :before_ms
ORDER BY finished_at_ms
LIMIT :limit

-- name: surplus_succeeded
-- The oldest of those beyond :count, of which no more than need be are counted.
SELECT id
FROM jobpool_jobs
WHERE state = 'succeeded' AND step IS NULL
ORDER BY finished_at_ms
LIMIT max(
  0,
  (
    SELECT count(*)
    FROM (SELECT 1 FROM jobpool_jobs WHERE state = 'succeeded' AND step IS NULL LIMIT :count + :limit)
  ) - :count
)

-- name: surplus_canceled
-- The oldest of those beyond :count, of which no more than need be are counted.
SELECT id
FROM jobpool_jobs
WHERE state = 'canceled' AND step IS NULL
ORDER BY finished_at_ms
LIMIT max(
  0,
  (
    SELECT count(*)
    FROM (SELECT 1 FROM jobpool_jobs WHERE state = 'canceled' AND step IS NULL LIMIT :count + :limit)
  ) - :count
)

-- name: surplus_dead
-- The oldest of those beyond :count, of which no more than need be are counted.
SELECT id
FROM jobpool_jobs
WHERE state = 'dead' AND step IS NULL
ORDER BY finished_at_ms
LIMIT max(
  0,
  (
    SELECT count(*)
    FROM (SELECT 1 FROM jobpool_jobs WHERE state = 'dead' AND step IS NULL LIMIT :count + :limit)
  ) - :count
)

-- name: surplus_quarantined
-- The oldest of those beyond :count, of which no more than need be are counted.
SELECT id
FROM jobpool_jobs
WHERE state = 'quarantined' AND step IS NULL
ORDER BY finished_at_ms
LIMIT max(
  0,
  (
    SELECT count(*)
    FROM (SELECT 1 FROM jobpool_jobs WHERE state = 'quarantined' AND step IS NULL LIMIT :count + :limit)
  ) - :count
)

-- name: count_old
-- Jobs of a state and of no flow: all, and those that ended before a time.
SELECT count(*), count(*) FILTER (WHERE finished_at_ms < :before_ms)
FROM jobpool_jobs
WHERE state = :state AND step IS NULL

-- name: count_members
-- Of all of these flows.
SELECT count(*)
FROM jobpool_steps AS s
CROSS JOIN jobpool_jobs AS j ON j.step = s.id
WHERE j.step IS NOT NULL
  AND s.flow IN (SELECT value FROM json_each(:flows))

-- name: members_of_flow
-- Some.
SELECT +j.id
FROM jobpool_steps AS s
CROSS JOIN jobpool_jobs AS j ON j.step = s.id
WHERE s.flow = :flow
LIMIT :limit

-- name: delete_flow_edges
-- All of a flow.
DELETE FROM jobpool_edges
WHERE to_step IN (SELECT id FROM jobpool_steps WHERE flow = :flow)

-- name: delete_flow_steps
-- All of a flow.
DELETE FROM jobpool_steps WHERE flow = :flow

-- name: delete_flow
-- Its members, edges and steps are gone.
DELETE FROM jobpool_flows WHERE id = :flow

-- name: abandoned_flows
-- Whoever stored them has stopped before the end.
SELECT id
FROM jobpool_flows
WHERE finished_at_ms IS NULL AND state = 'building' AND touched_at_ms < :before_ms
LIMIT :limit

-- name: old_flows
-- Those that ended before a time, and of which no member was revived.
SELECT f.id
FROM jobpool_flows AS f
WHERE f.finished_at_ms IS NOT NULL AND f.state = :state AND f.finished_at_ms < :before_ms
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_steps AS s
    CROSS JOIN jobpool_jobs AS j ON j.step = s.id
    WHERE s.flow = f.id AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
  )
ORDER BY f.finished_at_ms
LIMIT :limit

-- name: erase_flows
-- Whom flows are for, of jobs that are erased; while one of theirs has not ended, its key
-- still says which flow it is: that goes with its end.
WITH concerned AS MATERIALIZED (
  SELECT
    f.id,
    f.finished_at_ms IS NULL AND EXISTS (
      SELECT 1
      FROM jobpool_steps AS o
      CROSS JOIN jobpool_jobs AS u ON u.step = o.id
      WHERE o.flow = f.id AND u.step IS NOT NULL AND u.finished_at_ms IS NULL
    ) AS goes_on
  FROM jobpool_flows AS f
  WHERE f.id IN (
      SELECT s.flow
      FROM json_each(:ids) AS wanted
      CROSS JOIN jobpool_jobs AS j ON j.id = wanted.value
      CROSS JOIN jobpool_steps AS s ON s.id = j.step
      WHERE j.finished_at_ms IS NOT NULL
    )
    AND (f.key IS NOT NULL OR f.tenant IS NOT NULL)
)
UPDATE jobpool_flows
SET
  key = iif(c.goes_on, key, NULL),
  tenant = iif(c.goes_on, tenant, NULL),
  is_erased = c.goes_on
FROM concerned AS c
WHERE jobpool_flows.id = c.id
