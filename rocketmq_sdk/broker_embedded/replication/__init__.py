"""Masters and slaves: copying the log, what lies beside it, and what a role changes for
clients.
"""
