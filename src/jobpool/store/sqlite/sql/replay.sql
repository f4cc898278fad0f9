-- Replaying: a finished job is replaced by a new one.

-- name: replayable
-- Of :ids, those that have ended, were neither replaced nor erased, are of no external
-- step, nor of one that has ended, and have added no members, which would be added twice.
SELECT id
FROM jobpool_jobs AS j
WHERE id IN (SELECT value FROM json_each(:ids))
  AND finished_at_ms IS NOT NULL AND replaced_by IS NULL
  AND NOT EXISTS (
    SELECT 1 FROM jobpool_payloads AS p WHERE p.job_id = j.id AND p.payload = x''
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jobpool_steps AS s
    WHERE s.id = j.step
      AND (s.is_external OR (s.hook IS NULL AND s.state IN ('done', 'skipped')))
  )
  AND id NOT IN (
    SELECT a.added_by
    FROM (
      SELECT DISTINCT w.step
      FROM jobpool_jobs AS w
      WHERE w.id IN (SELECT value FROM json_each(:ids)) AND w.step IS NOT NULL
    ) AS o
    CROSS JOIN jobpool_jobs AS a ON a.step = o.step
    WHERE a.step IS NOT NULL AND a.added_by IS NOT NULL
  )

-- name: give_up_keys
-- Before the jobs are stored that take them over.
UPDATE jobpool_jobs
SET key = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND key IS NOT NULL

-- name: link_to_replaced
-- :rows holds [new id, old id]. The new job takes over the tick of a schedule, and runs in
-- the same trace, and alone if the old one did. Of a step that has not ended it waits until
-- a fold opens it.
UPDATE jobpool_jobs
SET replays = old.id, tick = old.tick, trace = old.trace, solo = old.solo,
  step = old.step, generation = old.generation, added_by = old.added_by,
  state = CASE
    WHEN EXISTS (
      SELECT 1
      FROM jobpool_steps AS o
      WHERE o.id = old.step AND o.state IN ('closed', 'ready', 'skipping')
    ) THEN 'waiting'
    ELSE jobpool_jobs.state
  END
FROM json_each(:rows) AS made
CROSS JOIN jobpool_jobs AS old
WHERE jobpool_jobs.id = json_extract(made.value, '$[0]')
  AND old.id = json_extract(made.value, '$[1]')

-- name: pass_ticks_on
-- As above: they are open again, as those of jobs that were revived. MATERIALIZED:
-- otherwise all ticks are read, and the rows for each of them.
WITH passed AS MATERIALIZED (
  SELECT old.tick, json_extract(made.value, '$[0]') AS job_id
  FROM json_each(:rows) AS made
  CROSS JOIN jobpool_jobs AS old ON old.id = json_extract(made.value, '$[1]')
  WHERE old.tick IS NOT NULL
)
UPDATE jobpool_ticks
SET
  job_id = passed.job_id,
  state = 'open',
  job_state = NULL,
  ended_at_ms = NULL
FROM passed
WHERE jobpool_ticks.id = passed.tick

-- name: link_to_replays
-- As above, the other way round.
UPDATE jobpool_jobs
SET replaced_by = json_extract(made.value, '$[0]'), tick = NULL
FROM json_each(:rows) AS made
WHERE jobpool_jobs.id = json_extract(made.value, '$[1]')
