"""Telling name servers which topics this broker has."""
