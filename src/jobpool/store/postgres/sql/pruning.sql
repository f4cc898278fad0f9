-- Jobs that are not kept any more; flows that are deleted or erased.

-- name: old_succeeded
-- Finished before the retention period, and not before it was last looked for: id, end.
SELECT id, finished_at_ms
FROM jobpool.jobs
WHERE state = 'succeeded' AND step IS NULL
  AND finished_at_ms >= %(since_ms)s AND finished_at_ms < %(before_ms)s
ORDER BY finished_at_ms
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: old_canceled
-- Finished before the retention period, and not before it was last looked for: id, end.
SELECT id, finished_at_ms
FROM jobpool.jobs
WHERE state = 'canceled' AND step IS NULL
  AND finished_at_ms >= %(since_ms)s AND finished_at_ms < %(before_ms)s
ORDER BY finished_at_ms
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: old_dead
-- Finished before the retention period, and not before it was last looked for: id, end.
SELECT id, finished_at_ms
FROM jobpool.jobs
WHERE state = 'dead' AND step IS NULL
  AND finished_at_ms >= %(since_ms)s AND finished_at_ms < %(before_ms)s
ORDER BY finished_at_ms
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: old_quarantined
-- Finished before the retention period, and not before it was last looked for: id, end.
SELECT id, finished_at_ms
FROM jobpool.jobs
WHERE state = 'quarantined' AND step IS NULL
  AND finished_at_ms >= %(since_ms)s AND finished_at_ms < %(before_ms)s
ORDER BY finished_at_ms
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: surplus_succeeded
-- The oldest of those beyond :count, of which no more than need be are counted. In one
-- statement: what another prune deletes meanwhile was among the oldest here too, and is
-- not made up for by younger ones.
WITH surplus AS MATERIALIZED (
  SELECT id, finished_at_ms
  FROM jobpool.jobs
  WHERE state = 'succeeded' AND step IS NULL
  ORDER BY finished_at_ms
  LIMIT greatest(
    0,
    (
      SELECT count(*)
      FROM (
        SELECT 1
        FROM jobpool.jobs
        WHERE state = 'succeeded' AND step IS NULL
        LIMIT %(count)s::bigint + %(limit)s::bigint
      ) AS counted
    ) - %(count)s::bigint
  )
)
SELECT j.id
FROM surplus
JOIN jobpool.jobs AS j ON j.id = surplus.id
WHERE j.state || '' = 'succeeded' AND j.finished_at_ms = surplus.finished_at_ms
FOR UPDATE OF j SKIP LOCKED

-- name: surplus_canceled
-- The oldest of those beyond :count, of which no more than need be are counted. In one
-- statement: what another prune deletes meanwhile was among the oldest here too, and is
-- not made up for by younger ones.
WITH surplus AS MATERIALIZED (
  SELECT id, finished_at_ms
  FROM jobpool.jobs
  WHERE state = 'canceled' AND step IS NULL
  ORDER BY finished_at_ms
  LIMIT greatest(
    0,
    (
      SELECT count(*)
      FROM (
        SELECT 1
        FROM jobpool.jobs
        WHERE state = 'canceled' AND step IS NULL
        LIMIT %(count)s::bigint + %(limit)s::bigint
      ) AS counted
    ) - %(count)s::bigint
  )
)
SELECT j.id
FROM surplus
JOIN jobpool.jobs AS j ON j.id = surplus.id
WHERE j.state || '' = 'canceled' AND j.finished_at_ms = surplus.finished_at_ms
FOR UPDATE OF j SKIP LOCKED

-- name: surplus_dead
-- The oldest of those beyond :count, of which no more than need be are counted. In one
-- statement: what another prune deletes meanwhile was among the oldest here too, and is
-- not made up for by younger ones.
WITH surplus AS MATERIALIZED (
  SELECT id, finished_at_ms
  FROM jobpool.jobs
  WHERE state = 'dead' AND step IS NULL
  ORDER BY finished_at_ms
  LIMIT greatest(
    0,
    (
      SELECT count(*)
      FROM (
        SELECT 1
        FROM jobpool.jobs
        WHERE state = 'dead' AND step IS NULL
        LIMIT %(count)s::bigint + %(limit)s::bigint
      ) AS counted
    ) - %(count)s::bigint
  )
)
SELECT j.id
FROM surplus
JOIN jobpool.jobs AS j ON j.id = surplus.id
WHERE j.state || '' = 'dead' AND j.finished_at_ms = surplus.finished_at_ms
FOR UPDATE OF j SKIP LOCKED

-- name: surplus_quarantined
-- The oldest of those beyond :count, of which no more than need be are counted. In one
-- statement: what another prune deletes meanwhile was among the oldest here too, and is
-- not made up for by younger ones.
WITH surplus AS MATERIALIZED (
  SELECT id, finished_at_ms
  FROM jobpool.jobs
  WHERE state = 'quarantined' AND step IS NULL
  ORDER BY finished_at_ms
  LIMIT greatest(
    0,
    (
      SELECT count(*)
      FROM (
        SELECT 1
        FROM jobpool.jobs
        WHERE state = 'quarantined' AND step IS NULL
        LIMIT %(count)s::bigint + %(limit)s::bigint
      ) AS counted
    ) - %(count)s::bigint
  )
)
SELECT j.id
FROM surplus
JOIN jobpool.jobs AS j ON j.id = surplus.id
WHERE j.state || '' = 'quarantined' AND j.finished_at_ms = surplus.finished_at_ms
FOR UPDATE OF j SKIP LOCKED

-- name: count_old
-- Jobs of a state and of no flow: all, and those that ended before a time.
SELECT count(*), count(*) FILTER (WHERE finished_at_ms < %(before_ms)s)
FROM jobpool.jobs
WHERE state = %(state)s AND step IS NULL

-- name: count_members
-- Of all of these flows.
SELECT count(*)
FROM jobpool.steps AS s
JOIN jobpool.jobs AS j ON j.step = s.id
WHERE j.step IS NOT NULL
  AND s.flow IN (SELECT value::bigint FROM jsonb_array_elements_text(%(flows)s::jsonb))

-- name: members_of_flow
-- Some.
SELECT found.id
FROM jobpool.steps AS s
CROSS JOIN LATERAL (
  SELECT j.id FROM jobpool.jobs AS j WHERE j.step = s.id AND j.step IS NOT NULL OFFSET 0
) AS found
WHERE s.flow = %(flow)s
LIMIT %(limit)s

-- name: delete_flow_edges
-- All of a flow.
DELETE FROM jobpool.edges
WHERE to_step IN (SELECT id FROM jobpool.steps WHERE flow = %(flow)s)

-- name: delete_flow_steps
-- All of a flow.
DELETE FROM jobpool.steps WHERE flow = %(flow)s

-- name: delete_flow
-- Its members, edges and steps are gone.
DELETE FROM jobpool.flows WHERE id = %(flow)s

-- name: abandoned_flows
-- Whoever stored them has stopped before the end.
SELECT id
FROM jobpool.flows
WHERE finished_at_ms IS NULL AND state = 'building' AND touched_at_ms < %(before_ms)s
LIMIT %(limit)s

-- name: old_flows
-- Those that ended before a time, and of which no member was revived.
SELECT f.id
FROM jobpool.flows AS f
WHERE f.finished_at_ms IS NOT NULL AND f.state = %(state)s AND f.finished_at_ms < %(before_ms)s
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.steps AS s
    JOIN jobpool.jobs AS j ON j.step = s.id
    WHERE s.flow = f.id AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
  )
ORDER BY f.finished_at_ms
LIMIT %(limit)s

-- name: erase_flows
-- Whom flows are for, of jobs that are erased; while one of theirs has not ended, its key
-- still says which flow it is: that goes with its end. Locked in one order, as whoever
-- folds does.
WITH concerned AS MATERIALIZED (
  SELECT f.id, f.finished_at_ms
  FROM jobpool.flows AS f
  WHERE f.id = ANY (
    ARRAY(
      SELECT s.flow
      FROM jsonb_array_elements_text(%(ids)s::jsonb) AS wanted
      CROSS JOIN LATERAL (
        SELECT j.step
        FROM jobpool.jobs AS j
        WHERE j.id = wanted.value::bigint AND j.finished_at_ms IS NOT NULL
        OFFSET 0
      ) AS found
      JOIN jobpool.steps AS s ON s.id = found.step
    )
  )
    AND (f.key IS NOT NULL OR f.tenant IS NOT NULL)
  ORDER BY f.id
  FOR UPDATE
),
known AS MATERIALIZED (
  SELECT
    c.id,
    c.finished_at_ms IS NULL AND EXISTS (
      SELECT 1
      FROM jobpool.steps AS o
      CROSS JOIN LATERAL (
        SELECT
        FROM jobpool.jobs AS u
        WHERE u.step = o.id AND u.step IS NOT NULL AND u.finished_at_ms IS NULL
        OFFSET 0
      ) AS left_over
      WHERE o.flow = c.id
    ) AS goes_on
  FROM concerned AS c
)
UPDATE jobpool.flows AS f
SET
  key = CASE WHEN k.goes_on THEN f.key END,
  tenant = CASE WHEN k.goes_on THEN f.tenant END,
  is_erased = k.goes_on
FROM known AS k
WHERE f.id = k.id
