-- Tables and indexes. Times are milliseconds since 1970, UTC (`_ms`).
--
-- The CHECKs repeat jobpool.core.rules.lifecycle's invariants, so that a row written by
-- hand cannot stand in a state that no transition leads to. So do types, because SQLite
-- before 3.37 has no STRICT tables. They are said by what SQLite compares quickest (calls
-- of typeof() took 2 of the 5 microseconds of an INSERT), and NULL passes them all:
--   x | 0 IS x   an integer: of anything else the left side is another number (but for
--                the real -2^63, which a hand may write, and no reader takes);
--   x < x''      a text: the column's affinity makes one of numbers, blobs come after;
--   x < ''       a real: the affinity makes one of what can be, texts and blobs come after;
--   x >= x''     a blob: everything else comes before.
-- A choice among more than two is an OR: a longer IN list is a table of its own, which
-- SQLite builds anew for every row that a CHECK looks at (5 of the 8 microseconds that an
-- UPDATE of the state took).
--
-- Every partial index names one literal state (or a NULL test): SQLite uses it only
-- where the query repeats that term, so a backlog in one state costs others nothing.

-- Counters: tokens granted, stale settlements seen, an upper bound of unfinished
-- jobs, and the schema's version.
CREATE TABLE jobpool_meta (
  name TEXT PRIMARY KEY NOT NULL,
  value INTEGER NOT NULL CHECK (value | 0 IS value)
) WITHOUT ROWID;

INSERT INTO jobpool_meta (name, value)
VALUES ('tokens', 0), ('stale_settlements', 0), ('unfinished_at_most', 0);

CREATE TABLE jobpool_jobs (
  -- AUTOINCREMENT: an id is never given to a second job, even after a prune.
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind < x''),
  pool TEXT NOT NULL CHECK (pool < x''),
  state TEXT NOT NULL CHECK (
    state = 'pending' OR state = 'runnable' OR state = 'leased'
    OR state = 'succeeded' OR state = 'dead' OR state = 'quarantined'
    OR state = 'canceled'
  ),
  priority INTEGER NOT NULL DEFAULT 0 CHECK (
    priority | 0 IS priority AND priority BETWEEN -32768 AND 32767
  ),
  key TEXT CHECK (key < x''),
  unique_text TEXT CHECK (unique_text < x''),
  tenant TEXT CHECK (tenant < x''),

  -- What the job itself asked for.
  max_attempts INTEGER CHECK (max_attempts | 0 IS max_attempts),
  timeout_s REAL CHECK (timeout_s < ''),
  memory_bytes INTEGER CHECK (memory_bytes | 0 IS memory_bytes),

  -- Attempts begun, how many of them an operator's reset has put behind, and what
  -- has been spent since.
  attempt INTEGER NOT NULL DEFAULT 0 CHECK (
    attempt | 0 IS attempt AND attempt >= 0
  ),
  reset_attempt INTEGER NOT NULL DEFAULT 0 CHECK (
    reset_attempt | 0 IS reset_attempt AND reset_attempt >= 0
  ),
  failures INTEGER NOT NULL DEFAULT 0 CHECK (
    failures | 0 IS failures AND failures >= 0
  ),
  crashes INTEGER NOT NULL DEFAULT 0 CHECK (
    crashes | 0 IS crashes AND crashes >= 0
  ),
  interruptions INTEGER NOT NULL DEFAULT 0 CHECK (
    interruptions | 0 IS interruptions AND interruptions >= 0
  ),
  recoveries INTEGER NOT NULL DEFAULT 0 CHECK (
    recoveries | 0 IS recoveries AND recoveries >= 0
  ),

  created_at_ms INTEGER NOT NULL CHECK (created_at_ms | 0 IS created_at_ms),
  run_at_ms INTEGER NOT NULL CHECK (
    run_at_ms | 0 IS run_at_ms AND run_at_ms <= 253402300799000
  ),
  expires_at_ms INTEGER CHECK (expires_at_ms | 0 IS expires_at_ms),
  finished_at_ms INTEGER CHECK (finished_at_ms | 0 IS finished_at_ms),

  -- The lease.
  token INTEGER CHECK (token | 0 IS token),
  supervisor TEXT CHECK (supervisor < x''),
  leased_at_ms INTEGER CHECK (leased_at_ms | 0 IS leased_at_ms),
  cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),

  -- The last attempt.
  slot TEXT CHECK (slot < x''),
  started_at_ms INTEGER CHECK (started_at_ms | 0 IS started_at_ms),
  last_heartbeat_at_ms INTEGER CHECK (
    last_heartbeat_at_ms | 0 IS last_heartbeat_at_ms
  ),
  outcome TEXT CHECK (
    outcome = 'succeeded' OR outcome = 'failed' OR outcome = 'timed_out'
    OR outcome = 'stalled' OR outcome = 'out_of_memory' OR outcome = 'crashed'
    OR outcome = 'interrupted' OR outcome = 'lost' OR outcome = 'canceled'
  ),
  reason TEXT CHECK (reason < x''),
  error_class TEXT CHECK (error_class < x''),
  error TEXT CHECK (error < x''),
  duration_s REAL CHECK (duration_s < ''),
  cpu_s REAL CHECK (cpu_s < ''),
  peak_rss_bytes INTEGER CHECK (peak_rss_bytes | 0 IS peak_rss_bytes),
  progress BLOB CHECK (progress >= x''),
  checkpoint BLOB CHECK (checkpoint >= x''),

  CONSTRAINT leased_means_token CHECK (
    (state = 'leased') = (token IS NOT NULL)
  ),
  CONSTRAINT leased_means_supervisor CHECK (
    (state = 'leased') = (supervisor IS NOT NULL)
  ),
  CONSTRAINT leased_means_since CHECK (
    (state = 'leased') = (leased_at_ms IS NOT NULL)
  ),
  CONSTRAINT only_leased_can_be_asked_to_stop CHECK (
    cancel_requested = 0 OR state = 'leased'
  ),
  CONSTRAINT finished_means_when CHECK (
    (
      state = 'succeeded' OR state = 'dead' OR state = 'quarantined'
      OR state = 'canceled'
    ) = (finished_at_ms IS NOT NULL)
  ),
  CONSTRAINT ran_means_attempt CHECK (
    attempt > 0
    OR (state <> 'leased' AND state <> 'succeeded' AND state <> 'quarantined')
  ),
  CONSTRAINT succeeded_means_outcome CHECK (
    state <> 'succeeded' OR outcome IS 'succeeded'
  ),
  CONSTRAINT quarantined_means_outcome CHECK (
    state <> 'quarantined' OR outcome IS NOT NULL
  )
);

-- Big values have their own tables, so that a state change does not rewrite them.
CREATE TABLE jobpool_payloads (
  job_id INTEGER PRIMARY KEY NOT NULL,
  payload BLOB NOT NULL CHECK (payload >= x'')
);

-- A succeeded job without a row here returned null.
CREATE TABLE jobpool_results (
  job_id INTEGER PRIMARY KEY NOT NULL,
  result BLOB NOT NULL CHECK (result >= x'')
);

-- One row for each attempt that did not succeed.
CREATE TABLE jobpool_attempts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  token INTEGER NOT NULL,
  outcome TEXT NOT NULL CHECK (
    outcome = 'failed' OR outcome = 'timed_out' OR outcome = 'stalled'
    OR outcome = 'out_of_memory' OR outcome = 'crashed'
    OR outcome = 'interrupted' OR outcome = 'lost' OR outcome = 'canceled'
  ),
  rule TEXT,
  reason TEXT,
  error_class TEXT,
  error TEXT,
  traceback TEXT,
  signal INTEGER,
  exit_code INTEGER,
  peak_rss_bytes INTEGER,
  cpu_s REAL,
  duration_s REAL,
  output TEXT,
  stack TEXT,
  supervisor TEXT,
  slot TEXT,
  started_at_ms INTEGER NOT NULL,
  finished_at_ms INTEGER NOT NULL
);

CREATE INDEX jobpool_attempts_of_job ON jobpool_attempts (job_id, id);

-- Supervisors; the lease is the supervisor's, so one row's heartbeat renews it all.
CREATE TABLE jobpool_runs (
  id TEXT PRIMARY KEY NOT NULL,
  host TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  pid INTEGER NOT NULL,
  pid_namespace INTEGER NOT NULL,
  version TEXT NOT NULL,
  pools TEXT NOT NULL,
  started_at_ms INTEGER NOT NULL,
  heartbeat_at_ms INTEGER NOT NULL,
  lease_until_ms INTEGER NOT NULL,
  ended_at_ms INTEGER
) WITHOUT ROWID;

-- What each supervisor's application knows.
CREATE TABLE jobpool_kinds (
  kind TEXT NOT NULL,
  run_id TEXT NOT NULL,
  pool TEXT NOT NULL,
  schema TEXT NOT NULL,
  timeout_s REAL NOT NULL,
  memory_bytes INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  max_crashes INTEGER NOT NULL,
  updated_at_ms INTEGER NOT NULL,
  PRIMARY KEY (kind, run_id)
) WITHOUT ROWID;

CREATE TABLE jobpool_pauses (
  what TEXT NOT NULL CHECK (what IN ('pool', 'kind')),
  name TEXT NOT NULL,
  PRIMARY KEY (what, name)
) WITHOUT ROWID;

CREATE INDEX jobpool_jobs_runnable
ON jobpool_jobs (pool, kind, priority DESC, run_at_ms, id)
WHERE state = 'runnable';

CREATE INDEX jobpool_jobs_pending
ON jobpool_jobs (run_at_ms)
WHERE state = 'pending';

CREATE INDEX jobpool_jobs_leased
ON jobpool_jobs (supervisor)
WHERE state = 'leased';

CREATE INDEX jobpool_jobs_succeeded
ON jobpool_jobs (finished_at_ms)
WHERE state = 'succeeded';

CREATE INDEX jobpool_jobs_dead
ON jobpool_jobs (finished_at_ms)
WHERE state = 'dead';

CREATE INDEX jobpool_jobs_quarantined
ON jobpool_jobs (finished_at_ms)
WHERE state = 'quarantined';

CREATE INDEX jobpool_jobs_canceled
ON jobpool_jobs (finished_at_ms)
WHERE state = 'canceled';

CREATE INDEX jobpool_jobs_expiring
ON jobpool_jobs (expires_at_ms)
WHERE expires_at_ms IS NOT NULL AND attempt = 0 AND finished_at_ms IS NULL;

CREATE INDEX jobpool_jobs_asked_to_stop
ON jobpool_jobs (supervisor)
WHERE cancel_requested = 1;

CREATE UNIQUE INDEX jobpool_jobs_key
ON jobpool_jobs (kind, key)
WHERE key IS NOT NULL;

CREATE UNIQUE INDEX jobpool_jobs_unique
ON jobpool_jobs (kind, unique_text)
WHERE unique_text IS NOT NULL AND finished_at_ms IS NULL;
