-- Jobs that may have killed their host, and are not cleared yet. Few at any time, and
-- apart from the jobs, so that leasing the others costs nothing more.
CREATE TABLE jobpool.suspects (
  job_id bigint PRIMARY KEY,
  since_ms bigint NOT NULL
);

-- When a supervisor began to drain or stop: its end is explained then.
ALTER TABLE jobpool.runs ADD COLUMN leaving_at_ms bigint;

-- When it was found dead without that, and how many jobs it took along.
ALTER TABLE jobpool.runs ADD COLUMN died_at_ms bigint;
ALTER TABLE jobpool.runs ADD COLUMN died_with_jobs bigint;

-- Kinds whose jobs crash in a row: what a supervisor knows after a restart, and what
-- others hear of it. A kind that is well has no row.
CREATE TABLE jobpool.breakers (
  kind text PRIMARY KEY,
  state text NOT NULL CHECK (state IN ('closed', 'slowed', 'open')),
  crashes bigint NOT NULL CHECK (crashes > 0),
  last_job bigint NOT NULL,
  next_at_ms bigint NOT NULL,
  changed_at_ms bigint NOT NULL
);
