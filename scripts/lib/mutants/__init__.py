"""Mutation testing: small faults in the code, and whether a test sees each."""
