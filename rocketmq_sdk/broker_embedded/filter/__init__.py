"""Filters of SQL92 subscriptions: evaluation, and the Bloom filter by which it is done
once for many groups.
"""
