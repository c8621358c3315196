"""Commands as programs: how they reach a broker, exit codes, what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import trustme

from rocketmq_sdk import Admin, Credentials
from rocketmq_sdk.cli.operate.command import time
from rocketmq_sdk.cli.operate.connection import _hint, _tls, read_profile
from rocketmq_sdk.errors import ConfigurationError, ConnectError, NotPermittedError
from support.in_process import rocketmq_here
from support.processes import broker_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.processes import BrokerProcess

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with broker_process() as running:
        yield running


def rocketmq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: text for name, text in os.environ.items() if name != "NAMESRV_ADDR"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "rocketmq_sdk", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=known | environment,
    )


def test_ways_to_say_where_the_cluster_is(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "rocketmq" / "config.toml"
    file.parent.mkdir()
    file.write_text(f'[prod]\nnamesrv = "{broker.namesrv}"\ntimeout = 3\n')
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    for done in (
        rocketmq("clusterList", "--json", "-n", broker.namesrv),
        rocketmq("clusterList", "--json", NAMESRV_ADDR=broker.namesrv),
        rocketmq("clusterList", "--json", "--profile", "prod", **home),
        rocketmq("clusterList", "--json", ROCKETMQ_PROFILE="prod", **home),
    ):
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["broker"] == "broker-a"


def test_what_goes_wrong_has_an_exit_code_and_a_remedy(broker: BrokerProcess) -> None:
    for code, said, arguments in (
        (2, "did you mean topicList", ["topiclist"]),
        (2, "did you mean consumerProgress", ["consumerProgres"]),
        (2, "no time", ["tail", "x", "-b", "yesterday"]),
        (2, "-e is before -b", ["printMsg", "-t", "x", "-b", "1d", "-e", "2d"]),
        (1, "no member", ["consumerConnection", "-g", "nope", "-n", broker.namesrv]),
        (1, "TopicNotFoundError", ["tail", "nope", "-n", broker.namesrv]),
        (1, "ConnectError", ["topicList", "-n", "127.0.0.1:1"]),
        (2, "no profile", ["topicList", "--profile", "nope"]),
        (2, "cannot be used", ["topicList", "--ca-file", "/no/such/file"]),
        (2, "credentials", ["topicList", "--credentials", "/no/such/file"]),
    ):
        done = rocketmq_here(*arguments)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        assert said in done.stdout + done.stderr, (arguments, done)
        assert "Traceback" not in done.stderr


def test_the_doctor_tells_what_is_wrong_and_what_helps(broker: BrokerProcess) -> None:
    well = rocketmq_here("doctor", "--json", "-n", broker.namesrv)
    assert well.returncode == 0, well.stdout
    found = [json.loads(line) for line in well.stdout.splitlines()]
    assert {row["state"] for row in found} <= {"ok", "warning"}
    assert {"name server", "cluster", "broker broker-a", "broker broker-a: clock"} <= {
        row["check"] for row in found
    }
    ill = rocketmq_here(
        "doctor", "--json", "-n", f"{broker.namesrv};127.0.0.1:1;no-such-host.invalid:9"
    )
    bad = [row for row in map(json.loads, ill.stdout.splitlines()) if row["state"] == "bad"]
    assert ill.returncode == 1
    assert ["refuses connections" in bad[0]["found"], "has no address" in bad[1]["found"]] == [
        True,
        True,
    ]
    assert all(row["remedy"] for row in bad)
    missing = rocketmq_here("doctor", "--json", "-t", "nope", "-g", "nobody", "-n", broker.namesrv)
    assert missing.returncode == 1
    assert "updateTopic -t nope" in missing.stdout
    nobody = rocketmq_here("doctor", "-n", "127.0.0.1:1")
    assert nobody.returncode == 1
    assert "no name server tells the brokers" in nobody.stdout


def test_a_reader_who_has_seen_enough_is_no_error(broker: BrokerProcess) -> None:
    command = (
        f"{sys.executable} -m rocketmq_sdk getBrokerConfig -n {broker.namesrv} -b %s | head -1"
    )
    [row] = [json.loads(rocketmq("clusterList", "--json", "-n", broker.namesrv).stdout)]
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command % row["address"]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[prod", "not TOML"),
        ("[prod]\nnamserv = 'x'", "namserv"),
        ("[prod]\ntls = 'yes'", "tls"),
        ("[other]\n", "there are: other"),
        ("prod = 1\n", "no profile"),
    ],
)
def test_a_profile_that_cannot_be_used_is_named(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "rocketmq").mkdir()
    (tmp_path / "rocketmq" / "config.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_profile("prod")


def test_times_in_all_notations(monkeypatch: pytest.MonkeyPatch) -> None:
    assert time("0") == 0
    assert time("1767225600000") == 1_767_225_600_000
    assert time("2026-01-01T00:00:00Z") == 1_767_225_600_000
    assert time("2026-01-01T01:00:00+01:00") == 1_767_225_600_000
    assert time("2026-01-01#00:00:00:250") == time("2026-01-01T00:00:00.250")
    now = time("now")
    assert 0 <= time("now") - time("2h") - 7_200_000 < 10_000
    assert now - time("3d") > 2 * 86_400_000


def test_certificates_of_the_command_line(tmp_path: Path) -> None:
    authority, files = trustme.CA(), [str(tmp_path / name) for name in ("ca", "cert", "key")]
    made = authority.issue_cert("me@example.org")
    authority.cert_pem.write_to_path(files[0])
    made.cert_chain_pems[0].write_to_path(files[1])
    made.private_key_pem.write_to_path(files[2])
    assert [each["subject"] for each in _tls(*files).get_ca_certs()]
    for given, said in (
        ((files[0], files[1], None), f"--tls-cert {files[1]} cannot be used"),
        ((None, files[1], files[0]), f"--tls-cert {files[1]} with --tls-key {files[0]} cannot"),
        ((None, None, files[2]), "--tls-key needs --tls-cert"),
        (("/no/such/file", None, None), "--ca-file /no/such/file cannot be used"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            _tls(*given)


def test_errors_hint_at_what_was_left_out() -> None:
    admin = Admin(namesrv="127.0.0.1:9876")
    signing = Admin(namesrv="127.0.0.1:9876", credentials=Credentials("a", "b"))
    refused = NotPermittedError(16, "username cannot be null.")
    cut = ConnectError("the connection to 127.0.0.1:9876 ended before the answer")
    assert "--credentials" in (_hint(refused, admin) or "")
    assert "--tls" in (_hint(cut, admin) or "")
    assert _hint(refused, signing) is None
    assert _hint(ConnectError("refused"), admin) is None
