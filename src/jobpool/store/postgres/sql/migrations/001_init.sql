-- Tables and indexes. Times are milliseconds since 1970, UTC (`_ms`).
--
-- The CHECKs repeat jobpool.core.rules.lifecycle's invariants, so that a row written by
-- hand cannot stand in a state that no transition leads to.
--
-- Every partial index names one literal state (or a NULL test), so that a backlog in
-- one state costs others nothing. Names are compared as bytes (COLLATE "C"): an
-- upgrade of the system's collations must not break an index.

-- Counters: stale settlements seen, the store's own random id, the schema's version.
CREATE TABLE jobpool.meta (
  name text PRIMARY KEY NOT NULL,
  value bigint NOT NULL
);

INSERT INTO jobpool.meta (name, value)
VALUES
  ('stale_settlements', 0),
  ('store_id', ('x' || left(md5(gen_random_uuid()::text), 15))::bit(60)::bigint);

CREATE SEQUENCE jobpool.job_ids;

-- Of leases; what stands in a job's token has random bits below it.
CREATE SEQUENCE jobpool.tokens;

CREATE TABLE jobpool.jobs (
  id bigint PRIMARY KEY DEFAULT nextval('jobpool.job_ids'),
  kind text COLLATE "C" NOT NULL,
  pool text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL CHECK (
    state IN (
      'pending', 'runnable', 'leased',
      'succeeded', 'dead', 'quarantined', 'canceled'
    )
  ),
  priority integer NOT NULL DEFAULT 0 CHECK (priority BETWEEN -32768 AND 32767),
  key text COLLATE "C",
  unique_text text COLLATE "C",
  tenant text COLLATE "C",
  payload bytea NOT NULL,

  -- What the job itself asked for.
  max_attempts bigint,
  timeout_s double precision,
  memory_bytes bigint,

  -- Attempts begun, how many of them an operator's reset has put behind, and what
  -- has been spent since.
  attempt integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  reset_attempt integer NOT NULL DEFAULT 0 CHECK (reset_attempt >= 0),
  failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
  crashes integer NOT NULL DEFAULT 0 CHECK (crashes >= 0),
  interruptions integer NOT NULL DEFAULT 0 CHECK (interruptions >= 0),
  recoveries integer NOT NULL DEFAULT 0 CHECK (recoveries >= 0),

  created_at_ms bigint NOT NULL,
  run_at_ms bigint NOT NULL CHECK (run_at_ms <= 253402300799000),
  expires_at_ms bigint,
  finished_at_ms bigint,

  -- The lease; completed_token is that of the attempt whose own transaction
  -- completed the job.
  token bigint,
  completed_token bigint,
  supervisor text COLLATE "C",
  leased_at_ms bigint,
  cancel_requested boolean NOT NULL DEFAULT false,

  -- The last attempt.
  slot text,
  started_at_ms bigint,
  last_heartbeat_at_ms bigint,
  outcome text COLLATE "C" CHECK (
    outcome IN (
      'succeeded', 'failed', 'timed_out', 'stalled', 'out_of_memory',
      'crashed', 'interrupted', 'lost', 'canceled'
    )
  ),
  reason text,
  error_class text,
  error text,
  duration_s double precision,
  cpu_s double precision,
  peak_rss_bytes bigint,
  progress bytea,
  checkpoint bytea,
  -- NULL in a succeeded job: it returned null.
  result bytea,

  CONSTRAINT leased_means_token CHECK ((state = 'leased') = (token IS NOT NULL)),
  CONSTRAINT leased_means_supervisor CHECK (
    (state = 'leased') = (supervisor IS NOT NULL)
  ),
  CONSTRAINT leased_means_since CHECK (
    (state = 'leased') = (leased_at_ms IS NOT NULL)
  ),
  CONSTRAINT only_leased_can_be_asked_to_stop CHECK (
    NOT cancel_requested OR state = 'leased'
  ),
  CONSTRAINT finished_means_when CHECK (
    (state IN ('succeeded', 'dead', 'quarantined', 'canceled'))
    = (finished_at_ms IS NOT NULL)
  ),
  CONSTRAINT ran_means_attempt CHECK (
    state NOT IN ('leased', 'succeeded', 'quarantined') OR attempt > 0
  ),
  CONSTRAINT succeeded_means_outcome CHECK (
    state <> 'succeeded' OR outcome IS NOT DISTINCT FROM 'succeeded'
  ),
  CONSTRAINT quarantined_means_outcome CHECK (
    state <> 'quarantined' OR outcome IS NOT NULL
  )
)
-- A job has three row versions in its life. Values over 256 bytes are kept apart, so
-- that a state change does not copy them; dead versions go early and often, by their
-- number and not by a share of a table that may hold millions of finished jobs.
WITH (
  fillfactor = 80,
  toast_tuple_target = 256,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 20000
);

ALTER SEQUENCE jobpool.job_ids OWNED BY jobpool.jobs.id;

-- One row for each attempt that did not succeed.
CREATE TABLE jobpool.attempts (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  job_id bigint NOT NULL,
  attempt integer NOT NULL,
  token bigint NOT NULL,
  outcome text COLLATE "C" NOT NULL CHECK (
    outcome IN (
      'failed', 'timed_out', 'stalled', 'out_of_memory',
      'crashed', 'interrupted', 'lost', 'canceled'
    )
  ),
  rule text,
  reason text,
  error_class text,
  error text,
  traceback text,
  signal integer,
  exit_code integer,
  peak_rss_bytes bigint,
  cpu_s double precision,
  duration_s double precision,
  output text,
  stack text,
  supervisor text,
  slot text,
  started_at_ms bigint NOT NULL,
  finished_at_ms bigint NOT NULL
);

CREATE INDEX attempts_of_job ON jobpool.attempts (job_id, id);

-- Supervisors; the lease is the supervisor's, so one row's heartbeat renews it all.
-- It is written twice a second: room on the page keeps each a heap-only update.
CREATE TABLE jobpool.runs (
  id text COLLATE "C" PRIMARY KEY NOT NULL,
  host text NOT NULL,
  boot_id text NOT NULL,
  pid bigint NOT NULL,
  pid_namespace bigint NOT NULL,
  version text NOT NULL,
  pools text NOT NULL,
  started_at_ms bigint NOT NULL,
  heartbeat_at_ms bigint NOT NULL,
  lease_until_ms bigint NOT NULL,
  ended_at_ms bigint
)
WITH (
  fillfactor = 20,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0
);

-- What each supervisor's application knows.
CREATE TABLE jobpool.kinds (
  kind text COLLATE "C" NOT NULL,
  run_id text COLLATE "C" NOT NULL,
  pool text COLLATE "C" NOT NULL,
  schema text NOT NULL,
  timeout_s double precision NOT NULL,
  memory_bytes bigint NOT NULL,
  max_attempts bigint NOT NULL,
  max_crashes bigint NOT NULL,
  updated_at_ms bigint NOT NULL,
  PRIMARY KEY (kind, run_id)
);

CREATE TABLE jobpool.pauses (
  what text COLLATE "C" NOT NULL CHECK (what IN ('pool', 'kind')),
  name text COLLATE "C" NOT NULL,
  PRIMARY KEY (what, name)
);

CREATE INDEX jobs_runnable
ON jobpool.jobs (pool, kind, priority DESC, run_at_ms, id)
WHERE state = 'runnable';

CREATE INDEX jobs_pending
ON jobpool.jobs (run_at_ms)
WHERE state = 'pending';

CREATE INDEX jobs_leased
ON jobpool.jobs (supervisor)
WHERE state = 'leased';

CREATE INDEX jobs_succeeded
ON jobpool.jobs (finished_at_ms)
WHERE state = 'succeeded';

CREATE INDEX jobs_dead
ON jobpool.jobs (finished_at_ms)
WHERE state = 'dead';

CREATE INDEX jobs_quarantined
ON jobpool.jobs (finished_at_ms)
WHERE state = 'quarantined';

CREATE INDEX jobs_canceled
ON jobpool.jobs (finished_at_ms)
WHERE state = 'canceled';

CREATE INDEX jobs_expiring
ON jobpool.jobs (expires_at_ms)
WHERE expires_at_ms IS NOT NULL AND attempt = 0 AND finished_at_ms IS NULL;

CREATE INDEX jobs_asked_to_stop
ON jobpool.jobs (supervisor)
WHERE cancel_requested;

CREATE UNIQUE INDEX jobs_key
ON jobpool.jobs (kind, key)
WHERE key IS NOT NULL;

CREATE UNIQUE INDEX jobs_unique
ON jobpool.jobs (kind, unique_text)
WHERE unique_text IS NOT NULL AND finished_at_ms IS NULL;
