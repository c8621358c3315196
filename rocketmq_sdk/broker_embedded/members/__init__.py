"""Members of groups: heartbeats, who consumes and produces, locks on queues, and which
queues a member reads.
"""
