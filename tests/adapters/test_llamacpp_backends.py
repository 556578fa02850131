"""Layers on a GPU: clear words where there is none, and backends added to a CPU build."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

from tiny_gguf import TinyPair

from cactus_rules.adapters.errors import (
    EngineError,
    MissingEngineError,
    ModelFileError,
    UnsupportedError,
)
from cactus_rules.adapters.llamacpp import (
    SpeculativeLlama,
    available_backends,
    library,
    load_backend,
)
from cactus_rules.adapters.llamacpp.library import llama_cpp


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a GPU, whatever this one has."""
    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: False)


def test_the_cpu_backend_is_listed() -> None:
    assert "CPU" in available_backends()
    assert all(name.isprintable() for name in available_backends())


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("n_gpu_layers", [-1, 20])
def test_layers_on_the_gpu_of_a_cpu_build(
    pair: TinyPair, monkeypatch: pytest.MonkeyPatch, n_gpu_layers: int
) -> None:
    monkeypatch.setattr(
        "cactus_rules.adapters.llamacpp.backends.available_backends", lambda: ("CPU",)
    )
    with pytest.raises(UnsupportedError, match=f"n_gpu_layers={n_gpu_layers}: .*CPU alone; .*=0"):
        SpeculativeLlama(pair.target, n_gpu_layers=n_gpu_layers)


@pytest.mark.usefixtures("no_gpu")
def test_layers_on_the_gpu_of_a_machine_without_one(
    pair: TinyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cactus_rules.adapters.llamacpp.backends.available_backends"
    monkeypatch.setattr(name, lambda: ("CUDA", "CPU"))
    with pytest.raises(UnsupportedError, match=r"the CUDA backend of llama\.cpp found no GPU"):
        SpeculativeLlama(pair.target, n_gpu_layers=-1)


@pytest.mark.usefixtures("no_gpu")
def test_no_layers_on_the_gpu_need_no_gpu(pair: TinyPair) -> None:
    with SpeculativeLlama(pair.target, n_gpu_layers=0) as llama:
        assert llama.complete("a", max_tokens=1).token_ids


def test_a_backend_that_is_none(pair: TinyPair, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is not a file; give a ggml backend library"):
        load_backend(tmp_path / "libggml-cuda.so")
    (tmp_path / "libggml-cuda.so").write_bytes(b"not a library")
    with pytest.raises(ModelFileError, match="path=None must be the path of a ggml backend"):
        load_backend(None)  # type: ignore[arg-type]
    before = available_backends()
    with pytest.raises(EngineError, match=r"was not loaded as a backend \(.*libggml-cuda\.so"):
        load_backend(tmp_path / "libggml-cuda.so")
    assert available_backends() == before
    with SpeculativeLlama(pair.target) as llama:
        assert llama.complete("a", max_tokens=1).token_ids


def test_missing_cuda_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "libcublas.so.13: cannot open shared object file: No such file or directory"
    (tmp_path / "cuda_llama.py").write_text(f"raise RuntimeError({text!r})")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingEngineError, match="import a CUDA build of torch first"):
        library.load_library("cuda_llama")
