-- Jobs whose arguments did not fit what a supervisor knows their kind by.

-- name: fit_elsewhere
-- Of a leased job: by what its holder knows the kind, since when others' is known not to
-- fit, and whether a living supervisor knows it otherwise that has not tried.
SELECT
  own.schema_digest,
  (SELECT min(m.since_ms) FROM jobpool_misfits AS m WHERE m.job_id = j.id),
  EXISTS (
    SELECT 1
    FROM jobpool_kinds AS other
    CROSS JOIN jobpool_runs AS r ON r.id = other.run_id
    WHERE other.kind = j.kind AND other.pool = j.pool AND r.ended_at_ms IS NULL
      AND r.id <> j.supervisor
      AND other.schema_digest IS NOT own.schema_digest
      AND NOT EXISTS (
        SELECT 1
        FROM jobpool_misfits AS tried
        WHERE tried.job_id = j.id AND tried.schema_digest = other.schema_digest
      )
  )
FROM jobpool_jobs AS j
LEFT JOIN jobpool_kinds AS own ON own.kind = j.kind AND own.run_id = j.supervisor
WHERE j.id = :id

-- name: note_misfit
-- The newest word counts.
INSERT OR REPLACE INTO jobpool_misfits (job_id, schema_digest, since_ms, until_ms)
VALUES (:id, :schema_digest, :since_ms, :until_ms)

-- name: misfits_among
-- :ids of jobs.
SELECT job_id
FROM jobpool_misfits
WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: forget_misfits
-- :ids of jobs that fit somebody, or that an operator wants to be tried anew.
DELETE FROM jobpool_misfits WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: wake_misfits
-- A run has begun that knows kinds otherwise: what waits for that is due.
UPDATE jobpool_jobs
SET state = 'runnable', run_at_ms = :now_ms
WHERE id IN (SELECT job_id FROM jobpool_misfits)
  AND +state = 'pending'
  AND EXISTS (
    SELECT 1
    FROM jobpool_kinds AS own
    WHERE own.kind = jobpool_jobs.kind AND own.run_id = :run_id
      AND NOT EXISTS (
        SELECT 1
        FROM jobpool_misfits AS tried
        WHERE tried.job_id = jobpool_jobs.id
          AND tried.schema_digest = own.schema_digest
      )
  )

-- name: misfits
-- How many unfinished jobs of each kind they are, and since when.
SELECT j.pool, j.kind, count(DISTINCT j.id), min(m.since_ms)
FROM jobpool_misfits AS m
CROSS JOIN jobpool_jobs AS j ON j.id = m.job_id
WHERE +j.state IN ('pending', 'runnable')
GROUP BY j.pool, j.kind
ORDER BY j.pool, j.kind
