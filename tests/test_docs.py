"""What the README and the pages show runs as it stands there."""

from __future__ import annotations

import inspect
import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk import (
    LitePullConsumer,
    Message,
    PoppedMessage,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    SimpleConsumer,
    Transaction,
    TransactionProducer,
)
from support.in_process import run_program
from support.paths import ROOT
from support.public_calls import INTERNAL

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    )
    if any(
        sign in block
        for sign in ("trio.run(", "asyncio.run(", "sync import ConsumeFrom", "simulate(plan")
    )
]


@pytest.mark.real_time
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_in_the_pages_run(program: str) -> None:
    run_program(program, "a page")


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), (
                f"{page.name} points to {target}, which is not there"
            )


def anchors(page: Path) -> set[str]:
    """What a link to a part of the page may name: each heading in lower case, without
    punctuation, with hyphens for spaces.
    """
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_links_to_parts_of_pages_name_headings(page: Path) -> None:
    links: list[tuple[str, str]] = re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", page.read_text("utf-8"))
    for target, anchor in links:
        led_to = page.parent / target if target else page
        assert anchor in anchors(led_to), f"{led_to.name} has no heading for #{anchor}"


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_files_that_pages_name_exist(page: Path) -> None:
    names = re.findall(
        r"`(?:[^`\n]* )?((?:tests|examples|benchmarks|rocketmq_sdk|docs)/[\w/.-]*)[^`\n]*`",
        page.read_text("utf-8"),
    )
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_readme_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    readme = (ROOT / "README.md").read_text("utf-8")
    table = readme[readme.index("| extra | what it adds |") :].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]
    assert sorted(named) == sorted(project["optional-dependencies"])


def test_every_setting_is_on_its_page() -> None:
    from rocketmq_sdk.client.config import CLIENT_OPTIONS
    from rocketmq_sdk.consumer.config import LITE_PULL_OPTIONS, PUSH_OPTIONS, SIMPLE_OPTIONS
    from rocketmq_sdk.producer.config import PRODUCER_OPTIONS

    producer, consumer = (
        (ROOT / "docs" / name).read_text("utf-8") for name in ("producer.md", "consumer.md")
    )
    assert {
        name for name in PRODUCER_OPTIONS | CLIENT_OPTIONS if f"`{name}`" not in producer
    } == set()
    assert {name for name in PUSH_OPTIONS if f"`{name}`" not in consumer} == set()
    lite_pull = (ROOT / "docs" / "lite_pull_consumer.md").read_text("utf-8")
    assert {name for name in LITE_PULL_OPTIONS if f"`{name}`" not in lite_pull} == set()
    simple = (ROOT / "docs" / "simple_consumer.md").read_text("utf-8")
    assert {name for name in SIMPLE_OPTIONS if f"`{name}`" not in simple} == set()


@pytest.mark.parametrize(
    "kind",
    [
        *(Producer, TransactionProducer, Message, ReceivedMessage, PoppedMessage, Transaction),
        *(PushConsumer, LitePullConsumer, SimpleConsumer, PullConsumer, SendResult),
    ],
)
def test_every_method_and_argument_of_producers_and_consumers_is_on_a_page(kind: type) -> None:
    pages = "\n".join(page.read_text("utf-8") for page in PAGES)
    names = {name for name in dir(kind) if name[0] != "_"} | set(
        inspect.signature(kind).parameters  # type: ignore[arg-type]
    )
    internal = {"poll_service", "send_code", "is_plain", "property_text", "with_more", "options"}
    assert {
        name
        for name in names - INTERNAL - internal - {"more"}
        if not re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`|\b{name}[=(]", pages)
    } == set()
