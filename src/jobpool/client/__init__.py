"""What applications call: registration, enqueue, results, the running handler."""
