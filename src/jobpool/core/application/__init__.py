"""The application as the engine knows it: its handlers, without their code.

May import: core.jobs, core.rules. Start with `handler_spec`.
"""
