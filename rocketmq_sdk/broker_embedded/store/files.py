"""The file systems that a store can be opened on."""

from rocketmq_sdk.broker_embedded.store.file_system import FileSystem, StoreFile
from rocketmq_sdk.broker_embedded.store.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.os_files import OsFileSystem

__all__ = ["FileSystem", "MemoryFileSystem", "OsFileSystem", "StoreFile"]
