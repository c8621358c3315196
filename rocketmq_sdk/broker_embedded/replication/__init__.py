"""Masters and slaves: the copy of the log and of the tables, and their roles."""
