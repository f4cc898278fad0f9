"""`jobpool demo`: honest work on real files beside handlers that misbehave for real."""
