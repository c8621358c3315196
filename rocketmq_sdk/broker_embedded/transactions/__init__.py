"""Transactions: half messages, their ends, and asking producers whose answer is
missing.
"""
