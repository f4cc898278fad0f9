-- Misfits: jobs whose arguments did not fit a supervisor's version of the handler.

-- name: fit_elsewhere
-- For a leased job: the digest of its supervisor's schema of the kind, since when the
-- job is a misfit, and whether an open run with another schema has yet to try it.
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
-- The newest row replaces the former one.
INSERT OR REPLACE INTO jobpool_misfits (job_id, schema_digest, since_ms, until_ms)
VALUES (:id, :schema_digest, :since_ms, :until_ms)

-- name: misfits_among
-- :ids of jobs.
SELECT job_id
FROM jobpool_misfits
WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: forget_misfits
-- :ids of jobs that fit a supervisor, or that an operator wants to try again.
DELETE FROM jobpool_misfits WHERE job_id IN (SELECT value FROM json_each(:ids))

-- name: wake_misfits
-- A run with other schemas has begun: misfits that it has not tried are due.
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
-- How many unfinished jobs of each kind are misfits, and since when.
SELECT j.pool, j.kind, count(DISTINCT j.id), min(m.since_ms)
FROM jobpool_misfits AS m
CROSS JOIN jobpool_jobs AS j ON j.id = m.job_id
WHERE +j.state IN ('pending', 'runnable')
GROUP BY j.pool, j.kind
ORDER BY j.pool, j.kind
