-- Settings of a connection, transactions, and facts about the file.

-- name: set_wal
-- Readers never wait for the writer.
PRAGMA journal_mode = WAL

-- name: set_synchronous
-- A commit is on disk before it is acknowledged; NORMAL may lose it in a power cut.
PRAGMA synchronous = FULL

-- name: set_temp_store
-- Temporary files must not fail on a full disk.
PRAGMA temp_store = MEMORY

-- name: set_mmap_size
-- A stray write to a mapped file would corrupt it.
PRAGMA mmap_size = 0

-- name: set_journal_size_limit
-- When a long reader has ended, the WAL shrinks to 64 MiB again.
PRAGMA journal_size_limit = 67108864

-- name: set_autocheckpoint
-- In pages of 4 KiB: a checkpoint syncs twice, so one every 16 MiB, not every 4.
PRAGMA wal_autocheckpoint = 4000

-- name: set_secure_delete
-- What is deleted is overwritten. Many builds do so by default, others leave it to be
-- read in the file: also old versions of a row, wherever it has moved within its page.
PRAGMA secure_delete = ON

-- name: set_query_only
-- Of a connection that only reads: a mistake cannot change anything.
PRAGMA query_only = ON

-- name: truncate_log
-- Copies the log's pages into the file, waits for readers of old ones, and empties it.
PRAGMA wal_checkpoint(TRUNCATE)

-- name: vacuum
-- Copies all tables: free room within pages, which may hold remains, is gone.
VACUUM

-- name: checkpoint
-- Copies the log's pages into the file; waits for no reader or writer.
PRAGMA wal_checkpoint(PASSIVE)

-- name: set_application_id
-- "jobp", for file(1); only in a file that holds nothing else.
PRAGMA application_id = 1785684592

-- name: journal_mode
-- The mode in effect.
PRAGMA journal_mode

-- name: synchronous
-- The level in effect: 2 is FULL.
PRAGMA synchronous

-- name: data_version
-- Changes when another connection commits.
PRAGMA data_version

-- name: main_file
-- The file of a connection, as BLOB: a caller's text_factory may be anything.
SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'

-- name: begin
-- IMMEDIATE: a transaction that reads first and writes later fails at once with
-- BUSY_SNAPSHOT, whatever the busy timeout.
BEGIN IMMEDIATE

-- name: begin_deferred
-- As the caller's own first statement would have begun.
BEGIN

-- name: commit
-- Nothing is permanent before this.
COMMIT

-- name: rollback
-- Nothing happened.
ROLLBACK

-- name: overwrite
-- Flips a value, since SQLite does not write unchanged pages.
INSERT INTO jobpool_meta (name, value) VALUES ('overwritten', 0)
ON CONFLICT (name) DO UPDATE SET value = (value = 0)

-- name: savepoint
-- One method within a transaction.
SAVEPOINT jobpool_step

-- name: release
-- The method has succeeded.
RELEASE jobpool_step

-- name: rollback_to
-- The method has failed: it has changed nothing.
ROLLBACK TO jobpool_step

-- name: schema_objects
-- Counts all tables and views, and those with jobpool's prefix.
SELECT count(*), coalesce(sum(substr(name, 1, 8) = 'jobpool_'), 0)
FROM sqlite_master

-- name: has_meta
-- Whether there is a table that only jobpool makes.
SELECT count(*)
FROM pragma_table_info('jobpool_meta')
WHERE name IN ('name', 'value')

-- name: schema_version
-- The migrations that have been run.
SELECT value FROM jobpool_meta WHERE name = 'schema_version'

-- name: set_schema_version
-- In the same transaction as the migration.
INSERT INTO jobpool_meta (name, value) VALUES ('schema_version', :version)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: migration_size
-- Jobs, and bytes of the file.
SELECT count(*), (SELECT page_count * page_size FROM pragma_page_count, pragma_page_size)
FROM jobpool_jobs

-- name: protect_schema
-- A migration that edits CHECKs has failed: nobody may edit them any more.
PRAGMA writable_schema = RESET

-- name: counter
-- One of jobpool_meta's counters.
SELECT value FROM jobpool_meta WHERE name = :name
