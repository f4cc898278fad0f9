-- A queue that was moved refuses all writes, with an error that names the new URL.
-- ADDRESS is replaced by that URL, quoted for a text literal.

CREATE TRIGGER jobpool_moved_enqueue BEFORE INSERT ON jobpool_jobs
BEGIN
  SELECT RAISE(ABORT, 'jobpool: this queue was moved to ADDRESS');
END

CREATE TRIGGER jobpool_moved_change BEFORE UPDATE ON jobpool_jobs
BEGIN
  SELECT RAISE(ABORT, 'jobpool: this queue was moved to ADDRESS');
END

CREATE TRIGGER jobpool_moved_prune BEFORE DELETE ON jobpool_jobs
BEGIN
  SELECT RAISE(ABORT, 'jobpool: this queue was moved to ADDRESS');
END

CREATE TRIGGER jobpool_moved_run BEFORE INSERT ON jobpool_runs
BEGIN
  SELECT RAISE(ABORT, 'jobpool: this queue was moved to ADDRESS');
END

CREATE TRIGGER jobpool_moved_pause BEFORE INSERT ON jobpool_pauses
BEGIN
  SELECT RAISE(ABORT, 'jobpool: this queue was moved to ADDRESS');
END

CREATE TRIGGER jobpool_moved_resume BEFORE DELETE ON jobpool_pauses
BEGIN
  SELECT RAISE(ABORT, 'jobpool: this queue was moved to ADDRESS');
END

CREATE TRIGGER jobpool_moved_flow BEFORE INSERT ON jobpool_flows
BEGIN
  SELECT RAISE(ABORT, 'jobpool: this queue was moved to ADDRESS');
END

CREATE TRIGGER jobpool_moved_flow_change BEFORE UPDATE ON jobpool_flows
BEGIN
  SELECT RAISE(ABORT, 'jobpool: this queue was moved to ADDRESS');
END
