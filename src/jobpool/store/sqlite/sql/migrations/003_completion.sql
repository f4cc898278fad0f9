-- The token under which a handler's own transaction completed the job: whatever its
-- supervisor says of that attempt later changes nothing and is charged to nobody.
ALTER TABLE jobpool_jobs ADD COLUMN completed_token INTEGER
CHECK (completed_token | 0 IS completed_token);
