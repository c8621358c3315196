"""Tables of topics, groups and offsets, each in its own file below `config/`."""
