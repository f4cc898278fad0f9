"""Command lines for what is in tests/: simulation, planted bugs, crash points."""
