-- Quotas: what is in force.

-- name: bump_limits
-- What is in force changes with this transaction. Random, so that the number of one that
-- was rolled back does not come again.
UPDATE jobpool.meta
SET value = value % 4503599627370496 + 1 + floor(random() * 1048576)::bigint
WHERE name = 'limits_version'
