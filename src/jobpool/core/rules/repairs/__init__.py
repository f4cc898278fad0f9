"""What to do if stored things do not fit: arguments, or numbers after a restore.

Pure. May import: core.jobs, core.rules.lifecycle, core.units. Start with `misfit`.
"""
