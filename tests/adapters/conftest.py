"""Model files for the adapter tests, written once per session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_gguf
from llama_requests import EXACT, Opener
from tiny_gguf import TinyPair


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.fixture(scope="session")
def pair(folder: Path) -> TinyPair:
    target = tiny_gguf.llama_weights()
    draft = tiny_gguf.noisy(target, 0.2)
    return TinyPair(
        tiny_gguf.write_llama(folder / "target.gguf", target),
        tiny_gguf.write_llama(folder / "draft.gguf", draft),
        target,
        draft,
    )


@pytest.fixture(scope="session")
def gemma3(folder: Path) -> Path:
    return tiny_gguf.write_gemma3(folder / "gemma3.gguf")


@pytest.fixture(scope="session")
def mamba(folder: Path) -> Path:
    return tiny_gguf.write_mamba(folder / "mamba.gguf")


@pytest.fixture(scope="session")
def jamba(folder: Path) -> Path:
    return tiny_gguf.write_jamba(folder / "jamba.gguf")


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens a `SpeculativeLlama` whose logits are those of the torch forward; closes it after."""
    from cactus_rules.adapters.llamacpp import SpeculativeLlama

    objects = []

    def open_pair(target: Any, draft: Any = None, **options: Any) -> SpeculativeLlama:
        objects.append(SpeculativeLlama(target, draft, **(EXACT | options)))
        return objects[-1]

    yield open_pair
    for made in objects:
        made.close()
