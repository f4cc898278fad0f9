-- Jobs that may have killed their host, and are not cleared yet. Few at any time, and
-- apart from the jobs, so that leasing the others costs nothing more.
CREATE TABLE jobpool_suspects (
  job_id INTEGER PRIMARY KEY NOT NULL,
  since_ms INTEGER NOT NULL CHECK (since_ms | 0 IS since_ms)
);

-- When a supervisor began to drain or stop: its end is explained then.
ALTER TABLE jobpool_runs ADD COLUMN leaving_at_ms INTEGER;

-- When it was found dead without that, and how many jobs it took along.
ALTER TABLE jobpool_runs ADD COLUMN died_at_ms INTEGER;
ALTER TABLE jobpool_runs ADD COLUMN died_with_jobs INTEGER;

-- Kinds whose jobs crash in a row: what a supervisor knows after a restart, and what
-- others hear of it. A kind that is well has no row.
CREATE TABLE jobpool_breakers (
  kind TEXT PRIMARY KEY NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('closed', 'slowed', 'open')),
  crashes INTEGER NOT NULL CHECK (crashes | 0 IS crashes AND crashes > 0),
  last_job INTEGER NOT NULL,
  next_at_ms INTEGER NOT NULL,
  changed_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
