"""Reading by pull: pulls that are answered or held, offsets of broadcasting groups, and
look-ups of messages.
"""
