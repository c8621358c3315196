"""TLS from settings: modes, certificates of clients, files that change, the port for
slaves, and the broker's own calls.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

from rocketmq_sdk import EmbeddedBroker, Message, Producer
from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConfigurationError, ConnectError, RocketMQError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.source import TcpChannelSource
from rocketmq_sdk.transport import tls_files
from rocketmq_sdk.transport.tcp import open_tcp_stream
from support.access import ON, SignedPeer
from support.broker import Peer
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time
SIZES: dict[str, Any] = {"mapped_file_size_commit_log": 65536, "memory_limit": 64 << 20}


class Pki:
    """An authority, and the files of a server and of a client."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.directory = directory
        self.trust = str(directory / "authority.pem")
        self.authority.cert_pem.write_to_path(self.trust)
        self.issue("server", self.authority)
        self.issue("client", self.authority)

    def issue(self, name: str, authority: trustme.CA) -> None:
        made = authority.issue_cert("127.0.0.1", "localhost")
        made.private_key_pem.write_to_path(str(self.directory / f"{name}.key"))
        made.cert_chain_pems[0].write_to_path(str(self.directory / f"{name}.pem"))

    def path(self, name: str) -> str:
        return str(self.directory / name)

    @property
    def server(self) -> dict[str, Any]:
        return {
            "tls_server_cert_path": self.path("server.pem"),
            "tls_server_key_path": self.path("server.key"),
        }

    def context(self, *, certificate: bool = False) -> ssl.SSLContext:
        """Of a client that trusts the authority."""
        context = ssl.create_default_context(cafile=self.trust)
        if certificate:
            context.load_cert_chain(self.path("client.pem"), self.path("client.key"))
        return context


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


async def ask(address: str | None, tls: ssl.SSLContext | None) -> int:
    """The code of an answer over a new connection."""
    peer = Peer()
    async with open_quiet_nursery() as nursery:
        peer.channel = await TcpChannelSource(tls=tls).open_channel(address, peer.handle, nursery)
        answer = await peer.ask(Command(RequestCode.GET_BROKER_CONFIG), 5)
        await peer.channel.aclose()
    return answer.code


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
async def test_what_each_mode_takes(pki: Pki, mode: str) -> None:
    async with EmbeddedBroker(
        listen=0, namesrv_listen=0, tls_server_mode=mode, **pki.server
    ) as broker:
        assert broker.address is not None
        host, port = split_address(broker.address)
        for address in (broker.address, broker.namesrv_address, f"{host}:{port - 2}"):
            for tls, taken in (
                (pki.context(), mode != "disabled"),
                (None, mode != "enforcing"),
            ):
                if taken:
                    assert await ask(address, tls) in (0, 3)
                else:
                    with pytest.raises(RocketMQError):
                        await ask(address, tls)


async def test_plain_bytes_at_an_enforcing_port_get_nothing(pki: Pki) -> None:
    """Not a byte of an answer, and the connection ends."""
    async with EmbeddedBroker(listen=0, tls_server_mode="enforcing", **pki.server) as broker:
        assert broker.address is not None
        for first in (b"\x00\x00\x00\x10", b"GET / HTTP/1.1\r\n\r\n", b"\x15", b"\x16\x03\x01\xff"):
            stream = await open_tcp_stream(*split_address(broker.address))
            async with stream:
                await stream.send_all(first)
                if first[0] == 0x16:
                    await stream.send_eof()
                with trio.fail_after(60):
                    got = bytearray()
                    try:
                        while piece := await stream.receive_some():
                            got += piece
                    except trio.BrokenResourceError:
                        pass
            assert first[0] == 0x16 or not got
            assert b"remark" not in got
        assert await ask(broker.address, pki.context()) == 0


@pytest.mark.parametrize("asked", ["none", "optional", "require"])
async def test_certificates_of_clients(pki: Pki, asked: str) -> None:
    async with EmbeddedBroker(
        listen=0,
        tls_server_need_client_auth=asked,
        tls_server_trust_cert_path=pki.trust,
        **pki.server,
    ) as broker:
        assert await ask(broker.address, pki.context(certificate=True)) == 0
        if asked == "require":
            with pytest.raises(RocketMQError):
                await ask(broker.address, pki.context())
        else:
            assert await ask(broker.address, pki.context()) == 0
        pki.issue("client", trustme.CA())
        if asked != "none":
            with pytest.raises(RocketMQError):
                await ask(broker.address, pki.context(certificate=True))


async def test_certificates_that_change_are_used_without_a_failed_send(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_files, "WATCH_INTERVAL", 0.02)
    async with EmbeddedBroker(
        listen=0, namesrv_listen=0, tls_server_mode="enforcing", **pki.server
    ) as broker:
        old, sent = pki.context(), 0
        async with (
            Producer("PG", namesrv=broker.namesrv_address, tls=old) as producer,
            trio.open_nursery() as nursery,
        ):

            async def send_on() -> None:
                nonlocal sent
                while True:
                    await producer.send(Message("orders", b"x"))
                    sent += 1

            nursery.start_soon(send_on)
            await until(lambda: sent > 5)
            (live, *_) = broker._secured._live
            before = live.context
            # A certificate without its key is not used, and said to be wrong.
            other = trustme.CA()
            made = other.issue_cert("127.0.0.1")
            made.cert_chain_pems[0].write_to_path(pki.path("server.pem"))
            await until(lambda: live.problem is not None)
            assert live.context is before
            assert "server.pem" in str(broker.health())
            assert await ask(broker.address, old) == 0
            made.private_key_pem.write_to_path(pki.path("server.key"))
            await until(lambda: live.context is not before and live.problem is None)
            with pytest.raises(ConnectError):
                await ask(broker.address, old)
            new = ssl.create_default_context()
            other.configure_trust(new)
            assert await ask(broker.address, new) == 0
            now = sent
            await until(lambda: sent > now + 5)
            nursery.cancel_scope.cancel()


async def test_a_slave_and_registration_over_tls_alone(pki: Pki) -> None:
    """Name server, requests and the log itself; with certificates on both sides."""
    tls: dict[str, Any] = {
        **pki.server,
        "tls_server_mode": "enforcing",
        "tls_server_need_client_auth": "require",
        "tls_server_trust_cert_path": pki.trust,
        "use_tls": True,
        "tls_client_auth_server": True,
        "tls_client_trust_cert_path": pki.trust,
        "tls_client_cert_path": pki.path("client.pem"),
        "tls_client_key_path": pki.path("client.key"),
        **SIZES,
    }
    async with (
        EmbeddedBroker(
            listen=0,
            namesrv_listen=0,
            broker_role="SYNC_MASTER",
            total_replicas=2,
            in_sync_replicas=2,
            slave_timeout=30_000,
            **tls,
        ) as master,
        EmbeddedBroker(
            listen=0,
            broker_role="SLAVE",
            broker_id=1,
            namesrv_addr=master.namesrv_address,
            **tls,
        ) as slave,
        Producer(
            "PG", namesrv=master.namesrv_address, tls=pki.context(certificate=True)
        ) as producer,
    ):
        follower = slave.parts.replication.slave
        assert follower is not None
        await until(lambda: follower.state is SlaveState.FOLLOWING)
        result = await producer.send(Message("orders", b"one"))
        assert slave.store.max_offset("orders", result.queue.queue_id) == 1
        # Who is no slave gets nothing from that port.
        assert master.ha_address is not None
        stream = await open_tcp_stream(*split_address(master.ha_address))
        async with stream:
            await stream.send_all(bytes(8))
            with trio.fail_after(60):
                try:
                    assert await stream.receive_some() == b""
                except trio.BrokenResourceError:
                    pass


async def test_plain_slaves_are_served_in_permissive_mode(pki: Pki) -> None:
    async with (
        EmbeddedBroker(
            listen=0,
            namesrv_listen=0,
            broker_role="SYNC_MASTER",
            total_replicas=2,
            **pki.server,
            **SIZES,
        ) as master,
        EmbeddedBroker(
            listen=0,
            broker_role="SLAVE",
            broker_id=1,
            namesrv_addr=master.namesrv_address,
            **SIZES,
        ) as slave,
    ):
        follower = slave.parts.replication.slave
        assert follower is not None
        await until(lambda: follower.state is SlaveState.FOLLOWING)


async def test_users_over_tls(pki: Pki) -> None:
    async with EmbeddedBroker(listen=0, **ON, **pki.server) as broker:
        peer = Peer()
        async with trio.open_nursery() as nursery:
            source = TcpChannelSource(tls=pki.context())
            peer.channel = await source.open_channel(broker.address, peer.handle, nursery)
            assert (await SignedPeer(peer).ask(RequestCode.GET_BROKER_CONFIG)).code == 0
            await peer.channel.aclose()


def test_settings_in_a_file_of_their_own(pki: Pki) -> None:
    file = pki.directory / "tls.properties"
    file.write_text(
        f"tls.server.certPath={pki.path('server.pem')}\n"
        f"tls.server.keyPath={pki.path('server.key')}\ntls.server.mode=disabled\n"
    )
    broker = EmbeddedBroker(tls_config_file=str(file), tls_server_mode="enforcing")
    assert broker._secured.server is not None


def test_a_key_with_a_password(pki: Pki) -> None:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    key = serialization.load_pem_private_key(
        (pki.directory / "server.key").read_bytes(), password=None
    )
    (pki.directory / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"the password"),
        )
    )
    broker = EmbeddedBroker(tls_server_key_password="the password", **pki.server)
    assert "the password" not in repr(broker.config)
    assert "the password" not in str(broker.config.export())
    for wrong in ({}, {"tls_server_key_password": "another"}):
        with pytest.raises(ConfigurationError, match=r"server\.key cannot be used"):
            EmbeddedBroker(**wrong, **pki.server)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls_server_mode": "enforcing"}, "tls.server.certPath"),
        ({"tls_server_cert_path": "server.pem"}, "certificate and its key"),
        (
            {"tls_server_cert_path": "nowhere.pem", "tls_server_key_path": "nowhere.key"},
            "nowhere.pem",
        ),
        ({"tls_config_file": "nowhere.properties"}, "nowhere.properties"),
        ({"use_tls": True, "tls_client_auth_server": True, "tls_client_trust_cert_path": "x"}, "x"),
    ],
)
def test_files_that_cannot_be_used(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        EmbeddedBroker(**settings)


def test_clients_can_only_be_asked_where_their_authority_is_known(pki: Pki) -> None:
    with pytest.raises(ConfigurationError, match="trustCertPath"):
        EmbeddedBroker(tls_server_need_client_auth="require", **pki.server)
