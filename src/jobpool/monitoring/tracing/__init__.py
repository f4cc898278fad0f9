"""Spans of attempts, sent to whatever speaks OpenTelemetry's protocol.

May import: core, monitoring.sending. Start with `export`.
"""
