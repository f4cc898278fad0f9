-- What runs on a caller's own connection, beside the producers' and complete_job.

-- name: join
-- Within the caller's transaction; the driver begins one if it must. With the clock.
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
-- Whether this is the database that granted a lease, and it is valid still.
SELECT EXISTS (
  SELECT 1 FROM jobpool.jobs
  WHERE id = %(id)s AND (token = %(token)s OR completed_token = %(token)s)
)

-- name: fail_transaction
-- Makes the transaction unfit to be committed, whatever its owner does; the text is
-- what the server's log will say.
SELECT CAST('this attempt of a job was superseded' AS integer)
