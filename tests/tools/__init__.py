"""Programs run by hand, in the directory `tests`: `python -m tools.NAME`."""
