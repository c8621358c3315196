"""`EmbeddedBroker` for threads.

Written by `python -m tools.doors` from `rocketmq_sdk.broker_embedded.broker`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker as InnerEmbeddedBroker
from rocketmq_sdk.sync.life import InProcessBroker

if TYPE_CHECKING:
    import os
    import ssl
    from collections.abc import Callable
    from typing import Unpack

    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.broker_embedded.settings.options import BrokerOptions
    from rocketmq_sdk.broker_embedded.supervision import BrokerHealth
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.remoting.credentials import Credentials


class EmbeddedBroker(InProcessBroker):
    """A complete name server and broker in this process, in memory or in a directory.

        with EmbeddedBroker() as broker:
            with Producer("shop", namesrv=broker) as producer:
                ...

    `path` is the directory of a durable store, in the format of Apache's broker; None
    or ":memory:" keeps everything in memory, isolated from all other brokers and
    bounded by the setting `memory_limit` (None with the setting `store_path_root_dir`
    opens that directory). `listen` and `namesrv_listen` open TCP ports for the broker
    and the name server, as "host:port" or a port number on 127.0.0.1, 0 for any free
    one; without them only this process can reach the broker, by passing it as
    `namesrv=`. With `tls` both ports speak TLS too; the first byte of a connection
    decides, as in Apache's permissive mode. `metrics` is the address in the same form
    at which metrics and health are served over HTTP (extra `metrics`; without it as the
    setting `metrics_exporter_type` says). Single settings are given by their Apache
    names in either spelling, as in `flush_disk_type="SYNC_FLUSH"`; they change
    `config`, or what `config_file` says.

    `config_file` is a properties file such as Apache's `broker.conf`, and
    `namesrv_config_file` one for the name server. Settings are read from it (with
    `config`, which then holds what it says, it is not read), and those changed at run
    time are written to it. Without a file they are recorded beside the tables of a
    durable store, and hold after a restart unless that gives them another value than
    the start before did.

    Entering the block raises `ConfigurationError` for bad settings, `StoreLockedError`
    when another broker has the directory open, `StoreError` when it cannot be opened.
    Leaving it answers held requests, closes connections, writes and syncs everything,
    in at most 10 s (2 s when the block is left by an exception or a cancellation) and
    the time of the last sync. All of it is tried; the first error comes out at the end,
    unless the block was left by another one. A service of the broker that fails is
    started again after a pause, and `health()` tells of it; the block goes on.

    Any thread of the process may use it.
    """

    _inner: InnerEmbeddedBroker

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        listen: str | int | None = None,
        namesrv_listen: str | int | None = None,
        tls: ssl.SSLContext | None = None,
        metrics: str | int | None = None,
        config: BrokerConfig | None = None,
        config_file: str | os.PathLike[str] | None = None,
        namesrv_config_file: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        **settings: Unpack[BrokerOptions],
    ) -> None:
        self._inner = InnerEmbeddedBroker(
            path,
            listen=listen,
            namesrv_listen=namesrv_listen,
            tls=tls,
            metrics=metrics,
            config=config,
            config_file=config_file,
            namesrv_config_file=namesrv_config_file,
            clock=clock,
            **settings,
        )

    @property
    def address(self) -> str | None:
        """`host:port` of the broker on TCP; None without `listen`."""
        return self._inner.address

    @property
    def namesrv_address(self) -> str | None:
        """`host:port` of the name server on TCP; None without `namesrv_listen`."""
        return self._inner.namesrv_address

    @property
    def ha_address(self) -> str | None:
        """`host:port` for slaves; None without such a port (see `haListenPort`)."""
        return self._inner.ha_address

    @property
    def metrics_address(self) -> str | None:
        """`host:port` of metrics and health over HTTP; None if they are not served."""
        return self._inner.metrics_address

    @property
    def on_recovery(self) -> Callable[[int, int], None] | None:
        """Progress callback `(done, total)` in log bytes; called from a worker thread.

        It reports while a long start reads the log. Set it before the block is entered.
        """
        return self._inner.on_recovery

    @on_recovery.setter
    def on_recovery(self, value: Callable[[int, int], None] | None) -> None:
        self._inner.on_recovery = value

    @property
    def clock(self) -> Clock:
        """The broker's clock, which follows virtual time in tests.

        `deliver_at=broker.clock.now_ms() + 1_800_000` is right there too.
        """
        return self._inner.clock

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self._inner.config

    @property
    def credentials(self) -> Credentials | None:
        """The keys of a super user of the settings, for clients in this process.

        Those of `innerClientAuthenticationCredentials`, else of
        `initAuthenticationUser`; None without either.
        """
        return self._inner.credentials

    def health(self) -> BrokerHealth:
        """Whether it takes messages now, how its services are, and what is wrong.

        Raises `ClosedError` when the broker is not open, `WrongRunError` elsewhere than
        in the process that opened it.
        """
        return self._call_now(self._inner.health)
