"""Members of groups: heartbeats, consumers, producers, queue locks, assignment."""
