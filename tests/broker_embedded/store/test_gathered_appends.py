"""Appends that wait for one write (`begin`, `end`) while that write fails."""

from rocketmq_sdk.broker_embedded.store.faulty_files import FaultyFileSystem
from support.store import bodies, message, open_store, small_config

CONFIG = small_config(mapped_file_size_commit_log=8 * 1024 * 1024, mapped_file_size_consume_queue=20_000)
PIECE = b"x" * 8000


async def test_a_message_refused_because_a_write_failed_is_not_in_the_log() -> None:
    files = FaultyFileSystem()
    async with open_store(files, CONFIG) as store:
        assert store.put(message(body=b"first")).ok
        store.begin()
        files.fail_writes.add(files.writes + 1)
        taken = 0
        while store.put(message(body=b"%d " % taken + PIECE)).ok:
            taken += 1
            assert taken < 1000
        assert store.put(message(body=b"last")).ok
        store.end()
        expected = [b"first", *(b"%d " % number + PIECE for number in range(taken)), b"last"]
        assert bodies(store) == expected
    files.remove_tree("consumequeue")
    files.write("abort", b"")
    files.remove("checkpoint")
    async with open_store(files, CONFIG) as store:
        assert bodies(store) == expected
