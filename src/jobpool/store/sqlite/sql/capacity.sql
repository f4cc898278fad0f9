-- The sizes of tables and indexes, for `jobpool doctor`.

-- name: indexes
-- Those of jobpool's tables.
SELECT name FROM sqlite_master
WHERE type = 'index' AND tbl_name GLOB 'jobpool_*'
ORDER BY name

-- name: has_dbstat
-- Whether this SQLite can tell the size of an index.
SELECT count(*) FROM pragma_module_list WHERE name = 'dbstat'

-- name: bytes_of
-- Of one table or index; reads all of its pages.
SELECT pgsize FROM dbstat WHERE name = :name AND aggregate = TRUE
