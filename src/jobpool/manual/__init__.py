"""The manual: pages in Markdown, shipped with the package. May import errors only.

Entry point: `pages`. What reads it: `jobpool manual`, and `scripts/site`.
"""
