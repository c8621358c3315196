"""Metrics and health of a broker, served over HTTP."""
