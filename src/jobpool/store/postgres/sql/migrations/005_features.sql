-- Room for quotas, schedules, flows and whatever else is announced, in one step, so that
-- a fleet is upgraded once. Until a feature exists nothing writes its columns, and NULL
-- means that a job does without it: it costs such a job nothing.

-- lock:
LOCK TABLE
  jobpool.runs, jobpool.kinds, jobpool.jobs, jobpool.attempts, jobpool.pauses, jobpool.meta
IN ACCESS EXCLUSIVE MODE;

-- expand:
ALTER TABLE jobpool.jobs
-- Jobs that the same buckets hold back are of one lane (NULL: not known yet, or none);
-- and what quotas count them by, as JSON.
ADD COLUMN lane bigint,
ADD COLUMN quota_values text COLLATE "C",
-- JSON: how often it was throttled in a row, and since when; NULL: it was not.
ADD COLUMN throttled text COLLATE "C",
ADD COLUMN step bigint,
ADD COLUMN generation integer,
ADD COLUMN tick bigint,
-- The codec through which payload, result, checkpoint and errors have passed.
ADD COLUMN codec text COLLATE "C",
-- W3C trace context of whoever enqueued it.
ADD COLUMN trace text,
-- The dead job that this one is the repaired copy of, and the other way round.
ADD COLUMN replays bigint,
ADD COLUMN replaced_by bigint,
-- It runs alone in its child, whatever its pool allows.
ADD COLUMN solo boolean,
DROP CONSTRAINT jobs_state_check,
ADD CONSTRAINT jobs_state_check CHECK (
  state IN (
    'pending', 'runnable', 'leased',
    'succeeded', 'dead', 'quarantined', 'canceled', 'waiting'
  )
) NOT VALID;

-- The format that a supervisor's code can honour (NULL: 1), the application that it
-- runs, the version of that, and since when it has run that.
ALTER TABLE jobpool.runs ADD COLUMN format bigint;
ALTER TABLE jobpool.runs ADD COLUMN application text COLLATE "C";
ALTER TABLE jobpool.runs ADD COLUMN app_version text COLLATE "C";
-- How often it was renewed (NULL: never, or by code from before formats). Unlike a time
-- it only rises.
ALTER TABLE jobpool.runs ADD COLUMN renewals bigint;
ALTER TABLE jobpool.runs ADD COLUMN app_since_ms bigint;

-- JSON: the quotas and tenants that its application and its configuration define.
ALTER TABLE jobpool.runs ADD COLUMN limits text COLLATE "C";

-- JSON: the kind's names (its own, its aliases) if its jobs run at most once.
ALTER TABLE jobpool.kinds ADD COLUMN at_most_once text COLLATE "C";
-- JSON: the quotas that its jobs need, and what each costs.
ALTER TABLE jobpool.kinds ADD COLUMN needs text COLLATE "C";

-- Code from before formats, which has opened the store already, enters its run without
-- asking. (Newer code asks first, to say more.) The lock makes it wait for a transaction
-- that raises the least format.
CREATE FUNCTION jobpool.refuse_outdated_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  least bigint;
BEGIN
  SELECT value INTO least FROM jobpool.meta WHERE name = 'min_format' FOR SHARE;
  IF coalesce(new.format, 1) < least THEN
    RAISE EXCEPTION 'jobpool: features of a newer release are in use: upgrade jobpool';
  END IF;
  RETURN new;
END
$$;

CREATE TRIGGER run_is_outdated
BEFORE INSERT ON jobpool.runs
FOR EACH ROW WHEN (new.ended_at_ms IS NULL)
EXECUTE FUNCTION jobpool.refuse_outdated_run();

ALTER TABLE jobpool.attempts ADD COLUMN app_version text COLLATE "C";
-- JSON: its limit in bytes, and at most 64 pairs of milliseconds since the attempt began,
-- and bytes.
ALTER TABLE jobpool.attempts ADD COLUMN memory_trail text COLLATE "C";

-- The least format that may lease, the one that has been asked for, two halves of the
-- key by which ids are made unguessable (`ref`), how often the store was restored, and
-- what changes whenever a quota does.
INSERT INTO jobpool.meta (name, value)
VALUES
  ('min_format', 1),
  ('wanted_format', 1),
  ('ref_key_high', ('x' || left(md5(gen_random_uuid()::text), 16))::bit(62)::bigint),
  ('ref_key_low', ('x' || left(md5(gen_random_uuid()::text), 16))::bit(62)::bigint),
  ('restores', 0),
  ('limits_version', 0)
ON CONFLICT (name) DO NOTHING;

-- Who paused what, why, and until when.
ALTER TABLE jobpool.pauses
ADD COLUMN since_ms bigint,
ADD COLUMN until_ms bigint,
ADD COLUMN who text,
ADD COLUMN note text,
DROP CONSTRAINT pauses_what_check,
ADD CONSTRAINT pauses_what_check CHECK (
  what IN ('pool', 'kind', 'tenant', 'quota', 'store')
);

-- As before, but for pauses that have ended.
CREATE OR REPLACE VIEW jobpool.oldest_runnable AS
SELECT
  j.pool,
  j.kind,
  count(*) AS jobs,
  min(j.run_at_ms) AS oldest_run_at_ms,
  extract(epoch FROM clock_timestamp())::double precision
    - min(j.run_at_ms)::double precision / 1000 AS oldest_age_s,
  EXISTS (SELECT 1 FROM jobpool.kinds AS k WHERE k.kind = j.kind) AS known,
  EXISTS (
    SELECT 1 FROM jobpool.pauses AS p
    WHERE (
        (p.what = 'kind' AND p.name = j.kind) OR (p.what = 'pool' AND p.name = j.pool)
      )
      AND (
        p.until_ms IS NULL
        OR p.until_ms > extract(epoch FROM clock_timestamp()) * 1000
      )
  ) AS paused
FROM jobpool.jobs AS j
WHERE j.state = 'runnable'
GROUP BY j.pool, j.kind;

-- What operators have done: written in the transaction that did it.
CREATE TABLE jobpool.audit (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  at_ms bigint NOT NULL,
  who text COLLATE "C" NOT NULL,
  role text COLLATE "C" NOT NULL,
  origin text COLLATE "C" NOT NULL,
  action text COLLATE "C" NOT NULL,
  target text COLLATE "C" NOT NULL,
  jobs bigint NOT NULL,
  changed text COLLATE "C",
  note text COLLATE "C"
);

CREATE INDEX audit_at ON jobpool.audit (at_ms);

-- The tail of what the successful attempt of a job has written. `place` is its end in
-- the stream of all outputs, in KiB: so the newest that fit a cap are found without a sum.
-- It comes from a sequence, for which no two supervisors wait. Of one that was dropped
-- for the cap, only that is left.
CREATE SEQUENCE jobpool.output_places;

CREATE TABLE jobpool.outputs (
  job_id bigint PRIMARY KEY,
  attempt bigint NOT NULL,
  at_ms bigint NOT NULL,
  place bigint,
  output text COLLATE "C",
  dropped_at_ms bigint
);

CREATE INDEX outputs_place ON jobpool.outputs (place) WHERE place IS NOT NULL;

-- Histograms of what attempts have used, by kind and week: bucket b counts those of at
-- most 1.05^b, in bytes or milliseconds. `censored` are those of them that were ended
-- there: they would have used more.
CREATE TABLE jobpool.sketches (
  kind text COLLATE "C" NOT NULL,
  pool text COLLATE "C" NOT NULL,
  measure text COLLATE "C" NOT NULL CHECK (measure IN ('memory', 'duration')),
  week bigint NOT NULL,
  bucket bigint NOT NULL,
  attempts bigint NOT NULL,
  censored bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (week, kind, pool, measure, bucket)
);

-- What an operator has set at run time. What applications define is in their runs.
CREATE TABLE jobpool.quotas (
  name text COLLATE "C" PRIMARY KEY,
  rate_permits double precision,
  rate_per_s double precision,
  burst bigint,
  concurrency bigint,
  until_ms bigint,
  who text COLLATE "C",
  note text COLLATE "C",
  updated_at_ms bigint NOT NULL
);

CREATE TABLE jobpool.tenants (
  name text COLLATE "C" PRIMARY KEY,
  concurrency bigint,
  rate_permits double precision,
  rate_per_s double precision,
  burst bigint,
  weight double precision,
  who text COLLATE "C",
  updated_at_ms bigint NOT NULL
);

-- Jobs that the same buckets and the same priority hold back wait in one lane. `waits`:
-- it has runnable jobs. It is open unless it waits for a time or for a bucket. `vtime`:
-- when its first job was due, as of the last look.
CREATE TABLE jobpool.lanes (
  id bigint PRIMARY KEY,
  pool text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  priority bigint NOT NULL,
  tenant text COLLATE "C",
  values_json text COLLATE "C" NOT NULL,
  rank bigint NOT NULL DEFAULT 0,
  vtime double precision NOT NULL DEFAULT 0,
  weight double precision NOT NULL DEFAULT 1,
  open_at_ms bigint NOT NULL DEFAULT 0,
  blocked_by bigint,
  waits boolean NOT NULL DEFAULT false
);

CREATE INDEX lanes_open
ON jobpool.lanes (pool, kind, rank DESC, vtime, id)
WHERE waits AND open_at_ms = 0 AND blocked_by IS NULL;
CREATE INDEX lanes_opening ON jobpool.lanes (open_at_ms) WHERE open_at_ms > 0;
CREATE INDEX lanes_blocked ON jobpool.lanes (blocked_by, rank DESC, vtime, id)
WHERE blocked_by IS NOT NULL;
CREATE INDEX lanes_idle ON jobpool.lanes (vtime) WHERE NOT waits;

-- One value of what a quota counts by. `tat_us`: its rate's theoretical arrival time.
-- `contested`: lanes wait for it. `checked_at_ms`: when its permits were last checked.
CREATE TABLE jobpool.buckets (
  id bigint PRIMARY KEY,
  quota text COLLATE "C" NOT NULL,
  value text COLLATE "C" NOT NULL,
  tat_us bigint NOT NULL DEFAULT 0,
  block_until_ms bigint NOT NULL DEFAULT 0,
  contested boolean NOT NULL DEFAULT false,
  checked_at_ms bigint NOT NULL DEFAULT 0,
  breaker text COLLATE "C",
  probe_token bigint
);

CREATE INDEX buckets_of_quota ON jobpool.buckets (quota, value);
CREATE INDEX buckets_contested ON jobpool.buckets (checked_at_ms) WHERE contested;
CREATE INDEX buckets_idle ON jobpool.buckets (checked_at_ms) WHERE NOT contested;

-- What attempts hold of buckets. `n`: 0 was taken when the job was leased, others by the
-- attempt itself. It only counts while the lease, or its completion, does. `held_from_us`:
-- what a rate must know to take it back.
CREATE TABLE jobpool.permits (
  bucket bigint NOT NULL,
  token bigint NOT NULL,
  n bigint NOT NULL DEFAULT 0,
  job_id bigint NOT NULL,
  run_id text COLLATE "C" NOT NULL,
  cost bigint NOT NULL DEFAULT 1,
  held_from_us bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (bucket, token, n)
);

CREATE INDEX permits_of_token ON jobpool.permits (token);

-- Lanes that have got a runnable job, on whatever path; leasing looks at them. With the
-- transaction's number, so that no two of them wait for each other.
CREATE TABLE jobpool.lane_notes (
  lane bigint NOT NULL,
  xact bigint NOT NULL,
  PRIMARY KEY (lane, xact)
);

CREATE FUNCTION jobpool.note_lane() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO jobpool.lane_notes (lane, xact)
  VALUES (new.lane, pg_current_xact_id()::text::bigint)
  ON CONFLICT DO NOTHING;
  RETURN NULL;
END
$$;

CREATE TRIGGER job_joins_lane
AFTER INSERT ON jobpool.jobs
FOR EACH ROW WHEN (new.state = 'runnable' AND new.lane IS NOT NULL)
EXECUTE FUNCTION jobpool.note_lane();

CREATE TRIGGER job_returns_to_lane
AFTER UPDATE OF state, lane ON jobpool.jobs
FOR EACH ROW WHEN (new.state = 'runnable' AND new.lane IS NOT NULL)
EXECUTE FUNCTION jobpool.note_lane();

-- Buckets in which something was freed (`refund`: what goes back to its rate, taken at
-- `held_from_us` or later), or which are to give out nothing for a while; leasing looks
-- at them.
CREATE TABLE jobpool.bucket_notes (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  bucket bigint NOT NULL,
  refund bigint NOT NULL DEFAULT 0,
  held_from_us bigint NOT NULL DEFAULT 0,
  block_until_ms bigint NOT NULL DEFAULT 0
);

-- Schedules. `rule` and `options` are JSON. `since_ms`: when it got this rule.
-- `last_at_ms`: its times up to then have been dealt with. `next_at_ms`: when a step
-- looks at it again, for a tick or for the end of a pause; NULL: not by itself.
-- `planned_at_ms`: the clock when that was decided; if it is later than now, the clock
-- had jumped. `waits`: a step looks as soon as an open tick's job has ended (1), or waits
-- for a retry (2), since something else is to happen then.
CREATE TABLE jobpool.schedules (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL,
  application text COLLATE "C",
  app_version text COLLATE "C",
  kind text COLLATE "C" NOT NULL,
  pool text COLLATE "C" NOT NULL,
  payload bytea NOT NULL,
  codec text COLLATE "C",
  tenant text COLLATE "C",
  priority bigint NOT NULL DEFAULT 0,
  rule text COLLATE "C" NOT NULL,
  options text COLLATE "C" NOT NULL,
  updated_at_ms bigint NOT NULL,
  since_ms bigint NOT NULL,
  last_at_ms bigint,
  last_end_ms bigint,
  next_at_ms bigint,
  planned_at_ms bigint NOT NULL,
  waits smallint NOT NULL DEFAULT 0 CHECK (waits IN (0, 1, 2)),
  missed bigint NOT NULL DEFAULT 0,
  retired_at_ms bigint,
  paused_at_ms bigint,
  paused_until_ms bigint,
  paused_by text COLLATE "C",
  note text COLLATE "C"
);

CREATE UNIQUE INDEX schedules_name ON jobpool.schedules (name);
CREATE INDEX schedules_next ON jobpool.schedules (next_at_ms, id)
WHERE next_at_ms IS NOT NULL;
CREATE INDEX schedules_planned ON jobpool.schedules (planned_at_ms)
WHERE next_at_ms IS NOT NULL;
CREATE INDEX schedules_waiting ON jobpool.schedules (id) WHERE waits > 0;

-- A tick is unique by its nominal time and written with its job; a buffered one waits
-- for others, and has none yet. `job_state`: how the job of one that is done has ended;
-- NULL: it was gone before that was seen.
CREATE TABLE jobpool.ticks (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  schedule bigint NOT NULL,
  nominal_at_ms bigint NOT NULL,
  stored_at_ms bigint NOT NULL,
  state text COLLATE "C" NOT NULL CHECK (
    state IN ('buffered', 'open', 'done', 'skipped')
  ),
  job_id bigint,
  job_state text COLLATE "C" CHECK (
    job_state IN ('succeeded', 'dead', 'quarantined', 'canceled')
  ),
  backfilled boolean NOT NULL DEFAULT false,
  ended_at_ms bigint,
  CHECK ((ended_at_ms IS NULL) = (state IN ('buffered', 'open')))
);

CREATE UNIQUE INDEX ticks_nominal ON jobpool.ticks (schedule, nominal_at_ms);
CREATE INDEX ticks_open ON jobpool.ticks (schedule, nominal_at_ms)
WHERE ended_at_ms IS NULL;
CREATE INDEX ticks_skipped ON jobpool.ticks (ended_at_ms) WHERE state = 'skipped';

-- Flows: edges join steps, so that a fan-in of 10,000 members is one edge.
CREATE TABLE jobpool.flows (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL,
  key text COLLATE "C",
  tenant text COLLATE "C",
  state text COLLATE "C" NOT NULL CHECK (
    state IN ('building', 'open', 'paused', 'succeeded', 'failed', 'canceled')
  ),
  failure text COLLATE "C" NOT NULL,
  generation bigint NOT NULL DEFAULT 1,
  created_at_ms bigint NOT NULL,
  finished_at_ms bigint
);

CREATE UNIQUE INDEX flows_key ON jobpool.flows (name, key) WHERE key IS NOT NULL;

CREATE TABLE jobpool.steps (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  flow bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL CHECK (
    state = 'closed' OR state = 'ready' OR state = 'done' OR state = 'skipped'
    OR state LIKE 'building:%'
  ),
  failed boolean NOT NULL DEFAULT false,
  until_ms bigint
);

CREATE INDEX steps_of_flow ON jobpool.steps (flow, id);

CREATE TABLE jobpool.edges (
  flow bigint NOT NULL,
  from_step bigint NOT NULL,
  to_step bigint NOT NULL,
  when_ended text COLLATE "C" NOT NULL CHECK (when_ended IN ('succeeded', 'failed', 'finished')),
  PRIMARY KEY (from_step, to_step)
);

CREATE INDEX edges_in ON jobpool.edges (to_step);

CREATE TABLE jobpool.flow_notes (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  flow bigint NOT NULL,
  step bigint NOT NULL
);

-- index: jobs_in_lane
DROP INDEX CONCURRENTLY IF EXISTS jobpool.jobs_in_lane;
CREATE INDEX CONCURRENTLY jobs_in_lane
ON jobpool.jobs (lane, run_at_ms, id)
WHERE state = 'runnable' AND lane IS NOT NULL;

-- index: jobs_of_step
DROP INDEX CONCURRENTLY IF EXISTS jobpool.jobs_of_step;
CREATE INDEX CONCURRENTLY jobs_of_step ON jobpool.jobs (step)
WHERE step IS NOT NULL AND finished_at_ms IS NULL;

-- index: jobs_waiting
DROP INDEX CONCURRENTLY IF EXISTS jobpool.jobs_waiting;
CREATE INDEX CONCURRENTLY jobs_waiting ON jobpool.jobs (step) WHERE state = 'waiting';

-- constraint: jobs_state_check
ALTER TABLE jobpool.jobs VALIDATE CONSTRAINT jobs_state_check;
