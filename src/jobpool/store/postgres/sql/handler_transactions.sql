-- Statements on a caller's own connection, besides enqueueing and complete_job.

-- name: join
-- A savepoint in the caller's transaction, which the driver begins if necessary, and the
-- clock.
SAVEPOINT jobpool_step;
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: join_alone
-- On a connection that commits by itself and has no transaction open.
BEGIN;
SAVEPOINT jobpool_step;
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: begin_plain
-- On a caller's connection that commits by itself.
BEGIN

-- name: is_attempt
-- Whether this database granted a lease that is still valid.
SELECT EXISTS (
  SELECT 1 FROM jobpool.jobs
  WHERE id = %(id)s AND (token = %(token)s OR completed_token = %(token)s)
)

-- name: fail_transaction
-- Fails the transaction, so that it cannot be committed whatever its owner does; the
-- text appears in the server's log.
SELECT CAST('this attempt of a job was superseded' AS integer)
