"""Benchmarks: several rounds, medians, and ratios to a baseline of the same run.

    python -m benchmarks                     # everything that needs no Java
    python -m benchmarks append loopback     # some of it
    python -m benchmarks --apache            # Apache's client and broker beside ours
    python -m benchmarks --json out.json
    ROCKETMQ_SDK_JSON=stdlib python -m benchmarks   # without orjson

Absolute numbers say little (machines differ and drift); the ratio column is what to
read.
"""
