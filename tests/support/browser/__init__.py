"""A real browser for tests and pictures, and the judges of what it shows."""
