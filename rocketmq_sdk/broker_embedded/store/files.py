"""The file system as the store sees it."""


class FileSystem:
    """Base."""


class MemoryFileSystem(FileSystem):
    """Files in memory, bounded in bytes."""

    def __init__(self, limit_bytes: int = 256 * 1024 * 1024) -> None:
        self.limit_bytes = limit_bytes


class OsFileSystem(FileSystem):
    """Files under one directory."""

    def __init__(self, root: str) -> None:
        self.root = root
