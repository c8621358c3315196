"""Timers: the wheel, its log and checkpoint in Apache's bytes, and what happens to a
message on its way through them.
"""
