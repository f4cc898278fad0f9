-- Least privileges for a jobpool queue in PostgreSQL: five group roles without login.
--
--   psql "$ADMIN_URL" -f conf/postgres/roles.sql                   schema jobpool
--   psql "$ADMIN_URL" -v schema=shop -f conf/postgres/roles.sql    ?schema=shop
--
-- Run it after `jobpool migrate`, and again after each later one: a second run changes
-- only what is new. Run it as a superuser, or as the database's owner with CREATEROLE,
-- who then becomes a member of jobpool_owner.
--
-- Then let your own login roles inherit from them:
--
--   CREATE ROLE shop_worker LOGIN PASSWORD '…' IN ROLE jobpool_supervisor;
--   CREATE ROLE shop_web    LOGIN PASSWORD '…' IN ROLE jobpool_producer;
--   CREATE ROLE shop_eyes   LOGIN PASSWORD '…' IN ROLE jobpool_viewer;

-- Stop at the first error; what was done until then is undone.
\set ON_ERROR_STOP on
\if :{?schema}
\else
\set schema jobpool
\endif

BEGIN;

-- The roles belong to the whole server, so another database may have made them.
SELECT format('CREATE ROLE %I NOLOGIN', name)
FROM unnest(ARRAY[
  'jobpool_owner',       -- owns the schema and its tables; migrates; runs nothing
  'jobpool_supervisor',  -- the command `jobpool`; handlers that call complete()
  'jobpool_producer',    -- applications: enqueue, read, wait, cancel
  'jobpool_replacer',    -- a producer that may replace, postpone and follow jobs as well
  'jobpool_viewer'       -- people and dashboards: read only
]) AS wanted (name)
WHERE NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = name)
\gexec

-- A superuser may hand over to any role; others only to a role that they are a member of.
SELECT 'GRANT jobpool_owner TO CURRENT_USER'
WHERE NOT pg_has_role('jobpool_owner', 'USAGE')
\gexec

-- -- The owner ----------------------------------------------------------------------

-- The schema, in case `jobpool migrate` has not been run yet.
CREATE SCHEMA IF NOT EXISTS :"schema";

-- The role that migrated owns what it created: hand it over. A sequence that belongs to
-- a column goes with its table.
ALTER SCHEMA :"schema" OWNER TO jobpool_owner;
SELECT format('ALTER TABLE %s OWNER TO jobpool_owner', c.oid::regclass)
FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace(quote_ident(:'schema'))
  AND c.relkind IN ('r', 'v', 'S')
  AND c.relowner <> 'jobpool_owner'::regrole
  AND NOT EXISTS (
    SELECT 1
    FROM pg_depend AS d
    WHERE d.classid = 'pg_class'::regclass
      AND d.objid = c.oid
      AND d.deptype IN ('a', 'i')
      AND c.relkind = 'S'
  )
\gexec
SELECT format('ALTER ROUTINE %s OWNER TO jobpool_owner', p.oid::regprocedure)
FROM pg_proc AS p
WHERE p.pronamespace = to_regnamespace(quote_ident(:'schema'))
  AND p.proowner <> 'jobpool_owner'::regrole
  AND NOT p.prosecdef  -- jobpool has none: it is not to run with the owner's rights
\gexec

-- -- All other roles ----------------------------------------------------------------

-- To name what is in the schema; not to create anything there.
GRANT USAGE ON SCHEMA :"schema"
TO jobpool_supervisor, jobpool_producer, jobpool_viewer;

-- To read every table and view, arguments and results included: secrets there need a codec.
GRANT SELECT ON ALL TABLES IN SCHEMA :"schema"
TO jobpool_supervisor, jobpool_viewer;

-- -- Supervisors --------------------------------------------------------------------

-- Lease, settle, renew, take back, prune. No TRUNCATE, no triggers, no DDL.
GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA :"schema" TO jobpool_supervisor;

-- The numbers of jobs, tokens and attempts; USAGE allows nextval, but not setval. SELECT:
-- a renewal compares the last token with the highest that its run has seen.
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA :"schema" TO jobpool_supervisor;

-- -- What later migrations create ---------------------------------------------------

-- Tables that jobpool_owner creates in this schema; for those that another role creates,
-- run this file again.
ALTER DEFAULT PRIVILEGES FOR ROLE jobpool_owner IN SCHEMA :"schema"
GRANT SELECT ON TABLES TO jobpool_supervisor, jobpool_viewer;
ALTER DEFAULT PRIVILEGES FOR ROLE jobpool_owner IN SCHEMA :"schema"
GRANT INSERT, UPDATE, DELETE ON TABLES TO jobpool_supervisor;
ALTER DEFAULT PRIVILEGES FOR ROLE jobpool_owner IN SCHEMA :"schema"
GRANT USAGE, SELECT ON SEQUENCES TO jobpool_supervisor;

-- -- Producers ----------------------------------------------------------------------

-- What follows names tables: without them there is nothing to grant yet.
SELECT to_regclass(format('%I.jobs', :'schema')) IS NOT NULL AS has_tables
\gset
\if :has_tables

-- To read: the queue itself, what supervisors have published, the schema's version, and
-- the views that `jobpool status` and `jobpool list` use.
GRANT SELECT ON
  :"schema".jobs, :"schema".job_records, :"schema".attempts,
  :"schema".kinds, :"schema".newest_kinds, :"schema".meta,
  :"schema".runs, :"schema".pauses, :"schema".suspects, :"schema".breakers,
  :"schema".misfits, :"schema".running, :"schema".outputs, :"schema".sketches,
  :"schema".quotas, :"schema".tenants, :"schema".lanes, :"schema".buckets,
  :"schema".permits, :"schema".debounced, :"schema".debounced_records,
  :"schema".flows, :"schema".steps, :"schema".edges,
  :"schema".incidents, :"schema".reports, :"schema".waits,
  :"schema".stats, :"schema".figures, :"schema".oldest_runnable,
  :"schema".scaling
TO jobpool_producer;

-- To enqueue: the columns of a new job, but not its lease or result.
GRANT INSERT (
  id, kind, pool, state, priority, key, unique_text, tenant,
  max_attempts, timeout_s, memory_bytes, created_at_ms, run_at_ms, expires_at_ms,
  codec, lane, quota_values, trace, payload, step, generation, added_by
) ON :"schema".jobs TO jobpool_producer;

-- To make flows, and to cancel them. Whoever ends a member leaves a note of that.
-- Supervisors do what follows from it.
GRANT INSERT ON :"schema".flows, :"schema".steps TO jobpool_producer;
GRANT UPDATE (state, ending, builder, touched_at_ms) ON :"schema".flows
TO jobpool_producer;
GRANT INSERT ON :"schema".edges, :"schema".flow_notes TO jobpool_producer;

-- Whoever makes a job of a lane runnable leaves a note of that.
GRANT INSERT ON :"schema".lane_notes TO jobpool_producer;

-- Its number.
GRANT USAGE ON SEQUENCE :"schema".job_ids TO jobpool_producer;

-- To write down in the audit trail what it does, in the same transaction; it reads and
-- changes nothing there.
GRANT INSERT (at_ms, who, role, origin, action, target, jobs, changed, note), SELECT (id)
ON :"schema".audit TO jobpool_producer;

-- To make, change, pause, run and remove schedules. Supervisors enqueue what falls due.
GRANT SELECT, INSERT, UPDATE, DELETE ON :"schema".schedules, :"schema".ticks
TO jobpool_producer;
GRANT UPDATE (tick) ON :"schema".jobs TO jobpool_producer;

-- To cancel. Leave this out if applications must not. The same columns also let them
-- declare a job dead, or have one that has ended run again, without a row in the trail.
GRANT UPDATE (state, finished_at_ms, reason, cancel_requested)
ON :"schema".jobs TO jobpool_producer;

-- To end a job that another one follows: the text goes to that one.
GRANT UPDATE (unique_text, run_at_ms) ON :"schema".jobs TO jobpool_producer;
GRANT INSERT, UPDATE ON :"schema".debounced TO jobpool_producer;

-- -- Producers that replace ---------------------------------------------------------

-- on_conflict and unique_until give a job that has not begun other arguments and options.
-- The same columns let them change any job, without a row in the trail.
GRANT jobpool_producer TO jobpool_replacer;
GRANT UPDATE (
  pool, priority, tenant, max_attempts, timeout_s, memory_bytes, expires_at_ms, codec,
  lane, quota_values, trace, payload
) ON :"schema".jobs TO jobpool_replacer;
GRANT DELETE ON :"schema".misfits TO jobpool_replacer;

\endif

COMMIT;

-- So that `jobpool doctor` and the log can name other roles' long transactions, which
-- keep dead rows from being removed. This is last because not every managed server lets
-- its administrator grant it; everything else is done by now.
GRANT pg_read_all_stats TO jobpool_supervisor, jobpool_viewer;
