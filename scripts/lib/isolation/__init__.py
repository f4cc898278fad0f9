"""`scripts/compare-isolation`: the same hostile jobs under jobpool and its peers."""
