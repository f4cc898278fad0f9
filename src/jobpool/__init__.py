"""Run background jobs that may hang, leak, crash or lie, and never lose one."""

__version__ = "0.1.0"
