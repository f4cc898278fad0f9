"""The manual: pages in Markdown, shipped with the package.

May import: nothing of ours. Start with `pages`, which `jobpool manual` and
`scripts/site` read.
"""
