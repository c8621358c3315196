"""`rocketmq test-broker`: a test broker as a process, for tests in any language."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import attrs
import trio
from trio.testing import MockClock

from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.testing.broker import TestBroker
from rocketmq_sdk.transport.tcp import open_tcp_listeners


@attrs.frozen
class ProcessOptions:
    """How the process is to run; addresses are `host:port`, port 0 takes a free one."""

    listen: str = "127.0.0.1:0"
    namesrv_listen: str = "127.0.0.1:0"
    store: str | None = None
    control: str | None = None
    control_open: bool = False
    ready_file: str | None = None
    as_json: bool = False
    seed: str | None = None
    virtual_clock: bool = False
    emulate: str | None = None
    config: BrokerConfig | None = None


def run(options: ProcessOptions) -> None:
    """Serve until SIGINT or SIGTERM.

    With `virtual_clock` time passes as it does, and jumps when the control endpoint
    says so. Raises `ConfigurationError` for options that are not acceptable.
    """
    clock = MockClock(rate=1.0) if options.virtual_clock else None
    if options.control is not None:
        _control_address(options)
    trio.run(_serve, options, clock, clock=clock)


def _control_address(options: ProcessOptions) -> tuple[str, int]:
    try:
        from rocketmq_sdk.testing.control.endpoint import check_address
    except ImportError as error:
        raise ConfigurationError(
            f"the control endpoint needs h11 ({error}); install rocketmq-trio[control]"
        ) from error
    assert options.control is not None
    return check_address(options.control, open_to_all=options.control_open)


async def _serve(options: ProcessOptions, clock: MockClock | None) -> None:
    # A broker whose time jumps must not take a client that is quiet for a dead one.
    settings: dict[str, Any] = (
        {} if clock is None else {"channel_expired_timeout": 2**31 - 1, "patient": True}
    )
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with (
            TestBroker(
                options.store,
                listen=options.listen,
                namesrv_listen=options.namesrv_listen,
                config=options.config,
                emulate=options.emulate,
                **settings,
            ) as broker,
            open_quiet_nursery() as nursery,
        ):
            if options.seed is not None:
                await broker.seed(options.seed)
            control = await _serve_control(options, broker, clock, nursery)
            gc.freeze()  # what is here stays: no look for garbage passes over it again
            _tell(options, broker, control)
            async for number in signals:
                print(f"{signal.Signals(number).name}: closing", file=sys.stderr, flush=True)
                break
            broker.faults.clear()
            nursery.cancel_scope.cancel()


async def _serve_control(
    options: ProcessOptions, broker: TestBroker, clock: MockClock | None, nursery: trio.Nursery
) -> str | None:
    """Serve the control endpoint, if it is wanted; its address."""
    if options.control is None:
        return None
    from rocketmq_sdk.http_server import HttpServer
    from rocketmq_sdk.testing.control.endpoint import Endpoint

    host, port = _control_address(options)
    listeners, port = await open_tcp_listeners(host, port)
    endpoint = Endpoint(broker, None if clock is None else clock.jump)
    server = HttpServer(
        endpoint.answer, loopback_only=not options.control_open, name="control endpoint"
    )
    await nursery.start(server.serve, listeners)
    return f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '::') else host}:{port}"


def _tell(options: ProcessOptions, broker: TestBroker, control: str | None) -> None:
    """Say where everything is: on standard output, and in the file once it is whole."""
    told = json.dumps(
        {
            "namesrv": broker.namesrv_address,
            "broker": broker.address,
            "control": control,
            "pid": os.getpid(),
        }
    )
    where = f"ready: name server {broker.namesrv_address}, broker {broker.address}"
    print(told if options.as_json else where + (f", control {control}" if control else ""))
    sys.stdout.flush()
    if options.ready_file is None:
        return
    path = Path(options.ready_file)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(told)
    fresh.replace(path)
