"""The Python blocks of the pages run, with tiny files under the names that they use."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from tiny_gguf import TinyPair

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]


def blocks(page: str) -> list[str]:
    """The page's blocks, but for those that load checkpoints of transformers."""
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    return [block for block in found if "from_pretrained" not in block]


@pytest.mark.parametrize("page", PAGES)
def test_no_figure_is_left_to_fill_in(page: str) -> None:
    assert not re.findall(r"@[A-Z]+@|TODO", (ROOT / page).read_text())


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_blocks_run(
    page: str, pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(pair.target, tmp_path / "big.gguf")
    shutil.copy(pair.draft, tmp_path / "small.gguf")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, page, "exec"), names)
