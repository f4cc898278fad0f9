"""What all open pages share: read once for everybody, as often as is worth it.

May import: core, dashboard.reading, monitoring, store. Start with `live`.
"""
