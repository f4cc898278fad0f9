"""Reports to Sentry: errors of jobs, deaths of their attempts, ticks of schedules.

May import: core, monitoring.sending. Start with `export`.
"""
