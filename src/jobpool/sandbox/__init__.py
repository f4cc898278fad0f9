"""The sandbox: forks, confines, measures and kills the child of an attempt.

May import: core, errors; never store. Start with `handles.child`.
"""
