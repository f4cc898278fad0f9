-- Replaying: a finished job is replaced by a new one.

-- name: replayable
-- Of :ids, those that have ended, were neither replaced nor erased, are of no external
-- step, nor of one that has ended, and have added no members, which would be added twice.
SELECT id
FROM jobpool.jobs AS j
WHERE id = ANY (
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  )
  AND finished_at_ms IS NOT NULL AND replaced_by IS NULL AND payload <> ''
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool.steps AS s
    WHERE s.id = j.step
      AND (s.is_external OR (s.hook IS NULL AND s.state IN ('done', 'skipped')))
  )
  AND id NOT IN (
    SELECT found.added_by
    FROM (
      SELECT DISTINCT w.step
      FROM jsonb_array_elements_text(%(ids)s::jsonb) AS wanted
      CROSS JOIN LATERAL (
        SELECT m.step FROM jobpool.jobs AS m WHERE m.id = wanted.value::bigint OFFSET 0
      ) AS w
      WHERE w.step IS NOT NULL
    ) AS o
    CROSS JOIN LATERAL (
      SELECT a.added_by
      FROM jobpool.jobs AS a
      WHERE a.step = o.step AND a.step IS NOT NULL AND a.added_by IS NOT NULL
      OFFSET 0
    ) AS found
  )

-- name: give_up_keys
-- Before the jobs are stored that take them over.
UPDATE jobpool.jobs
SET key = NULL
WHERE id IN (SELECT value::bigint FROM jsonb_array_elements_text(%(ids)s::jsonb))
  AND key IS NOT NULL

-- name: link_to_replaced
-- :rows holds [new id, old id]. The new job takes over the tick of a schedule, and runs in
-- the same trace, and alone if the old one did. Of a step that has not ended it waits until
-- a fold opens it.
UPDATE jobpool.jobs AS new
SET replays = old.id, tick = old.tick, trace = old.trace, solo = old.solo,
  step = old.step, generation = old.generation, added_by = old.added_by,
  state = CASE
    WHEN EXISTS (
      SELECT 1
      FROM jobpool.steps AS o
      WHERE o.id = old.step AND o.state IN ('closed', 'ready', 'skipping')
    ) THEN 'waiting'
    ELSE new.state
  END
FROM jsonb_array_elements(%(rows)s::jsonb) AS made
JOIN jobpool.jobs AS old ON old.id = (made.value ->> 1)::bigint
WHERE new.id = (made.value ->> 0)::bigint

-- name: pass_ticks_on
-- As above: they are open again, as those of jobs that were revived.
UPDATE jobpool.ticks AS t
SET
  job_id = (made.value ->> 0)::bigint,
  state = 'open',
  job_state = NULL,
  ended_at_ms = NULL
FROM jsonb_array_elements(%(rows)s::jsonb) AS made
JOIN jobpool.jobs AS old ON old.id = (made.value ->> 1)::bigint
WHERE t.id = old.tick

-- name: link_to_replays
-- As above, the other way round.
UPDATE jobpool.jobs AS old
SET replaced_by = (made.value ->> 0)::bigint, tick = NULL
FROM jsonb_array_elements(%(rows)s::jsonb) AS made
WHERE old.id = (made.value ->> 1)::bigint
