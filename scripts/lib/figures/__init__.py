"""`scripts/figures`: what jobpool promises in figures, measured on this machine."""
