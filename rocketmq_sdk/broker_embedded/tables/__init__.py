"""What a broker keeps of topics, groups and offsets, each in a file of its own below
`config/`.
"""
