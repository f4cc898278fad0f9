-- Replaying: a finished job is replaced by a new one.

-- name: replayable
-- Of :ids, those that have ended, and neither were replaced nor erased.
SELECT id
FROM jobpool_jobs AS j
WHERE id IN (SELECT value FROM json_each(:ids))
  AND finished_at_ms IS NOT NULL AND replaced_by IS NULL
  AND NOT EXISTS (
    SELECT 1 FROM jobpool_payloads AS p WHERE p.job_id = j.id AND p.payload = x''
  )

-- name: give_up_keys
-- Before the jobs are stored that take them over.
UPDATE jobpool_jobs
SET key = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND key IS NOT NULL

-- name: link_to_replaced
-- :rows holds [new id, old id]. The new job runs for the same tick of a schedule, in the
-- same trace, and alone if the old one did.
UPDATE jobpool_jobs
SET replays = old.id, tick = old.tick, trace = old.trace, solo = old.solo
FROM json_each(:rows) AS made
CROSS JOIN jobpool_jobs AS old
WHERE jobpool_jobs.id = json_extract(made.value, '$[0]')
  AND old.id = json_extract(made.value, '$[1]')

-- name: link_to_replays
-- As above, the other way round.
UPDATE jobpool_jobs
SET replaced_by = json_extract(made.value, '$[0]')
FROM json_each(:rows) AS made
WHERE jobpool_jobs.id = json_extract(made.value, '$[1]')
