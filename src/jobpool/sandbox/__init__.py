"""The sandbox: forks, confines, measures and kills the child of an attempt.

May import: core. Start with `handles.child`.
"""
