"""What the pages say first, as a new user does it: in empty environments."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.testing import BlockingBroker, BrokerThread
from support.environments import Environment, clean, run
from support.paths import DOCS, ROOT
from support.ports import free_port
from support.waiting import plain_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.real_time]
ASYNCIO, SYNC = ((DOCS / f"{name}.md").read_text("utf-8") for name in ("asyncio", "sync"))
FASTAPI = [
    block for block in re.findall(r"```python\n(.*?)```", ASYNCIO, re.S) if "FastAPI(" in block
]


def shown(begin: str) -> str:
    """The indented program behind some words of the page of threads."""
    text = SYNC[SYNC.index(begin) :]
    found = re.search(r"\n((?:    .*\n|\n)+)", text)
    assert found is not None
    return dedent(found[1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", home, ROOT, at=home)
    [found] = home.iterdir()
    return str(found)


def environment_with(factory: pytest.TempPathFactory, *what: str) -> Environment:
    environment = Environment(factory.mktemp("user"))
    environment.install(*what)
    return environment


@pytest.fixture(scope="module")
def web(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return environment_with(tmp_path_factory, wheel, "fastapi", "uvicorn")


@pytest.fixture(scope="module")
def threads(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return environment_with(tmp_path_factory, wheel, "flask", "gunicorn", "celery", "django")


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with BrokerThread() as thread:
        yield BlockingBroker(thread)


@contextmanager
def running(environment: Environment, said: Path, *arguments: str) -> Iterator[None]:
    """A program that runs for the block and ends well by the signal of a supervisor."""
    process = environment.start(*arguments, said=said)
    try:
        yield
        assert process.poll() is None, said.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM), said.read_text()
        assert "Traceback" not in said.read_text(), said.read_text()
    finally:
        process.kill()
        process.wait()


def order(port: int, number: int) -> str:
    """The id of the message that an application has sent for an order."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/orders/{number}", method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(json.load(answer)["message_id"])


def serves(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("program", FASTAPI, ids=["lifespan", "handlers"])
def test_uvicorn_serves_the_programs_for_fastapi(
    program: str, web: Environment, tmp_path: Path
) -> None:
    (web.empty / "shop.py").write_text(program)
    port, said = free_port(), tmp_path / "said"
    with running(web, said, "-m", "uvicorn", "shop:app", f"--port={port}"):
        plain_until(lambda: serves(port))
        assert len({order(port, number) for number in range(5)}) == 5


def test_flask_serves_its_program(threads: Environment, tmp_path: Path) -> None:
    [program] = [
        block for block in re.findall(r"```python\n(.*?)```", SYNC, re.S) if "Flask(" in block
    ]
    (threads.empty / "shop.py").write_text(program)
    port, said = free_port(), tmp_path / "said"
    with running(threads, said, "-m", "flask", "--app", "shop", "run", f"--port={port}"):
        plain_until(lambda: serves(port))
        assert len({order(port, number) for number in range(5)}) == 5


def test_gunicorn_opens_a_producer_in_each_worker(
    threads: Environment, broker: BlockingBroker, tmp_path: Path
) -> None:
    (threads.empty / "web.py").write_text(
        dedent(
            """
            from flask import Flask
            from rocketmq_sdk.sync import Message

            app = Flask(__name__)

            @app.post("/orders/<int:number>")
            def order(number):
                return {"message_id": producer.send(Message("orders", b"1")).message_id}
            """
        )
    )
    config = shown("**gunicorn**").replace("10.0.0.1:9876", broker.namesrv_address)
    (threads.empty / "gunicorn.conf.py").write_text(
        f"import web as app_module\npreload_app = True\nworkers = 2\n{config}"
    )
    port, said = free_port(), tmp_path / "said"
    arguments = ("-m", "gunicorn", f"--bind=127.0.0.1:{port}", "web:app")
    with running(threads, said, *arguments):
        plain_until(lambda: serves(port))
        for number in range(8):
            order(port, number)
    assert len(broker.sent("orders")) == 8
    senders = {seen.client_id for seen in broker.requests("send")}
    closed = {seen.client_id for seen in broker.requests("UNREGISTER_CLIENT")}
    assert closed == senders  # each worker that has sent has closed its own


def test_tasks_of_celery_send(threads: Environment, broker: BlockingBroker, tmp_path: Path) -> None:
    program = shown("**Celery**").replace("10.0.0.1:9876", broker.namesrv_address)
    head = dedent(
        f"""
        from celery import Celery

        app = Celery("tasks", broker="filesystem://", broker_transport_options=dict(
            data_folder_in={str(tmp_path)!r}, data_folder_out={str(tmp_path)!r},
            control_folder={str(tmp_path / "control")!r},
        ))
        """
    )
    (tmp_path / "control").mkdir()
    (threads.empty / "tasks.py").write_text(head + program)
    worker = ("-m", "celery", "-A", "tasks", "worker", "--pool=prefork", "--concurrency=2")
    with running(threads, tmp_path / "said", *worker):
        threads.run("-c", "import tasks\nfor n in range(6): tasks.order.delay(n)")
        broker.wait.stored("orders", 6, within=60)
    assert {message.body for message in broker.sent("orders")} == {b"%d" % n for n in range(6)}


def test_a_producer_of_django(threads: Environment, broker: BlockingBroker) -> None:
    (threads.empty / "messaging.py").write_text(shown("each process has its own:"))
    threads.run(
        "-c",
        dedent(
            f"""
            from django.conf import settings

            settings.configure(ROCKETMQ_NAMESRV={broker.namesrv_address!r})
            from messaging import producer
            from rocketmq_sdk import Message

            for _ in range(2):
                producer().send(Message("orders", b"1"))
            """
        ),
    )
    assert len(broker.sent("orders")) == 2
    assert len(broker.requests("UNREGISTER_CLIENT")) == 1


@pytest.mark.parametrize("file", ["testing/Dockerfile", "deploy/Containerfile"])
def test_an_image_has_what_it_needs_and_starts(file: str, tmp_path: Path) -> None:
    """What its file copies is installed, and its entry point runs."""
    text = (ROOT / "examples" / file).read_text("utf-8")
    source = tmp_path / "source"
    source.mkdir()
    for names in re.findall(r"^COPY (?!--from)(.*) /\S+$", text, re.MULTILINE):
        for name in names.split():
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / name)
    environment = Environment(tmp_path)
    [extras] = re.findall(r"install --no-cache-dir '/\w+(\[\S+\])'", text)
    environment.install(f"{source}{extras}")
    [line] = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    words = [
        re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):(\d+|\$BROKER_PORT)", "127.0.0.1:0", word)
        .replace("/opt/rocketmq/bin/", "")
        .replace("/var/lib/rocketmq", str(tmp_path / "store"))
        for word in json.loads(line)
    ]
    said = tmp_path / "said"
    path = f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [shutil.which(words[0], path=path) or words[0], *words[1:], "--set", "brokerName=shop"],
            env=clean(PATH=path, BROKER_PORT="0"),
            stdout=output,
            stderr=output,
        )
    try:
        plain_until(lambda: "name server 127.0.0.1:" in said.read_text(), "it did not start")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()


def test_fixtures_with_pytest_asyncio_alone(
    wheel: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    user = environment_with(tmp_path_factory, wheel, "pytest", "pytest-asyncio")
    assert not {"pytest-trio", "anyio"} & user.distributions()
    (user.empty / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    (user.empty / "test_orders.py").write_text(
        dedent(
            """
            import asyncio
            import pytest
            from rocketmq_sdk.aio import ConsumeFrom, Message, Producer, PushConsumer
            from rocketmq_sdk import sync

            @pytest.mark.rocketmq(topics={"orders": 2}, strict=True)
            async def test_orders(rocketmq_broker, rocketmq_address):
                got = asyncio.Queue()
                refused = rocketmq_broker.faults.on("send", times=1).refuse()
                async with (
                    Producer("shop", namesrv=rocketmq_address) as producer,
                    PushConsumer(
                        "billing",
                        namesrv=rocketmq_address,
                        subscriptions={"orders": "*"},
                        listener=got.put,
                        consume_from=ConsumeFrom.FIRST_OFFSET,
                    ),
                ):
                    await producer.send(Message("orders", b"42"))
                    assert (await got.get()).body == b"42"
                    await rocketmq_broker.wait.lag("billing", "orders")
                await rocketmq_broker.wait.hit(refused)

            def test_plain(rocketmq_broker):
                with sync.Producer("shop", namesrv=rocketmq_broker.namesrv_address) as producer:
                    producer.send(Message("orders", b"1"))
                assert len(rocketmq_broker.wait.stored("orders")) == 1

            async def test_cluster(rocketmq_cluster):
                async with Producer("shop", namesrv=rocketmq_cluster.namesrv_address) as producer:
                    await producer.send(Message("orders", b"1"))
                assert len(await rocketmq_cluster.wait.stored("orders")) == 1
            """
        )
    )
    assert re.search(r"\b3 passed\b", user.run("-m", "pytest", "-W", "error"))
