"""Fronts of what lies in tests/: simulation, planted bugs, crash points."""
