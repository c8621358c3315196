"""A control endpoint over HTTP: test brokers for tests in any language."""
