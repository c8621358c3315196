"""Putting messages into the log, the queues and the index, on a master and a slave."""
