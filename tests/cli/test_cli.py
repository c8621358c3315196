"""The command line as a user runs it: processes, exit codes, texts."""

from __future__ import annotations

import gzip
import signal
import socket
import ssl
import subprocess
import sys
from importlib import resources
from typing import TYPE_CHECKING

import pytest
import trustme

from rocketmq_sdk import Admin, Message, Producer
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.cli import broker as broker_command
from support.in_process import rocketmq_here
from support.processes import BrokerProcess, broker_process

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time


def rocketmq(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "rocketmq_sdk", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_the_demo_equals_the_direct_computation() -> None:
    done = rocketmq("demo")
    assert done.returncode == 0, done.stderr
    assert "lost 0, duplicates 0" in done.stdout
    assert "the sums equal those computed directly from the file" in done.stdout
    # counted with a plain text search in the file, not with the demo's own code
    raw = gzip.decompress(
        (resources.files("rocketmq_sdk.cli") / "data" / "flights-2013-01.csv.gz").read_bytes()
    ).decode()
    table = {
        line.split()[0]: line.split()[1:]
        for line in done.stdout.splitlines()
        if len(line.split()) == 4 and line.split()[0].isalnum()
    }
    for carrier in ("UA", "WN", "OO"):
        rows = [line.split(",") for line in raw.splitlines() if f",{carrier}," in line]
        delays = [int(row[8]) for row in rows if row[8] != "NA"]
        assert table[carrier] == [
            f"{len(rows):,}",
            f"{sum(delays) / len(delays):.3f}",
            str(len(rows) - len(delays)),
        ]


def test_the_demo_takes_another_file(tmp_path: Path) -> None:
    file = tmp_path / "few.csv"
    file.write_text("carrier,tailnum,arr_delay\nXX,N1,10\nXX,N2,NA\nYY,N1,-4\n")
    done = rocketmq_here("demo", "--data", str(file))
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["XX", "2", "10.000", "1"] in lines
    assert ["YY", "1", "-4.000", "0"] in lines


def test_the_demo_runs_against_a_name_server_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "few.csv"
    file.write_text("carrier,tailnum,arr_delay\n" + "XX,N1,10\nXX,N2,NA\nYY,N1,-4\n" * 300)
    with broker_process() as broker:
        done = rocketmq("demo", "--namesrv", broker.namesrv, "--data", str(file))
    assert done.returncode == 0, done.stderr
    assert "lost 0" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["demo", "--data", "/no/such/file"], "/no/such/file"),
        (["broker", "--set", "flushDiskType=perhaps"], "flushDiskType"),
        (["broker", "--set", "storeType=defaultRocksDB"], "storeType"),
        (["broker", "--set", "enableControllerMode=true"], "enableControllerMode"),
        (["broker", "--set", "no equals sign"], "no equals sign"),
        (["broker", "--set", "flushDiskTyp=SYNC_FLUSH"], "did you mean flushDiskType"),
        (["test-broker", "--set", "brokerNam=x"], "did you mean brokerName"),
        (["test-broker", "--emulate", "3.2.6"], "'3.2.6' cannot be emulated"),
        (["broker", "--lisen", "x:1"], "no option --lisen; did you mean --listen"),
        (["broker", "--requ"], "no option --requ"),
        (["broker", "extra"], "'extra' is too much"),
        (["--log-levl", "info", "demo"], "did you mean"),
        (["--log-file", "/no/such/dir/x", "demo"], "--log-file"),
        (["broker", "--log-file-size", "many"], "no size"),
        (["broker", "--log-level", "infos"], "argument --log-level: there is no 'infos'"),
        (["dlq", "lst"], "did you mean list"),
        (["updateTopic", "-topic", "orders"], "no option -topic; did you mean --topic?"),
        (["export", "-topic", "orders", "file"], "no option -topic; did you mean --topic?"),
        (["dlq", "show", "g", "--bdy", "hex"], "did you mean --body"),
        (["broker", "--config", "/no/such/broker.conf"], "/no/such/broker.conf"),
        (["broker", "--listen", "nonsense"], "nonsense"),
        (["broker", "--listen", "127.0.0.1:99999"], "99999"),
        (["fly"], "there is no 'fly'; `rocketmq --help` lists what there is"),
        (["send", "orders", "x"], "there is no 'send'; did you mean sendMessage?"),
        (["dlq", "frob"], "'list', 'show', 'resend', 'purge'"),
        ([], "COMMAND"),
    ],
)
def test_what_is_not_acceptable_ends_with_exit_code_2(arguments: list[str], named: str) -> None:
    done = rocketmq_here(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"carrier,tailnum,arr_delay\nXX,N1,soon\n", "line 2"),
        (b"carrier,tailnum,arr_delay\nXX,N1,1\nYY,N1\n", "line 3"),
        (b"carrier,tailnum\nXX,N1\n", "arr_delay"),
        (b"\xff\xfe", "UTF-8"),
        (b"\x1f\x8b broken", "gzip"),
    ],
)
def test_data_that_is_no_table_of_flights_is_refused(
    tmp_path: Path, content: bytes, named: str
) -> None:
    file = tmp_path / "flights.csv"
    file.write_bytes(content)
    done = rocketmq_here("demo", "--data", str(file))
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_a_configuration_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"brokerName=\xff\xfe\n")
    done = rocketmq_here("broker", "--config", str(file))
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_named() -> None:
    with broker_process() as broker:
        done = rocketmq_here(
            "broker", "--listen", broker.address, "--namesrv-listen", "127.0.0.1:0"
        )
        assert done.returncode == 2
        assert broker.address.rpartition(":")[2] in done.stderr
        assert "choose another port with --listen" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_store_that_is_open_is_refused_by_name(tmp_path: Path) -> None:
    with broker_process(tmp_path / "store"):
        done = rocketmq(
            "broker",
            "--listen",
            "127.0.0.1:0",
            "--namesrv-listen",
            "127.0.0.1:0",
            "--store",
            str(tmp_path / "store"),
        )
        assert done.returncode == 1
        assert str(tmp_path / "store") in done.stderr
        assert "Traceback" not in done.stderr


def test_settings_without_effect_are_warnings_by_name(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    root = tmp_path / "root"
    conf.write_text(
        "# a file as Apache's documentation shows it\nnotASetting=1\nbrokerName = "
        f"broker-x\nsendMessageThreadPoolNums=4\nstorePathRootDir={root}\n"
    )
    broker = BrokerProcess(None, arguments=("--config", str(conf)))
    broker.start()
    assert (root / "lock").exists()
    assert broker.stop() == 0
    log = "".join(broker.log)
    assert "notASetting" in log
    assert "sendMessageThreadPoolNums" in log
    assert "brokerName" not in log


async def test_changed_settings_are_in_the_file_at_the_next_start(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# ours\nmaxMessageSize=2000\n")
    for size in (2000, 3000):
        broker = BrokerProcess(None, arguments=("--config", str(conf)))
        broker.start()
        try:
            async with Admin(namesrv=broker.namesrv) as admin:
                [master] = await admin.cluster.masters()
                settings = await admin.cluster.settings(master.address)
                assert settings["maxMessageSize"] == str(size)
                await admin.cluster.change_settings(master.address, {"maxMessageSize": "3000"})
        finally:
            assert broker.stop() == 0
    assert conf.read_text() == "# ours\nmaxMessageSize=3000\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_broker_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with broker_process(tmp_path / "store", brokerName="broker-x") as broker:
        async with Producer("writers", namesrv=broker.namesrv) as producer:
            result = await producer.send(Message("kept", b"kept"))
        assert result.queue.broker_name == "broker-x"
        assert (tmp_path / "store" / "abort").exists()
        assert broker.signal(number) == 0
        assert not (tmp_path / "store" / "abort").exists()


def test_without_users_a_broker_listens_on_this_machine_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = BrokerConfig()
    checked = BrokerConfig(authentication_enabled=True)
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=9999\n")
    assert broker_command._host(alone) == "127.0.0.1"
    assert broker_command._host(checked) == "0.0.0.0"
    assert broker_command._host(BrokerConfig(acl_enable=True)) == "0.0.0.0"
    assert broker_command._namesrv_listen(str(conf), "127.0.0.1") == "127.0.0.1:9999"
    here = ("127.0.0.1:1", "[::1]:2", "localhost:3", "127.1.2.3:4", "[0:0::1]:5", "LOCALHOST:6")
    broker_command._warn_of_open_ports(alone, *here, "[::ffff:127.0.0.1]:7")
    broker_command._warn_of_open_ports(checked, "0.0.0.0:1")
    assert capsys.readouterr().err == ""
    broker_command._warn_of_open_ports(alone, "10.0.0.7:10911", "127.0.0.1:9876")
    warning = capsys.readouterr().err
    assert "WARNING: everybody who reaches 10.0.0.7:10911 may" in warning
    assert "9876" not in warning
    for everywhere in ("0.0.0.0:1", "[::]:1", "127.example.org:1", "[::ffff:10.0.0.1]:1"):
        broker_command._warn_of_open_ports(alone, everywhere)
        assert everywhere in capsys.readouterr().err
    broker_command._warn_of_unreachable("10.0.0.7", "127.0.0.1:10911")
    assert "brokerIP1 tells clients to come to 10.0.0.7" in capsys.readouterr().err
    broker_command._warn_of_open_replication("0.0.0.0", "127.0.0.1:10912", checked)
    assert "who reaches 0.0.0.0:10912, the port for slaves" in capsys.readouterr().err
    certified = BrokerConfig.from_properties(
        "tls.server.mode=enforcing\ntls.server.need.client.auth=require\n"
    )[0]
    broker_command._warn_of_open_replication("0.0.0.0", "127.0.0.1:10912", certified)
    broker_command._warn_of_open_replication("127.0.0.1", "127.0.0.1:10912", alone)
    secret = tmp_path / "broker.conf"
    secret.touch(mode=0o644)
    keys = BrokerConfig(init_authentication_user='{"username": "a", "password": "b"}')
    broker_command._warn_of_open_secrets(str(secret), keys)
    assert f"chmod 600 {secret}" in capsys.readouterr().err
    secret.chmod(0o640)
    broker_command._warn_of_open_secrets(str(secret), keys)
    broker_command._warn_of_unreachable("10.0.0.7", "0.0.0.0:10911")
    broker_command._warn_of_unreachable(None, "127.0.0.1:10911")
    assert capsys.readouterr().err == ""


def test_a_broker_that_requires_tls(tmp_path: Path) -> None:
    done = rocketmq("broker", "--listen", "127.0.0.1:0", "--require-tls")
    assert done.returncode == 2
    assert "tls.server.certPath" in done.stderr
    made = trustme.CA().issue_cert("127.0.0.1")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    made.cert_chain_pems[0].write_to_path(str(certificate))
    made.private_key_pem.write_to_path(str(key))
    files = ("--tls-cert", str(certificate), "--tls-key", str(key), "--require-tls")
    broker = BrokerProcess(arguments=files)
    broker.start()
    try:
        host, _colon, port = broker.address.partition(":")
        trusting = ssl.create_default_context(cafile=str(certificate))
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            trusting.wrap_socket(plain) as secure,
        ):
            assert secure.version() in ("TLSv1.2", "TLSv1.3")
        with socket.create_connection((host, int(port)), 10) as plain:
            plain.sendall(bytes(64))
            try:
                assert plain.recv(1) == b""
            except ConnectionResetError:
                pass
    finally:
        assert broker.stop() == 0
