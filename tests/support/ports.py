"""Ports that nobody else takes, for what says its port before it starts, or starts
again on the same one.
"""

from __future__ import annotations

import random
import socket


def free_port(*neighbours: int) -> int:
    """A port that is free together with its neighbours (offsets), as Apache's broker
    also takes listenPort - 2 and + 1.

    It lies below those that systems give to outgoing connections, or one of them could
    take it before the broker does.
    """
    lots = random.SystemRandom()
    for _ in range(100):
        port = lots.randrange(12_000, 32_000)
        try:
            for offset in (0, *neighbours):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + offset))
        except OSError:
            continue
        return port
    raise RuntimeError("no free port with free neighbours")
