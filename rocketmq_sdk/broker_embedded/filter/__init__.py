"""Filters of subscriptions: tags, SQL92 expressions, and Bloom filters for groups."""
