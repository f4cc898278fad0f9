-- A large result is written in parts ahead of its end, each in a commit of its own,
-- so that nobody has to wait while all of it is brought to the disk.
CREATE TABLE jobpool_result_parts (
  id INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL,
  token INTEGER NOT NULL,
  place INTEGER NOT NULL,
  part BLOB NOT NULL CHECK (part >= x''),
  UNIQUE (job_id, token, place)
);

-- How many parts there are so far, under a lease whose job has not ended.
CREATE TABLE jobpool_result_drafts (
  token INTEGER PRIMARY KEY NOT NULL,
  job_id INTEGER NOT NULL,
  parts INTEGER NOT NULL
);

-- Of a result with parts: whose they are, and how many; the row has the last one, which
-- is not among them. NULL: it has all.
ALTER TABLE jobpool_results ADD COLUMN parts_token INTEGER;
ALTER TABLE jobpool_results ADD COLUMN parts INTEGER;

-- Whoever deletes a result, a jobpool that knows of no parts as well.
CREATE TRIGGER jobpool_results_deleted AFTER DELETE ON jobpool_results
WHEN OLD.parts_token IS NOT NULL
BEGIN
  DELETE FROM jobpool_result_parts
  WHERE job_id = OLD.job_id AND token = OLD.parts_token;
END;

-- Results as they were returned; where a part is missing no JSON at all.
CREATE VIEW jobpool_whole_results AS
SELECT
  r.job_id,
  CASE
    WHEN r.parts_token IS NULL THEN r.result
    WHEN r.parts <> (
      SELECT count(*)
      FROM jobpool_result_parts
      WHERE job_id = r.job_id AND token = r.parts_token
    ) THEN x''
    ELSE CAST(
      (
        SELECT group_concat(ahead.part, '')
        FROM (
          SELECT part
          FROM jobpool_result_parts
          WHERE job_id = r.job_id AND token = r.parts_token
          ORDER BY place
        ) AS ahead
      ) || r.result AS BLOB
    )
  END AS result
FROM jobpool_results AS r;

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
  j.peak_rss_bytes
FROM jobpool_jobs AS j;
