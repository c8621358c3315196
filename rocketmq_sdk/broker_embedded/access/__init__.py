"""Access control: users, policies, and the guard in front of every request."""
