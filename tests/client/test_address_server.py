"""Name servers by way of an address server, and namespaces in addresses."""

from __future__ import annotations

import functools
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client import address_server
from rocketmq_sdk.client.address_server import AddressServer, instance_namespace, is_address_server
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.errors import ConfigurationError, ConnectError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Web:
    """An HTTP server on a free port that answers GET with `text`."""

    def __init__(self) -> None:
        self.text = ""
        self.paths: list[str] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.paths.append(self.path)
                self.send_response(200 if web.text else 404)
                self.end_headers()
                self.wfile.write(web.text.encode())

            def log_message(self, *_arguments: object) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/rocketmq/nsaddr"


@pytest.fixture
def web() -> Iterator[Web]:
    found = Web()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.mark.real_time
async def test_a_client_finds_its_name_servers(web: Web) -> None:
    async with EmbeddedBroker(listen=0, namesrv_listen=0) as broker:
        web.text = f"{broker.namesrv_address};\n"
        async with Producer("pg", namesrv=web.url, unit_name="u1") as producer:
            await producer.send(Message("orders", b"x"))
            assert producer.client.name_server_text == broker.namesrv_address
        assert web.paths == ["/rocketmq/nsaddr-u1?nofix=1"]


@pytest.mark.real_time
async def test_without_an_answer_the_error_names_the_address_server(web: Web) -> None:
    async with Client(web.url) as client:
        with pytest.raises(ConnectError, match="nsaddr names none: HTTP Error 404"):
            await client.route("orders")


@pytest.mark.real_time
async def test_another_list_replaces_the_first(web: Web) -> None:
    lists: list[tuple[str, ...]] = []
    server = AddressServer(web.url, None, lists.append, interval=0.01)
    web.text = "10.0.0.1:9876"
    await server.refresh()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        web.text = "10.0.0.2:9876;10.0.0.1:9876"
        with trio.fail_after(60):
            while len(lists) < 2:
                await trio.sleep(0.01)
        web.text, asked = "", len(web.paths)
        await until(lambda: len(web.paths) >= asked + 3)  # the first may have the list
        nursery.cancel_scope.cancel()
    assert lists == [("10.0.0.1:9876",), ("10.0.0.2:9876", "10.0.0.1:9876")]
    assert server.addresses == lists[-1]


def page(text: str, status: str = "200 OK", *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(text)}", "Connection: close", *more]
    return "\r\n".join([*lines, "", text]).encode()


GOOD = page("10.0.0.9:9876")
BAD_ANSWERS: dict[bytes, str] = {
    page("", "500 Oops"): "HTTP Error 500",
    page(" \n"): "the answer is empty",
    page("<html>log in: first</html>"): "and not addresses as host:port",
    page("10.0.0.1:9876;name server:1"): "and not addresses as host:port",
    page("10.0.0.1:99999"): "and not addresses as host:port",
    page("10.0.0.1:9876;" * 5000): "longer than 65536 bytes",
    b"\x00\x00\x00\x10no HTTP at all\n": "it does not speak HTTP",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n10.0": "it does not speak HTTP",
    b"": "closed connection",
    b"nothing": "it has not answered within 0.2 s",
}


@pytest.mark.real_time
async def test_what_is_no_list_of_addresses_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    answer = GOOD

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            asked.append((await stream.receive_some(4096)).split()[1].decode())
            if answer == b"nothing":
                await trio.sleep_forever()
            await stream.send_all(GOOD if asked[-1] == "/moved" else answer)

    lists: list[tuple[str, ...]] = []
    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(
            functools.partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        )
        port = listener.socket.getsockname()[1]
        server = AddressServer(f"http://127.0.0.1:{port}/list", None, lists.append)
        await server.refresh()
        for bad, problem in BAD_ANSWERS.items():
            answer = bad
            with monkeypatch.context() as patch:
                patch.setattr(address_server, "FETCH_TIMEOUT", 0.2 if bad == b"nothing" else 60)
                await server.refresh()
            assert problem in server.problem
            assert problem in str(server.unknown())
        for good in (
            page("10.0.0.9:9876\r\nand a remark\r\n"),
            page("", "302 Found", f"Location: http://127.0.0.1:{port}/moved"),
        ):
            answer = good
            await server.refresh()
            assert not server.problem
        nursery.cancel_scope.cancel()
    assert lists == [("10.0.0.9:9876",)]
    assert asked[-1] == "/moved"


@pytest.mark.parametrize(
    "url", ["http://h:99999/list", "http:///list", "http://[::1/l", "http://h:x/l"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="no URL of an address server"):
        Client(url)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("http://jmenv.tbsite.net:8080/rocketmq/nsaddr", True),
        ("https://a/b", True),
        ("http://10.0.0.1:9876", False),
        ("http://10.0.0.1:9876/", False),
        ("10.0.0.1:9876;10.0.0.2:9876", False),
    ],
)
def test_a_url_with_a_path_is_an_address_server(text: str, is_one: bool) -> None:
    assert is_address_server(text) == is_one


@pytest.mark.parametrize(
    ("text", "namespace"),
    [
        ("http://MQ_INST_123_abc.mq-internet.example.com:80", "MQ_INST_123_abc"),
        ("MQ_INST_123_abc.mq-internet.example.com:80", "MQ_INST_123_abc"),
        ("http://mq.example.com:80", ""),
        ("10.0.0.1:9876", ""),
    ],
)
def test_an_address_may_name_a_namespace(text: str, namespace: str) -> None:
    assert instance_namespace(text) == namespace
    client = Client(text)
    assert client.namespace.name == namespace
    assert Client(text, namespace="own").namespace.name == "own"
