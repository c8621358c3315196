"""The package with compiled modules: what its wheel holds, that it does the same."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from support.compiled import COMPILED, build_compiled, is_extension, lay_out
from support.environments import Environment, run
from support.paths import ROOT

COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
HEADER = Path(sysconfig.get_path("include"), "Python.h")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.real_time,
    pytest.mark.skipif(
        shutil.which(COMPILER) is None or not HEADER.exists(),
        reason="no C compiler, or no headers of this interpreter, on this machine",
    ),
]
ROOMS = ("model", "producer", "protocol/shapes/test_answers.py", "client/test_arguments.py")
"""Tests of what is compiled; `bash test.sh --compiled` runs all."""
PROGRAM = """
import importlib, pathlib, pickle
from rocketmq_sdk.sync import EmbeddedBroker, Message, Producer

for name in {names!r}:
    print(pathlib.Path(importlib.import_module(name).__file__).suffix)
with EmbeddedBroker() as broker, Producer("shop", namesrv=broker, auto_batch=True) as producer:
    print({{producer.submit(Message("orders", b"1")).result().status.name for _ in range(3)}})
    print(pickle.loads(pickle.dumps(Message("orders", b"1", tags="a"))).tags)
"""
DUMP = """
import pickle
from rocketmq_sdk.sync import EmbeddedBroker, Message, Producer

message = Message("orders", b"1", tags="a", properties={"p": "q"})
with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
    print(pickle.dumps((message, producer.send(message))).hex())
"""
LOAD = """
import pickle

message, result = pickle.loads(bytes.fromhex("{pickled}"))
print(message.topic, message.body, message.tags, dict(message.properties), result.queue_offset)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and sdist."""
    return build_compiled(tmp_path_factory.mktemp("compiled"))


def test_the_wheel_holds_the_source_and_the_compiled_modules(built: tuple[Path, Path]) -> None:
    wheel, _sdist = built
    assert re.search(r"-cp3\d+-cp3\d+-\w+\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        held = {name: archive.read(name) for name in names if name.endswith(".py")}
    extensions = sorted(name for name in names if is_extension(name))
    [common] = [name for name in extensions if "/" not in name]
    assert "__mypyc." in common
    modules = [name for name in extensions if name != common]
    assert [f"{name.split('.')[0]}.py" for name in modules] == COMPILED
    for name, source in held.items():
        assert (ROOT / name).read_bytes() == source


def test_installed_it_works_alone(built: tuple[Path, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.install(str(built[0]))
    names = [name.removesuffix(".py").replace("/", ".") for name in COMPILED]
    *suffixes, statuses, tags = environment.run(
        "-W", "error", "-c", PROGRAM.format(names=names)
    ).split()
    assert {*suffixes} == {".so"}
    assert (statuses, tags) == ("{'SEND_OK'}", "a")
    assert "27,004" in environment.run("-m", "rocketmq_sdk", "demo")


def test_pickles_of_one_kind_are_read_by_the_other(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    compiled, here = lay_out(*built, tmp_path), ROOT
    for writer, reader in ((compiled, here), (here, compiled)):
        pickled = run(sys.executable, "-c", DUMP, at=writer).strip()
        said = run(sys.executable, "-c", LOAD.format(pickled=pickled), at=reader)
        assert said == "orders b'1' a {'p': 'q'} 0\n"


def test_its_own_tests_pass(built: tuple[Path, Path], tmp_path: Path) -> None:
    tree = lay_out(*built, tmp_path)
    where = "import rocketmq_sdk.model.message as home; print(home.__file__)"
    assert is_extension(run(sys.executable, "-c", where, at=tree).strip())
    rooms = [f"tests/{room}" for room in ROOMS]
    said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *rooms, at=tree)
    assert re.search(r"\d{3} passed", said)
