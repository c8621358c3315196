"""One way to read the log for all services that follow it."""
