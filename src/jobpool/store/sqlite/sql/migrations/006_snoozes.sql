-- How many attempts in a row have said "not yet", and since when.
ALTER TABLE jobpool_jobs ADD COLUMN snoozes INTEGER NOT NULL DEFAULT 0
CHECK (snoozes | 0 IS snoozes AND snoozes >= 0);
ALTER TABLE jobpool_jobs ADD COLUMN snoozed_since_ms INTEGER
CHECK (snoozed_since_ms | 0 IS snoozed_since_ms);

-- Tells apart whether two supervisors know a kind by the same arguments.
ALTER TABLE jobpool_kinds ADD COLUMN schema_digest TEXT;

-- Jobs whose arguments did not fit what a supervisor knows their kind by: it leaves them
-- to others until then. Few at any time, and apart from the jobs, as suspects are.
CREATE TABLE jobpool_misfits (
  job_id INTEGER NOT NULL,
  schema_digest TEXT NOT NULL,
  since_ms INTEGER NOT NULL CHECK (since_ms | 0 IS since_ms),
  until_ms INTEGER NOT NULL CHECK (until_ms | 0 IS until_ms),
  PRIMARY KEY (job_id, schema_digest)
) WITHOUT ROWID;

-- What a running attempt shows of itself, rewritten at most once a second. It counts
-- while the job is leased under this token: what a lease leaves behind nobody reads, and
-- pruning deletes, so that ending a job costs nothing more.
CREATE TABLE jobpool_running (
  job_id INTEGER PRIMARY KEY NOT NULL,
  token INTEGER NOT NULL,
  updated_at_ms INTEGER NOT NULL CHECK (updated_at_ms | 0 IS updated_at_ms),
  rss_bytes INTEGER CHECK (rss_bytes | 0 IS rss_bytes),
  output TEXT CHECK (output < x'')
);

DROP VIEW jobpool_job_records;


-- A job with its result and the end of its lease, column by column as in
-- jobpool.core.jobs.job.Job.
CREATE VIEW jobpool_job_records AS
SELECT
  j.id,
  j.kind,
  j.pool,
  j.state,
  j.priority,
  j.key,
  j.unique_text,
  j.tenant,
  j.attempt,
  j.max_attempts,
  j.failures,
  j.crashes,
  j.interruptions,
  j.recoveries,
  j.timeout_s,
  j.memory_bytes,
  j.outcome,
  j.reason,
  j.error_class,
  j.error,
  CASE j.state
    WHEN 'succeeded' THEN coalesce(
      (SELECT w.result FROM jobpool_whole_results AS w WHERE w.job_id = j.id),
      CAST('null' AS BLOB)
    )
  END AS result,
  j.progress,
  j.checkpoint,
  j.created_at_ms,
  j.run_at_ms,
  j.expires_at_ms,
  j.started_at_ms,
  j.finished_at_ms,
  j.last_heartbeat_at_ms,
  (
    SELECT r.lease_until_ms FROM jobpool_runs AS r WHERE r.id = j.supervisor
  ) AS lease_until_ms,
  j.cancel_requested,
  j.supervisor,
  j.slot,
  j.duration_s,
  j.cpu_s,
  j.peak_rss_bytes,
  j.snoozes,
  j.snoozed_since_ms,
  (
    SELECT min(m.since_ms) FROM jobpool_misfits AS m WHERE m.job_id = j.id
  ) AS unfit_since_ms,
  (
    SELECT n.rss_bytes
    FROM jobpool_running AS n
    WHERE n.job_id = j.id AND n.token = j.token
  ) AS rss_bytes
FROM jobpool_jobs AS j;
