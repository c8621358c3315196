"""Settings of a broker under Apache's names: their values, their texts, and files of
them.
"""
