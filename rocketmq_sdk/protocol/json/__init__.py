"""JSON as Apache writes it: the library behind it, the dialect, reading, references."""
