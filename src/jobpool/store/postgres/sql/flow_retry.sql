-- Flows that are retried. Whoever runs this holds the flow.

-- name: retried_flow
-- Its generation, whether it has ended, and why nothing more of it begins. No row: it is
-- not stored yet.
SELECT generation, finished_at_ms IS NOT NULL, ending
FROM jobpool.flows
WHERE id = %(flow)s AND state <> 'building'

-- name: given_members
-- Those of :ids that are in a flow: id, state, what has replaced it; step, its state, and
-- which hook it is.
SELECT found.id, found.state, found.replaced_by, s.id, s.state, s.hook
FROM jsonb_array_elements_text(%(ids)s::jsonb) AS wanted
CROSS JOIN LATERAL (
  SELECT j.id, j.state, j.replaced_by, j.step
  FROM jobpool.jobs AS j
  WHERE j.id = wanted.value::bigint
  OFFSET 0
) AS found
JOIN jobpool.steps AS s ON s.id = found.step
WHERE s.flow = %(flow)s

-- name: left_out
-- Of a flow, members of steps that had begun which were canceled for one of :reasons: id,
-- step.
SELECT found.id, s.id
FROM jobpool.steps AS s
CROSS JOIN LATERAL (
  SELECT b.id
  FROM jobpool.jobs AS b
  WHERE b.step = s.id
    AND b.step IS NOT NULL AND b.replaced_by IS NULL
    AND b.state || '' IN ('dead', 'quarantined', 'canceled')
    AND b.reason IN (SELECT value FROM jsonb_array_elements_text(%(reasons)s::jsonb))
  OFFSET 0
) AS found
WHERE s.flow = %(flow)s AND s.state IN ('ready', 'done') AND s.hook IS NULL

-- name: lock_members
-- The newest rows of :steps, until the commit.
SELECT j.id
FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
JOIN jobpool.jobs AS j ON j.step = wanted.value::bigint
WHERE j.step IS NOT NULL AND j.replaced_by IS NULL
ORDER BY j.id
FOR UPDATE OF j

-- name: unfinished_member
-- Of a flow: one, for instance a hook's that somebody has let run again.
SELECT found.id
FROM jobpool.steps AS s
CROSS JOIN LATERAL (
  SELECT j.id
  FROM jobpool.jobs AS j
  WHERE j.step = s.id AND j.step IS NOT NULL AND j.finished_at_ms IS NULL
  OFFSET 0
) AS found
WHERE s.flow = %(flow)s
LIMIT 1

-- name: running_member
-- Of :steps, one.
SELECT found.id
FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
CROSS JOIN LATERAL (
  SELECT j.id
  FROM jobpool.jobs AS j
  WHERE j.step = wanted.value::bigint
    AND j.step IS NOT NULL AND j.finished_at_ms IS NULL AND j.state || '' = 'leased'
  LIMIT 1
) AS found
LIMIT 1

-- name: count_anew
-- The newest rows of :steps, at most :limit.
SELECT count(*)
FROM (
  SELECT
  FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
  CROSS JOIN LATERAL (
    SELECT
    FROM jobpool.jobs AS j
    WHERE j.step = wanted.value::bigint AND j.step IS NOT NULL AND j.replaced_by IS NULL
    OFFSET 0
  ) AS found
  LIMIT %(limit)s
) AS few

-- name: erased_member
-- Of :steps, one that is to run and has no arguments any more.
SELECT found.id
FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
JOIN jobpool.steps AS s ON s.id = wanted.value::bigint
CROSS JOIN LATERAL (
  SELECT j.id, j.state, j.added_by
  FROM jobpool.jobs AS j
  WHERE j.step = s.id AND j.step IS NOT NULL AND j.replaced_by IS NULL
    AND j.payload = ''
  OFFSET 0
) AS found
WHERE NOT s.is_external
  AND CASE
    WHEN s.id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ready)s::jsonb))
      THEN found.state <> 'succeeded'
    ELSE found.added_by IS NULL
  END
LIMIT 1

-- name: bad_members
-- Of :steps, the newest rows that are dead, quarantined or canceled. OFFSET 0: it asks for
-- each step by itself, whatever statistics say of such rows.
SELECT found.id
FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
CROSS JOIN LATERAL (
  SELECT b.id
  FROM jobpool.jobs AS b
  WHERE b.step = wanted.value::bigint
    AND b.step IS NOT NULL AND b.replaced_by IS NULL
    AND b.state || '' IN ('dead', 'quarantined', 'canceled')
  OFFSET 0
) AS found

-- name: renew_members
-- As revive_jobs, but they wait: a fold opens them, as all others.
UPDATE jobpool.jobs
SET
  state = 'waiting',
  run_at_ms = created_at_ms,
  finished_at_ms = NULL,
  expires_at_ms = NULL,
  failures = 0,
  crashes = 0,
  interruptions = 0,
  recoveries = 0,
  snoozes = 0,
  snoozed_since_ms = NULL,
  throttled = NULL,
  lane = abs(lane),
  reset_attempt = attempt
WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))

-- name: keep_added
-- Of :steps, members whose adder is not there to add them again are as all others.
UPDATE jobpool.jobs AS a
SET added_by = NULL
FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
WHERE a.step = wanted.value::bigint
  AND a.step IS NOT NULL AND a.replaced_by IS NULL AND a.added_by IS NOT NULL
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.jobs AS r
    WHERE r.id = a.added_by AND r.step = a.step AND r.replaced_by IS NULL
  )

-- name: added_members
-- The newest rows of :steps that others have added: id, adder.
SELECT a.id, a.added_by
FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
CROSS JOIN LATERAL (
  SELECT j.id, j.added_by
  FROM jobpool.jobs AS j
  WHERE j.step = wanted.value::bigint
    AND j.step IS NOT NULL AND j.replaced_by IS NULL AND j.added_by IS NOT NULL
  OFFSET 0
) AS a
ORDER BY a.id

-- name: drop_added
-- Adders add them again: they are replaced by what replaces the first of these. :rows
-- holds [id, first].
UPDATE jobpool.jobs AS a
SET replaced_by = first.replaced_by
FROM jsonb_array_elements(%(rows)s::jsonb) AS dropped
JOIN jobpool.jobs AS first ON first.id = (dropped.value ->> 1)::bigint
WHERE a.id = (dropped.value ->> 0)::bigint

-- name: copy_members
-- The newest rows of :steps that nobody adds again, in their order: results are read in it.
INSERT INTO jobpool.jobs (
  id, kind, pool, state, priority, tenant, max_attempts, timeout_s, memory_bytes,
  created_at_ms, run_at_ms, codec, lane, quota_values, trace, solo, payload, step,
  generation, replays
)
SELECT
  nextval('jobpool.job_ids'),
  old.kind,
  old.pool,
  'waiting',
  old.priority,
  old.tenant,
  old.max_attempts,
  old.timeout_s,
  old.memory_bytes,
  %(now_ms)s,
  %(now_ms)s,
  old.codec,
  abs(old.lane),
  old.quota_values,
  old.trace,
  old.solo,
  old.payload,
  old.step,
  %(generation)s,
  old.id
FROM (
  SELECT found.*
  FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
  CROSS JOIN LATERAL (
    SELECT j.*
    FROM jobpool.jobs AS j
    WHERE j.step = wanted.value::bigint
      AND j.step IS NOT NULL AND j.replaced_by IS NULL AND j.added_by IS NULL
    OFFSET 0
  ) AS found
  ORDER BY found.id
) AS old

-- name: replace_members
-- By the rows that copy_members has stored.
UPDATE jobpool.jobs AS o
SET replaced_by = made.id
FROM (
  SELECT found.id, found.replays
  FROM jsonb_array_elements_text(%(steps)s::jsonb) AS wanted
  CROSS JOIN LATERAL (
    SELECT n.id, n.replays
    FROM jobpool.jobs AS n
    WHERE n.step = wanted.value::bigint
      AND n.generation = %(generation)s AND n.state = 'waiting'
    OFFSET 0
  ) AS found
) AS made
WHERE o.id = made.replays

-- name: reopen_flow
-- It goes on; a paused one stays paused.
UPDATE jobpool.flows
SET
  state = CASE WHEN finished_at_ms IS NULL THEN state ELSE 'open' END,
  ending = NULL,
  finished_at_ms = NULL,
  generation = %(generation)s
WHERE id = %(flow)s
