-- How many attempts in a row have said "not yet", and since when.
ALTER TABLE jobpool.jobs ADD COLUMN snoozes integer NOT NULL DEFAULT 0
CHECK (snoozes >= 0);
ALTER TABLE jobpool.jobs ADD COLUMN snoozed_since_ms bigint;

-- What a move has staged that goes on after the upgrade.
ALTER TABLE IF EXISTS jobpool.moving_jobs
ADD COLUMN snoozes integer NOT NULL DEFAULT 0,
ADD COLUMN snoozed_since_ms bigint;

-- Tells apart whether two supervisors know a kind by the same arguments.
ALTER TABLE jobpool.kinds ADD COLUMN schema_digest text COLLATE "C";

-- Jobs whose arguments did not fit what a supervisor knows their kind by: it leaves them
-- to others until then. Few at any time, and apart from the jobs, as suspects are.
CREATE TABLE jobpool.misfits (
  job_id bigint NOT NULL,
  schema_digest text COLLATE "C" NOT NULL,
  since_ms bigint NOT NULL,
  until_ms bigint NOT NULL,
  PRIMARY KEY (job_id, schema_digest)
);

-- What a running attempt shows of itself, rewritten at most once a second. It counts
-- while the job is leased under this token: what a lease leaves behind nobody reads, and
-- pruning deletes, so that ending a job costs nothing more.
CREATE TABLE jobpool.running (
  job_id bigint PRIMARY KEY,
  token bigint NOT NULL,
  updated_at_ms bigint NOT NULL,
  rss_bytes bigint,
  output text
)
WITH (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0
);

-- A job with its result and the end of its lease, column by column as in
-- jobpool.core.jobs.job.Job.
CREATE OR REPLACE VIEW jobpool.job_records AS
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
    WHEN 'succeeded' THEN coalesce(j.result, convert_to('null', 'UTF8'))
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
    SELECT r.lease_until_ms FROM jobpool.runs AS r WHERE r.id = j.supervisor
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
    SELECT min(m.since_ms) FROM jobpool.misfits AS m WHERE m.job_id = j.id
  ) AS unfit_since_ms,
  (
    SELECT n.rss_bytes
    FROM jobpool.running AS n
    WHERE n.job_id = j.id AND n.token = j.token
  ) AS rss_bytes
FROM jobpool.jobs AS j;

-- As before; a moment that a hand has written may be any number.
CREATE OR REPLACE VIEW jobpool.stats AS
SELECT
  pool,
  kind,
  state,
  count(*) AS jobs,
  avg((started_at_ms::double precision - run_at_ms) / 1000) AS mean_wait_s,
  avg(duration_s) AS mean_run_s
FROM jobpool.jobs
GROUP BY pool, kind, state;
