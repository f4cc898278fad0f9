-- Room for quotas, schedules, flows and whatever else is announced, in one step, so that
-- a fleet is upgraded once. Until a feature exists nothing writes its columns, and NULL
-- means that a job does without it: it costs such a job one byte a column.

-- Columns without a CHECK are added without reading the table; their CHECKs are edited
-- in at the end of this step, with the new state.
-- Jobs that the same buckets hold back are of one lane (NULL: not known yet, or none);
-- and what quotas count them by, as JSON.
ALTER TABLE jobpool_jobs ADD COLUMN lane INTEGER;
ALTER TABLE jobpool_jobs ADD COLUMN quota_values TEXT;
-- JSON: how often it was throttled in a row, and since when; NULL: it was not.
ALTER TABLE jobpool_jobs ADD COLUMN throttled TEXT;
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
-- runs, the version of that, and since when it has run that.
ALTER TABLE jobpool_runs ADD COLUMN format INTEGER CHECK (format | 0 IS format);
ALTER TABLE jobpool_runs ADD COLUMN application TEXT;
ALTER TABLE jobpool_runs ADD COLUMN app_version TEXT;
-- How often it was renewed (NULL: never, or by code from before formats). Unlike a time
-- it only rises.
ALTER TABLE jobpool_runs ADD COLUMN renewals INTEGER CHECK (renewals | 0 IS renewals);
ALTER TABLE jobpool_runs ADD COLUMN app_since_ms INTEGER CHECK (
  app_since_ms | 0 IS app_since_ms
);

-- JSON: the quotas and tenants that its application and its configuration define.
ALTER TABLE jobpool_runs ADD COLUMN limits TEXT;

-- JSON: the kind's names (its own, its aliases) if its jobs run at most once.
ALTER TABLE jobpool_kinds ADD COLUMN at_most_once TEXT;
-- JSON: the quotas that its jobs need, and what each costs.
ALTER TABLE jobpool_kinds ADD COLUMN needs TEXT;

-- Code from before formats, which has opened the store already, enters its run without
-- asking. (Newer code asks first, to say more.)
CREATE TRIGGER jobpool_run_is_outdated
BEFORE INSERT ON jobpool_runs
WHEN new.ended_at_ms IS NULL AND coalesce(new.format, 1) < (
  SELECT value FROM jobpool_meta WHERE name = 'min_format'
)
BEGIN
  SELECT raise(ABORT, 'jobpool: features of a newer release are in use: upgrade jobpool');
END;

ALTER TABLE jobpool_attempts ADD COLUMN app_version TEXT;
-- JSON: its limit in bytes, and at most 64 pairs of milliseconds since the attempt began,
-- and bytes.
ALTER TABLE jobpool_attempts ADD COLUMN memory_trail TEXT;

-- The least format that may lease, the one that has been asked for, two halves of the
-- key by which ids are made unguessable (`ref`), how often the store was restored, and
-- what changes whenever a quota does.
INSERT OR IGNORE INTO jobpool_meta (name, value)
VALUES
  ('min_format', 1),
  ('wanted_format', 1),
  ('ref_key_high', abs(random() / 2)),
  ('ref_key_low', abs(random() / 2)),
  ('restores', 0),
  ('limits_version', 0);

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

-- The tail of what the successful attempt of a job has written. `place` is its end in
-- the stream of all outputs, in KiB: so the newest that fit a cap are found without a sum.
-- Of one that was dropped for the cap, only that is left.
CREATE TABLE jobpool_outputs (
  job_id INTEGER PRIMARY KEY NOT NULL,
  attempt INTEGER NOT NULL CHECK (attempt | 0 IS attempt),
  at_ms INTEGER NOT NULL CHECK (at_ms | 0 IS at_ms),
  place INTEGER CHECK (place | 0 IS place),
  output TEXT CHECK (output < x''),
  dropped_at_ms INTEGER CHECK (dropped_at_ms | 0 IS dropped_at_ms)
);

CREATE INDEX jobpool_outputs_place ON jobpool_outputs (place) WHERE place IS NOT NULL;

-- Histograms of what attempts have used, by kind and week: bucket b counts those of at
-- most 1.05^b, in bytes or milliseconds. `censored` are those of them that were ended
-- there: they would have used more.
CREATE TABLE jobpool_sketches (
  kind TEXT NOT NULL CHECK (kind < x''),
  pool TEXT NOT NULL CHECK (pool < x''),
  measure TEXT NOT NULL CHECK (measure IN ('memory', 'duration')),
  week INTEGER NOT NULL CHECK (week | 0 IS week),
  bucket INTEGER NOT NULL CHECK (bucket | 0 IS bucket),
  attempts INTEGER NOT NULL CHECK (attempts | 0 IS attempts),
  censored INTEGER NOT NULL DEFAULT 0 CHECK (censored | 0 IS censored),
  PRIMARY KEY (week, kind, pool, measure, bucket)
) WITHOUT ROWID;

-- What an operator has set at run time. What applications define is in their runs.
CREATE TABLE jobpool_quotas (
  name TEXT PRIMARY KEY NOT NULL CHECK (name < x''),
  rate_permits REAL CHECK (rate_permits < ''),
  rate_per_s REAL CHECK (rate_per_s < ''),
  burst INTEGER CHECK (burst | 0 IS burst),
  concurrency INTEGER CHECK (concurrency | 0 IS concurrency),
  until_ms INTEGER CHECK (until_ms | 0 IS until_ms),
  who TEXT CHECK (who < x''),
  note TEXT CHECK (note < x''),
  updated_at_ms INTEGER NOT NULL CHECK (updated_at_ms | 0 IS updated_at_ms)
) WITHOUT ROWID;

CREATE TABLE jobpool_tenants (
  name TEXT PRIMARY KEY NOT NULL CHECK (name < x''),
  concurrency INTEGER CHECK (concurrency | 0 IS concurrency),
  rate_permits REAL CHECK (rate_permits < ''),
  rate_per_s REAL CHECK (rate_per_s < ''),
  burst INTEGER CHECK (burst | 0 IS burst),
  weight REAL CHECK (weight < ''),
  who TEXT CHECK (who < x''),
  updated_at_ms INTEGER NOT NULL CHECK (updated_at_ms | 0 IS updated_at_ms)
) WITHOUT ROWID;

-- Jobs that the same buckets and the same priority hold back wait in one lane. `waits`:
-- it has runnable jobs. It is open unless it waits for a time or for a bucket. `vtime`:
-- when its first job was due, as of the last look.
CREATE TABLE jobpool_lanes (
  id INTEGER PRIMARY KEY NOT NULL,
  pool TEXT NOT NULL CHECK (pool < x''),
  kind TEXT NOT NULL CHECK (kind < x''),
  priority INTEGER NOT NULL CHECK (priority | 0 IS priority),
  tenant TEXT CHECK (tenant < x''),
  values_json TEXT NOT NULL CHECK (values_json < x''),
  rank INTEGER NOT NULL DEFAULT 0 CHECK (rank | 0 IS rank),
  vtime REAL NOT NULL DEFAULT 0 CHECK (vtime < ''),
  weight REAL NOT NULL DEFAULT 1 CHECK (weight < ''),
  open_at_ms INTEGER NOT NULL DEFAULT 0 CHECK (open_at_ms | 0 IS open_at_ms),
  blocked_by INTEGER CHECK (blocked_by | 0 IS blocked_by),
  waits INTEGER NOT NULL DEFAULT 0 CHECK (waits IN (0, 1))
);

CREATE INDEX jobpool_lanes_open
ON jobpool_lanes (pool, kind, rank DESC, vtime, id)
WHERE waits = 1 AND open_at_ms = 0 AND blocked_by IS NULL;
CREATE INDEX jobpool_lanes_opening ON jobpool_lanes (open_at_ms) WHERE open_at_ms > 0;
CREATE INDEX jobpool_lanes_blocked ON jobpool_lanes (blocked_by, rank DESC, vtime, id)
WHERE blocked_by IS NOT NULL;
CREATE INDEX jobpool_lanes_idle ON jobpool_lanes (vtime) WHERE waits = 0;

-- As before, but for pauses that have ended, and with what waits for quotas: more
-- supervisors would not help that.
DROP VIEW jobpool_oldest_runnable;
CREATE VIEW jobpool_oldest_runnable AS
SELECT
  j.pool,
  j.kind,
  count(*) AS jobs,
  min(j.run_at_ms) AS oldest_run_at_ms,
  (strftime('%s', 'now') * 1000 - min(j.run_at_ms)) / 1000.0 AS oldest_age_s,
  EXISTS (SELECT 1 FROM jobpool_kinds AS k WHERE k.kind = j.kind) AS known,
  EXISTS (
    SELECT 1 FROM jobpool_pauses AS p
    WHERE ((p.what = 'kind' AND p.name = j.kind) OR (p.what = 'pool' AND p.name = j.pool))
      AND (p.until_ms IS NULL OR p.until_ms > strftime('%s', 'now') * 1000)
  ) AS paused,
  count(closed.id) AS blocked,
  (strftime('%s', 'now') * 1000 - min(iif(closed.id IS NULL, j.run_at_ms, NULL)))
    / 1000.0 AS oldest_open_age_s
FROM jobpool_jobs AS j
LEFT JOIN jobpool_lanes AS closed
  ON closed.id = j.lane AND closed.waits = 1
  AND (closed.blocked_by IS NOT NULL OR closed.open_at_ms > strftime('%s', 'now') * 1000)
WHERE j.state = 'runnable'
GROUP BY j.pool, j.kind;

-- One value of what a quota counts by. `tat_us`: its rate's theoretical arrival time.
-- `contested`: lanes wait for it. `checked_at_ms`: when its permits were last checked.
CREATE TABLE jobpool_buckets (
  id INTEGER PRIMARY KEY NOT NULL,
  quota TEXT NOT NULL CHECK (quota < x''),
  value TEXT NOT NULL CHECK (value < x''),
  tat_us INTEGER NOT NULL DEFAULT 0 CHECK (tat_us | 0 IS tat_us),
  block_until_ms INTEGER NOT NULL DEFAULT 0 CHECK (
    block_until_ms | 0 IS block_until_ms
  ),
  contested INTEGER NOT NULL DEFAULT 0 CHECK (contested IN (0, 1)),
  checked_at_ms INTEGER NOT NULL DEFAULT 0 CHECK (checked_at_ms | 0 IS checked_at_ms),
  breaker TEXT CHECK (breaker < x''),
  probe_token INTEGER CHECK (probe_token | 0 IS probe_token)
);

CREATE INDEX jobpool_buckets_of_quota ON jobpool_buckets (quota, value);
CREATE INDEX jobpool_buckets_contested ON jobpool_buckets (checked_at_ms)
WHERE contested = 1;
CREATE INDEX jobpool_buckets_idle ON jobpool_buckets (checked_at_ms) WHERE contested = 0;

-- What attempts hold of buckets. `n`: 0 was taken when the job was leased, others by the
-- attempt itself. It only counts while the lease, or its completion, does. `held_from_us`:
-- what a rate must know to take it back.
CREATE TABLE jobpool_permits (
  bucket INTEGER NOT NULL CHECK (bucket | 0 IS bucket),
  token INTEGER NOT NULL CHECK (token | 0 IS token),
  n INTEGER NOT NULL DEFAULT 0 CHECK (n | 0 IS n),
  job_id INTEGER NOT NULL CHECK (job_id | 0 IS job_id),
  run_id TEXT NOT NULL CHECK (run_id < x''),
  cost INTEGER NOT NULL DEFAULT 1 CHECK (cost | 0 IS cost),
  held_from_us INTEGER NOT NULL DEFAULT 0 CHECK (held_from_us | 0 IS held_from_us),
  PRIMARY KEY (bucket, token, n)
) WITHOUT ROWID;

CREATE INDEX jobpool_permits_of_token ON jobpool_permits (token);

CREATE INDEX jobpool_jobs_in_lane
ON jobpool_jobs (lane, run_at_ms, id)
WHERE state = 'runnable' AND lane IS NOT NULL;

-- Lanes that have got a runnable job, on whatever path; leasing looks at them.
CREATE TABLE jobpool_lane_notes (lane INTEGER PRIMARY KEY NOT NULL);

CREATE TRIGGER jobpool_job_joins_lane
AFTER INSERT ON jobpool_jobs
WHEN new.state = 'runnable' AND new.lane IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM jobpool_lane_notes AS n WHERE n.lane = new.lane)
BEGIN
  INSERT INTO jobpool_lane_notes (lane) VALUES (new.lane);
END;

CREATE TRIGGER jobpool_job_returns_to_lane
AFTER UPDATE OF state, lane ON jobpool_jobs
WHEN new.state = 'runnable' AND new.lane IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM jobpool_lane_notes AS n WHERE n.lane = new.lane)
BEGIN
  INSERT INTO jobpool_lane_notes (lane) VALUES (new.lane);
END;

-- Buckets in which something was freed (`refund`: what goes back to its rate, taken at
-- `held_from_us` or later), or which are to give out nothing for a while; leasing looks
-- at them.
CREATE TABLE jobpool_bucket_notes (
  id INTEGER PRIMARY KEY NOT NULL,
  bucket INTEGER NOT NULL CHECK (bucket | 0 IS bucket),
  refund INTEGER NOT NULL DEFAULT 0 CHECK (refund | 0 IS refund),
  held_from_us INTEGER NOT NULL DEFAULT 0 CHECK (held_from_us | 0 IS held_from_us),
  block_until_ms INTEGER NOT NULL DEFAULT 0 CHECK (
    block_until_ms | 0 IS block_until_ms
  )
);

-- Schedules. `rule` and `options` are JSON. `since_ms`: when it got this rule.
-- `last_at_ms`: its times up to then have been dealt with. `next_at_ms`: when a step
-- looks at it again, for a tick or for the end of a pause; NULL: not by itself.
-- `planned_at_ms`: the clock when that was decided; if it is later than now, the clock
-- had jumped. `waits`: a step looks as soon as an open tick's job has ended (1), or waits
-- for a retry (2), since something else is to happen then.
CREATE TABLE jobpool_schedules (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL CHECK (name < x''),
  application TEXT CHECK (application < x''),
  app_version TEXT CHECK (app_version < x''),
  kind TEXT NOT NULL CHECK (kind < x''),
  pool TEXT NOT NULL CHECK (pool < x''),
  payload BLOB NOT NULL CHECK (payload >= x''),
  codec TEXT CHECK (codec < x''),
  tenant TEXT CHECK (tenant < x''),
  priority INTEGER NOT NULL DEFAULT 0 CHECK (priority | 0 IS priority),
  rule TEXT NOT NULL CHECK (rule < x''),
  options TEXT NOT NULL CHECK (options < x''),
  updated_at_ms INTEGER NOT NULL CHECK (updated_at_ms | 0 IS updated_at_ms),
  since_ms INTEGER NOT NULL CHECK (since_ms | 0 IS since_ms),
  last_at_ms INTEGER CHECK (last_at_ms | 0 IS last_at_ms),
  last_end_ms INTEGER CHECK (last_end_ms | 0 IS last_end_ms),
  next_at_ms INTEGER CHECK (next_at_ms | 0 IS next_at_ms),
  planned_at_ms INTEGER NOT NULL CHECK (planned_at_ms | 0 IS planned_at_ms),
  waits INTEGER NOT NULL DEFAULT 0 CHECK (waits | 0 IS waits AND waits BETWEEN 0 AND 2),
  missed INTEGER NOT NULL DEFAULT 0 CHECK (missed | 0 IS missed),
  retired_at_ms INTEGER CHECK (retired_at_ms | 0 IS retired_at_ms),
  paused_at_ms INTEGER CHECK (paused_at_ms | 0 IS paused_at_ms),
  paused_until_ms INTEGER CHECK (paused_until_ms | 0 IS paused_until_ms),
  paused_by TEXT CHECK (paused_by < x''),
  note TEXT CHECK (note < x'')
);

CREATE UNIQUE INDEX jobpool_schedules_name ON jobpool_schedules (name);
CREATE INDEX jobpool_schedules_next ON jobpool_schedules (next_at_ms)
WHERE next_at_ms IS NOT NULL;
CREATE INDEX jobpool_schedules_planned ON jobpool_schedules (planned_at_ms)
WHERE next_at_ms IS NOT NULL;
CREATE INDEX jobpool_schedules_waiting ON jobpool_schedules (id) WHERE waits > 0;

-- A tick is unique by its nominal time and written with its job; a buffered one waits
-- for others, and has none yet. `job_state`: how the job of one that is done has ended;
-- NULL: it was gone before that was seen.
CREATE TABLE jobpool_ticks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  schedule INTEGER NOT NULL CHECK (schedule | 0 IS schedule),
  nominal_at_ms INTEGER NOT NULL CHECK (nominal_at_ms | 0 IS nominal_at_ms),
  stored_at_ms INTEGER NOT NULL CHECK (stored_at_ms | 0 IS stored_at_ms),
  state TEXT NOT NULL CHECK (
    state = 'buffered' OR state = 'open' OR state = 'done' OR state = 'skipped'
  ),
  job_id INTEGER CHECK (job_id | 0 IS job_id),
  job_state TEXT CHECK (
    job_state = 'succeeded' OR job_state = 'dead'
    OR job_state = 'quarantined' OR job_state = 'canceled'
  ),
  backfilled INTEGER NOT NULL DEFAULT 0 CHECK (backfilled IN (0, 1)),
  ended_at_ms INTEGER CHECK (ended_at_ms | 0 IS ended_at_ms),
  CHECK ((ended_at_ms IS NULL) = (state IN ('buffered', 'open')))
);

CREATE UNIQUE INDEX jobpool_ticks_nominal ON jobpool_ticks (schedule, nominal_at_ms);
CREATE INDEX jobpool_ticks_open ON jobpool_ticks (schedule, nominal_at_ms)
WHERE ended_at_ms IS NULL;
CREATE INDEX jobpool_ticks_skipped ON jobpool_ticks (ended_at_ms) WHERE state = 'skipped';

-- Flows: edges join steps, so that a fan-in of 10,000 members is one edge.
CREATE TABLE jobpool_flows (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL CHECK (name < x''),
  key TEXT CHECK (key < x''),
  tenant TEXT CHECK (tenant < x''),
  state TEXT NOT NULL CHECK (
    state = 'building' OR state = 'open' OR state = 'paused'
    OR state = 'succeeded' OR state = 'failed' OR state = 'canceled'
  ),
  failure TEXT NOT NULL CHECK (failure < x''),
  generation INTEGER NOT NULL DEFAULT 1 CHECK (generation | 0 IS generation),
  created_at_ms INTEGER NOT NULL CHECK (created_at_ms | 0 IS created_at_ms),
  finished_at_ms INTEGER CHECK (finished_at_ms | 0 IS finished_at_ms)
);

CREATE UNIQUE INDEX jobpool_flows_key ON jobpool_flows (name, key) WHERE key IS NOT NULL;

CREATE TABLE jobpool_steps (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  flow INTEGER NOT NULL CHECK (flow | 0 IS flow),
  name TEXT NOT NULL CHECK (name < x''),
  state TEXT NOT NULL CHECK (
    state = 'closed' OR state = 'ready' OR state = 'done' OR state = 'skipped'
    OR state >= 'building:' AND state < 'building;'
  ),
  failed INTEGER NOT NULL DEFAULT 0 CHECK (failed IN (0, 1)),
  until_ms INTEGER CHECK (until_ms | 0 IS until_ms)
);

CREATE INDEX jobpool_steps_of_flow ON jobpool_steps (flow, id);

CREATE TABLE jobpool_edges (
  flow INTEGER NOT NULL CHECK (flow | 0 IS flow),
  from_step INTEGER NOT NULL CHECK (from_step | 0 IS from_step),
  to_step INTEGER NOT NULL CHECK (to_step | 0 IS to_step),
  when_ended TEXT NOT NULL CHECK (when_ended IN ('succeeded', 'failed', 'finished')),
  PRIMARY KEY (from_step, to_step)
) WITHOUT ROWID;

CREATE INDEX jobpool_edges_in ON jobpool_edges (to_step);

CREATE TABLE jobpool_flow_notes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  flow INTEGER NOT NULL CHECK (flow | 0 IS flow),
  step INTEGER NOT NULL CHECK (step | 0 IS step)
);

CREATE INDEX jobpool_jobs_of_step ON jobpool_jobs (step)
WHERE step IS NOT NULL AND finished_at_ms IS NULL;

-- SQLite cannot alter a CHECK, and a rebuild of the table would shut all writers out for
-- two seconds for each million jobs. The text of a CHECK can be edited, since no row that
-- passed the old ones can fail these. RESET makes this connection read it again, and the
-- statement after it makes the others do so.
PRAGMA writable_schema = ON;
UPDATE sqlite_master
SET sql = replace(
  replace(sql, '    OR state = ''canceled''
  ),', '    OR state = ''canceled'' OR state = ''waiting''
  ),'),
  'CONSTRAINT leased_means_token ',
  'CONSTRAINT later_columns_hold_their_type CHECK (
    lane | 0 IS lane AND step | 0 IS step AND generation | 0 IS generation
    AND tick | 0 IS tick AND codec < x'''' AND trace < x''''
    AND replays | 0 IS replays AND replaced_by | 0 IS replaced_by
    AND solo IN (0, 1) AND quota_values < x''''
  ),
  CONSTRAINT throttled_is_text CHECK (throttled < x''''),
  CONSTRAINT leased_means_token '
)
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
