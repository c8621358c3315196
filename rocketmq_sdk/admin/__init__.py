"""Administration: what Apache's `mqadmin` does, as coroutines of `Admin`."""
