"""What somebody looks at first: what needs them, what runs, what is wrong.

May import: core, dashboard.asked, dashboard.live, dashboard.plots, dashboard.reading,
dashboard.rendering, manual, monitoring, operations, store, words. Start with
`overview`.
"""
