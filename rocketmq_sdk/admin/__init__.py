"""Administration: the same questions and orders as Apache's `mqadmin`, as typed
coroutines of one resource, `Admin`.
"""
