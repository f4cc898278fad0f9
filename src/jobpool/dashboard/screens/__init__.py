"""One file a screen: reads the store, makes a view of that, shows it in a template.

May import: core, dashboard.asked, dashboard.live, dashboard.plots, dashboard.reading,
dashboard.rendering, manual, monitoring, operations, store, words. Start with `home`.
"""
