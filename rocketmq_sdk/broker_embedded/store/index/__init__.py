"""The key index: which messages have a key, in Apache's files."""
