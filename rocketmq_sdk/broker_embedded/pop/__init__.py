"""Consuming by pop: messages are lent for a time, acknowledged one by one, and revived
when they are not.
"""
