"""`scripts/bench`: jobpool beside its peers, in one run."""
