"""Consuming by pop: invisible durations, acks for single messages, and revival."""
