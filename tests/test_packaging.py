"""Wheel and sdist: what is in them, and that they work where nothing else is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import BytesParser
from typing import TYPE_CHECKING

import pytest

from support.environments import Environment, run, unpack
from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.real_time]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
STEM = f"{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}"
OF_CHECKOUTS = (".ci/", ".github/")
"""What an sdist does without: it belongs to the repository as a place of work."""
PLACES = """
import importlib.util, pathlib, sys

for name in ("rocketmq_sdk", "pyspark_rocketmq"):  # the second one needs Spark to load
    print(pathlib.Path(importlib.util.find_spec(name).origin).is_relative_to(sys.prefix))
"""
PROGRAM = """
from rocketmq_sdk.sync import EmbeddedBroker, Message, Producer

with EmbeddedBroker("store") as broker, Producer("shop", namesrv=broker) as producer:
    print(producer.send(Message("orders", b"1")).status.name)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of both, built as for a release: the wheel from the sdist."""
    home = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--outdir", home, ROOT, at=home)
    return home


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"{STEM}-py3-none-any.whl"


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    return built / f"{STEM}.tar.gz"


def known_files() -> dict[str, bytes]:
    """What git would take of this tree, by its path."""
    if not (ROOT / ".git").exists():
        pytest.skip("what belongs to the tree is known only in a checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = run(*command, at=ROOT).split("\0")
    return {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}


def test_wheel_and_sdist_are_built(built: Path, wheel: Path, sdist: Path) -> None:
    assert set(built.iterdir()) == {wheel, sdist}


def test_sdist_holds_the_tree(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {
            member.name.removeprefix(f"{STEM}/"): content.read()
            for member in archive
            if (content := archive.extractfile(member)) is not None
        }
    del held["PKG-INFO"]
    wanted = {
        name: content
        for name, content in known_files().items()
        if not name.startswith(OF_CHECKOUTS)
    }
    assert sorted(held) == sorted(wanted)
    assert held == wanted


def test_wheel_holds_the_package_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {info.filename: archive.read(info) for info in archive.infolist()}
    notes = f"{STEM}.dist-info/"
    assert {name: content for name, content in held.items() if not name.startswith(notes)} == {
        name: content
        for name, content in known_files().items()
        if name.startswith("rocketmq_sdk/") or name == "pyspark_rocketmq.py"
    }
    assert "rocketmq_sdk/py.typed" in held
    for name in ("LICENSE", "NOTICE"):
        assert held[f"{notes}licenses/{name}"] == (ROOT / name).read_bytes()


def test_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        told = BytesParser().parsebytes(archive.read(f"{STEM}.dist-info/METADATA"))
        tags = BytesParser().parsebytes(archive.read(f"{STEM}.dist-info/WHEEL"))
    assert (told["Name"], told["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert told["License-Expression"] == "Apache-2.0"
    assert told.get_payload() == (ROOT / "README.md").read_text("utf-8")
    assert set(told.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    required = [line for line in told.get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {re.split(r"[^\w-]", line)[0] for line in required}
    assert names == {"trio", "outcome", "sniffio", "attrs", "crcmod"}
    assert tags["Tag"] == "py3-none-any"


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_installed_it_works_alone(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = Environment(tmp_path)
    environment.install(str(request.getfixturevalue(kind)))
    # trio's own needs; nothing of the extras.
    assert environment.distributions() == {
        *("rocketmq-trio", "trio", "attrs", "crcmod", "outcome", "sniffio"),
        *("idna", "sortedcontainers"),
    }
    assert environment.run("-c", PLACES).split() == ["True", "True"]
    assert "27,004" in environment.run("-m", "rocketmq_sdk", "demo")
    assert environment.run("-W", "error", "-c", PROGRAM).split() == ["SEND_OK"]
    command = environment.python.with_name("rocketmq")
    assert "test-broker" in run(command, "--help", at=environment.empty)
    wrong = subprocess.run([command, "brokr"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr


def test_the_fixtures_come_with_the_extra(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.install(f"{wheel}[testing]")
    (environment.empty / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    shutil.copy(ROOT / "examples" / "test_orders.py", environment.empty)
    said = environment.run("-m", "pytest", "-W", "error")
    assert re.search(r"\b2 passed\b", said)
    assert f"rocketmq-trio-{PROJECT['version']}" in said  # among the plugins


def test_unpacked_the_sdist_passes_its_own_tests(sdist: Path, tmp_path: Path) -> None:
    tree = unpack(sdist, tmp_path)
    at = "import rocketmq_sdk; print(rocketmq_sdk.__file__)"
    assert run(sys.executable, "-c", at, at=tree).strip() == str(tree / "rocketmq_sdk/__init__.py")
    rooms = [f"tests/{name}" for name in ("model", "protocol", "test_exports.py", "test_text.py")]
    said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *rooms, at=tree)
    assert re.search(r"\d{3} passed", said)
