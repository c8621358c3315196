"""Reading messages out of the store."""
