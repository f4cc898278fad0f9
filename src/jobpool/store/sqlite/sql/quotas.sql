-- Quotas: what is in force.

-- name: bump_limits
-- What is in force changes with this transaction. Random, so that the number of one that
-- was rolled back does not come again.
UPDATE jobpool_meta
SET value = CAST(value AS INTEGER) % 4503599627370496 + 1 + abs(random() % 1048576)
WHERE name = 'limits_version'
