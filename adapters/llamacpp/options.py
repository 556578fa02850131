"""How a GGUF model is loaded: the options of llama.cpp that matter here, checked and translated."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypedDict

from ..values import MAX_INT32, check_integer
from .library import llama_cpp

MAX_THREADS = 512
"""ggml's own limit (GGML_MAX_N_THREADS); beyond it the process dies."""


class LoadOptions(TypedDict, total=False):
    """Keyword arguments that make a `ModelOptions`."""

    n_ctx: int | None
    n_batch: int
    n_threads: int | None
    n_gpu_layers: int
    type_k: str | int
    type_v: str | int
    flash_attn: bool | None
    swa_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options of one loaded model; the names are those of llama-cpp-python.

    Attributes:
        n_ctx: context length in tokens; None for the training context, at most 4096. llama.cpp
            rounds it up to a multiple of 256.
        n_batch: most tokens in one call of llama.cpp; longer input is fed in pieces.
        n_threads: CPU threads, at most 512; None for the cores that this process may use.
        n_gpu_layers: layers kept on the GPU; -1 for all. Loading fails where the build or the
            machine has no GPU.
        type_k: storage type of the key cache, for example "f16", "f32" or "q8_0".
        type_v: storage type of the value cache; a quantised one needs flash attention.
        flash_attn: True, False, or None to let llama.cpp choose.
        swa_full: keep all cells of sliding-window layers. False saves memory; then a rollback
            beyond the window is paid for by evaluating the prefix again.
    """

    n_ctx: int | None = None
    n_batch: int = 512
    n_threads: int | None = None
    n_gpu_layers: int = 0
    type_k: str | int = "f16"
    type_v: str | int = "f16"
    flash_attn: bool | None = None
    swa_full: bool = True

    def __post_init__(self) -> None:
        """Check the values."""
        for name, high in (
            ("n_ctx", MAX_INT32),
            ("n_batch", MAX_INT32),
            ("n_threads", MAX_THREADS),
        ):
            value = getattr(self, name)
            if value is not None or name == "n_batch":
                check_integer(name, value, 1, high)
        check_integer("n_gpu_layers", self.n_gpu_layers, -1, remedy=" (-1 means all layers)")
        if self.flash_attn is not None and not isinstance(self.flash_attn, bool):
            raise ValueError(
                f"flash_attn={self.flash_attn!r} must be True, False, or None to let llama.cpp "
                "choose"
            )
        if not isinstance(self.swa_full, bool):
            raise ValueError(f"swa_full={self.swa_full!r} must be True or False")
        cache_type("type_k", self.type_k)
        cache_type("type_v", self.type_v)

    def model_params(self) -> Any:
        """Parameters for `llama_model_load_from_file`."""
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = self.n_gpu_layers
        return params

    def context_params(self, n_ctx_train: int) -> Any:
        """Parameters for `llama_init_from_model`, of a model trained on `n_ctx_train` tokens."""
        n_ctx = self.n_ctx if self.n_ctx is not None else min(n_ctx_train, 4096)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = self.n_batch
        params.n_ubatch = min(self.n_batch, 512)
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = self.n_threads or min(
            _usable_cores(), MAX_THREADS
        )
        params.type_k = cache_type("type_k", self.type_k)
        params.type_v = cache_type("type_v", self.type_v)
        params.flash_attn_type = -1 if self.flash_attn is None else int(self.flash_attn)
        params.swa_full = self.swa_full
        params.no_perf = True
        return params


def cache_type(argument: str, value: str | int) -> int:
    """Number of the ggml type named `value`, for example "f16"; numbers pass unchanged."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = getattr(llama_cpp, f"GGML_TYPE_{str(value).upper()}", None)
    if number is None:
        raise ValueError(
            f"{argument}={value!r} is not a ggml type; use 'f16', 'f32', 'bf16', 'q8_0' or 'q4_0'"
        )
    return int(number)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
