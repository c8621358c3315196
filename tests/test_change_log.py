"""The fragments of news, as a release puts them into the change log."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from support.environments import run
from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FRAGMENTS = sorted(
    path for path in (ROOT / "newsfragments").glob("*.md") if path.name != "README.md"
)
KINDS = {"feature": "New", "change": "Changed", "bugfix": "Fixed", "removal": "Removed"}
ALWAYS = "Something new, of which there is a page ([security](../docs/security.md)).\n"
"""A fragment of the test's own: after a release there are no others."""
LINK = re.compile(r"\]\(([^)#]+)")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a release changes, after towncrier did."""
    home = tmp_path_factory.mktemp("release")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, home)
    shutil.copytree(ROOT / "newsfragments", home / "newsfragments")
    (home / "newsfragments" / "always.feature.md").write_text(ALWAYS, "utf-8")
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--date", "2031-02-03"]
    run(*command, "--version", "7.8.9", at=home)
    return home


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.real_time
def test_a_release_takes_every_fragment_into_the_change_log(release: Path) -> None:
    text = (release / "CHANGELOG.md").read_text("utf-8")
    before = (ROOT / "CHANGELOG.md").read_text("utf-8")
    mark = "<!-- new releases come below this line -->\n"
    head, rest = before.split(mark)
    assert text.startswith(f"{head}{mark}\n## 7.8.9 (2031-02-03)\n\n### New\n\n- ")
    assert text.endswith(rest)
    new = words(text.removeprefix(head).removesuffix(rest))
    parts = dict(re.findall(r"### (\w+) (.*?)(?= ###|$)", new))
    fragments = {path.name: path.read_text("utf-8") for path in FRAGMENTS}
    for name, fragment in {**fragments, "always.feature.md": ALWAYS}.items():
        said = words(fragment).replace("](../", "](")
        assert f"- {said}" in parts[KINDS[name.split(".")[1]]], name
    assert not list((release / "newsfragments").glob("*.*.md"))
    assert (release / "newsfragments" / "README.md").exists()


@pytest.mark.real_time
def test_its_links_lead_somewhere_and_its_lines_keep_their_columns(release: Path) -> None:
    text = (release / "CHANGELOG.md").read_text("utf-8")
    targets = [target for target in LINK.findall(text) if not target.startswith("http")]
    assert "docs/security.md" in targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
    assert [line for line in text.splitlines() if len(line) > 100 and " " in line[2:]] == []


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in FRAGMENTS])
def test_a_fragment_has_a_kind_one_paragraph_and_no_number_of_ours(path: Path) -> None:
    text = path.read_text("utf-8")
    assert re.fullmatch(r"[a-z0-9-]+\.(feature|change|bugfix|removal)\.md", path.name)
    assert text == text.strip() + "\n"
    assert "\n\n" not in text
    assert not text.startswith(("-", "*", "#"))
    assert not re.search(r"#\d|\bissue \d", text)
