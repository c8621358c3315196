"""The requests of a broker under test: recorded, and made to fail."""
