"""Transactions: half messages, their ends, and checks by asking producers."""
