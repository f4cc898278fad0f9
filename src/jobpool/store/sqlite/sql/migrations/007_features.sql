-- Room for quotas, schedules, flows and whatever else is announced, in one step, so that
-- a fleet is upgraded once. Until a feature exists nothing writes its columns, and NULL
-- means that a job does without it: it costs such a job one byte a column.

-- Columns without a CHECK are added without reading the table; their CHECKs are edited
-- in at the end of this step, with the new state.
ALTER TABLE jobpool_jobs ADD COLUMN lane INTEGER;
ALTER TABLE jobpool_jobs ADD COLUMN step INTEGER;
ALTER TABLE jobpool_jobs ADD COLUMN generation INTEGER;
ALTER TABLE jobpool_jobs ADD COLUMN tick INTEGER;
-- The codec through which payload, result, checkpoint and errors have passed.
ALTER TABLE jobpool_jobs ADD COLUMN codec TEXT;
-- W3C trace context of whoever enqueued it.
ALTER TABLE jobpool_jobs ADD COLUMN trace TEXT;
-- The dead job that this one is the repaired copy of, and the other way round.
ALTER TABLE jobpool_jobs ADD COLUMN replays INTEGER;
ALTER TABLE jobpool_jobs ADD COLUMN replaced_by INTEGER;
-- It runs alone in its child, whatever its pool allows.
ALTER TABLE jobpool_jobs ADD COLUMN solo INTEGER;

-- The format that a supervisor's code can honour (NULL: 1), the application that it
-- runs, and the version of that.
ALTER TABLE jobpool_runs ADD COLUMN format INTEGER CHECK (format | 0 IS format);
ALTER TABLE jobpool_runs ADD COLUMN application TEXT;
ALTER TABLE jobpool_runs ADD COLUMN app_version TEXT;

ALTER TABLE jobpool_attempts ADD COLUMN app_version TEXT;
-- JSON: at most 64 pairs of milliseconds since the attempt began, and bytes.
ALTER TABLE jobpool_attempts ADD COLUMN memory_trail TEXT;

-- The least format that may lease, the one that has been asked for, two halves of the
-- key by which ids are made unguessable (`ref`), and how often the store was restored.
INSERT OR IGNORE INTO jobpool_meta (name, value)
VALUES
  ('min_format', 1),
  ('wanted_format', 1),
  ('ref_key_high', abs(random() / 2)),
  ('ref_key_low', abs(random() / 2)),
  ('restores', 0);

-- Who paused what, why, and until when.
ALTER TABLE jobpool_pauses ADD COLUMN since_ms INTEGER;
ALTER TABLE jobpool_pauses ADD COLUMN until_ms INTEGER;
ALTER TABLE jobpool_pauses ADD COLUMN who TEXT;
ALTER TABLE jobpool_pauses ADD COLUMN note TEXT;

-- What operators have done: written in the transaction that did it.
CREATE TABLE jobpool_audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL CHECK (at_ms | 0 IS at_ms),
  who TEXT NOT NULL CHECK (who < x''),
  role TEXT NOT NULL CHECK (role < x''),
  origin TEXT NOT NULL CHECK (origin < x''),
  action TEXT NOT NULL CHECK (action < x''),
  target TEXT NOT NULL CHECK (target < x''),
  jobs INTEGER NOT NULL CHECK (jobs | 0 IS jobs),
  changed TEXT CHECK (changed < x''),
  note TEXT CHECK (note < x'')
);

CREATE INDEX jobpool_audit_at ON jobpool_audit (at_ms);

-- The tail of what the last attempt of a finished job has written.
CREATE TABLE jobpool_outputs (
  job_id INTEGER PRIMARY KEY NOT NULL,
  attempt INTEGER NOT NULL CHECK (attempt | 0 IS attempt),
  at_ms INTEGER NOT NULL CHECK (at_ms | 0 IS at_ms),
  output TEXT NOT NULL CHECK (output < x'')
);

-- Histograms of what attempts have used, by kind and week: bucket b counts those of at
-- most 1.05^b, in bytes or milliseconds. `censored` are those that were killed there:
-- they would have used more.
CREATE TABLE jobpool_sketches (
  kind TEXT NOT NULL,
  pool TEXT NOT NULL,
  measure TEXT NOT NULL CHECK (measure IN ('memory', 'duration')),
  week INTEGER NOT NULL CHECK (week | 0 IS week),
  bucket INTEGER NOT NULL CHECK (bucket | 0 IS bucket),
  attempts INTEGER NOT NULL CHECK (attempts | 0 IS attempts),
  censored INTEGER NOT NULL DEFAULT 0 CHECK (censored | 0 IS censored),
  PRIMARY KEY (kind, pool, measure, week, bucket)
) WITHOUT ROWID;

-- Quotas: as published by runs (run_id) or set by an operator (run_id is '').
CREATE TABLE jobpool_quotas (
  name TEXT NOT NULL,
  run_id TEXT NOT NULL,
  per TEXT,
  concurrency INTEGER,
  rate REAL,
  burst INTEGER,
  options TEXT,
  until_ms INTEGER,
  updated_at_ms INTEGER NOT NULL,
  PRIMARY KEY (name, run_id)
) WITHOUT ROWID;

CREATE TABLE jobpool_tenants (
  name TEXT PRIMARY KEY NOT NULL,
  concurrency INTEGER,
  rate REAL,
  weight REAL,
  options TEXT,
  updated_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Jobs that the same buckets and the same priority hold back wait in one lane.
CREATE TABLE jobpool_lanes (
  id INTEGER PRIMARY KEY NOT NULL,
  pool TEXT NOT NULL,
  kind TEXT NOT NULL,
  shape TEXT NOT NULL,
  priority INTEGER NOT NULL,
  tenant TEXT,
  values_json TEXT NOT NULL,
  rank INTEGER NOT NULL DEFAULT 0,
  vtime REAL NOT NULL DEFAULT 0,
  weight REAL NOT NULL DEFAULT 1,
  open_at_ms INTEGER NOT NULL DEFAULT 0,
  blocked_by INTEGER,
  waits INTEGER NOT NULL DEFAULT 0 CHECK (waits IN (0, 1))
);

CREATE INDEX jobpool_lanes_open
ON jobpool_lanes (pool, rank DESC, vtime, id)
WHERE waits = 1 AND open_at_ms = 0;

CREATE TABLE jobpool_buckets (
  id INTEGER PRIMARY KEY NOT NULL,
  quota TEXT NOT NULL,
  value TEXT NOT NULL,
  tat_us INTEGER NOT NULL DEFAULT 0,
  block_until_ms INTEGER NOT NULL DEFAULT 0,
  contested INTEGER NOT NULL DEFAULT 0 CHECK (contested IN (0, 1)),
  checked_at_ms INTEGER NOT NULL DEFAULT 0,
  breaker TEXT,
  probe_token INTEGER
);

CREATE TABLE jobpool_lane_buckets (
  lane INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  cost INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (lane, bucket)
) WITHOUT ROWID;

CREATE TABLE jobpool_permits (
  bucket INTEGER NOT NULL,
  token INTEGER NOT NULL,
  job_id INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  cost INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (bucket, token)
) WITHOUT ROWID;

CREATE INDEX jobpool_permits_of_token ON jobpool_permits (token);

CREATE INDEX jobpool_jobs_in_lane
ON jobpool_jobs (lane, run_at_ms, id)
WHERE state = 'runnable' AND lane IS NOT NULL;

-- Schedules; a tick is unique by its nominal time and written with its job.
CREATE TABLE jobpool_schedules (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  application TEXT,
  app_version TEXT,
  kind TEXT NOT NULL,
  pool TEXT NOT NULL,
  payload BLOB NOT NULL,
  codec TEXT,
  tenant TEXT,
  priority INTEGER NOT NULL DEFAULT 0,
  rule TEXT NOT NULL,
  options TEXT NOT NULL,
  next_at_ms INTEGER,
  last_at_ms INTEGER,
  retired_at_ms INTEGER,
  paused_until_ms INTEGER,
  note TEXT,
  updated_at_ms INTEGER NOT NULL
);

CREATE UNIQUE INDEX jobpool_schedules_name ON jobpool_schedules (name);
CREATE INDEX jobpool_schedules_next ON jobpool_schedules (next_at_ms)
WHERE next_at_ms IS NOT NULL;

CREATE TABLE jobpool_ticks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  schedule INTEGER NOT NULL,
  nominal_at_ms INTEGER NOT NULL,
  stored_at_ms INTEGER NOT NULL,
  state TEXT NOT NULL,
  job_id INTEGER,
  backfilled INTEGER NOT NULL DEFAULT 0 CHECK (backfilled IN (0, 1))
);

CREATE UNIQUE INDEX jobpool_ticks_nominal ON jobpool_ticks (schedule, nominal_at_ms);

-- Flows: edges join steps, so that a fan-in of 10,000 members is one edge.
CREATE TABLE jobpool_flows (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  key TEXT,
  tenant TEXT,
  state TEXT NOT NULL CHECK (
    state IN ('building', 'open', 'paused', 'succeeded', 'failed', 'canceled')
  ),
  failure TEXT NOT NULL,
  generation INTEGER NOT NULL DEFAULT 1,
  created_at_ms INTEGER NOT NULL,
  finished_at_ms INTEGER
);

CREATE UNIQUE INDEX jobpool_flows_key ON jobpool_flows (name, key) WHERE key IS NOT NULL;

CREATE TABLE jobpool_steps (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  flow INTEGER NOT NULL,
  name TEXT NOT NULL,
  state TEXT NOT NULL CHECK (
    state = 'closed' OR state = 'ready' OR state = 'done' OR state = 'skipped'
    OR state >= 'building:' AND state < 'building;'
  ),
  failed INTEGER NOT NULL DEFAULT 0 CHECK (failed IN (0, 1)),
  until_ms INTEGER
);

CREATE INDEX jobpool_steps_of_flow ON jobpool_steps (flow, id);

CREATE TABLE jobpool_edges (
  flow INTEGER NOT NULL,
  from_step INTEGER NOT NULL,
  to_step INTEGER NOT NULL,
  when_ended TEXT NOT NULL CHECK (when_ended IN ('succeeded', 'failed', 'finished')),
  PRIMARY KEY (from_step, to_step)
) WITHOUT ROWID;

CREATE INDEX jobpool_edges_in ON jobpool_edges (to_step);

CREATE TABLE jobpool_flow_notes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  flow INTEGER NOT NULL,
  step INTEGER NOT NULL
);

CREATE INDEX jobpool_jobs_of_step ON jobpool_jobs (step)
WHERE step IS NOT NULL AND finished_at_ms IS NULL;

-- SQLite cannot alter a CHECK, and a rebuild of the table would shut all writers out for
-- two seconds for each million jobs. The text of a CHECK can be edited, since no row that
-- passed the old ones can fail these. RESET makes this connection read it again, and the
-- statement below makes the others do so.
PRAGMA writable_schema = ON;
UPDATE sqlite_master
SET sql = replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(sql, 'OR state = ''canceled''
  ),', 'OR state = ''canceled'' OR state = ''waiting''
  ),'),
  'lane INTEGER', 'lane INTEGER CHECK (lane | 0 IS lane)'),
  'step INTEGER', 'step INTEGER CHECK (step | 0 IS step)'),
  'generation INTEGER', 'generation INTEGER CHECK (generation | 0 IS generation)'),
  'tick INTEGER', 'tick INTEGER CHECK (tick | 0 IS tick)'),
  'codec TEXT', 'codec TEXT CHECK (codec < x'''')'),
  'trace TEXT', 'trace TEXT CHECK (trace < x'''')'),
  'replays INTEGER', 'replays INTEGER CHECK (replays | 0 IS replays)'),
  'replaced_by INTEGER', 'replaced_by INTEGER CHECK (replaced_by | 0 IS replaced_by)'),
  'solo INTEGER', 'solo INTEGER CHECK (solo IN (0, 1))')
WHERE type = 'table' AND name = 'jobpool_jobs';
UPDATE sqlite_master
SET sql = replace(
  sql,
  'IN (''pool'', ''kind'')',
  'IN (''pool'', ''kind'', ''tenant'', ''quota'', ''store'')'
)
WHERE type = 'table' AND name = 'jobpool_pauses';
PRAGMA writable_schema = RESET;

CREATE INDEX jobpool_jobs_waiting ON jobpool_jobs (step) WHERE state = 'waiting';
