"""Taking messages in: sends, messages sent back, and replies to requests."""
