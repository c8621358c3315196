"""Replication of the log from a master to its slaves, in the classic protocol of Apache RocketMQ (`DefaultHAService`)."""
