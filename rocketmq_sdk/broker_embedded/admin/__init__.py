"""Requests of administrators (`AdminBrokerProcessor`), a module for each subject."""
