"""Timers: wheel, log and checkpoint in Apache's bytes, and delivery when due."""
