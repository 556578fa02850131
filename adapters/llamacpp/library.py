"""The guarded import of llama-cpp-python.

The adapter uses llama.cpp's C functions through `llama_cpp`'s ctypes bindings. These move between
versions, so every name and structure field that is used is listed here and checked once: a version
that lacks one is refused with a message instead of failing somewhere in the middle of a generation.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections import deque
from typing import Any

from ..errors import MissingEngineError, install_hint

FUNCTIONS = (
    "llama_backend_init",
    "llama_batch_free",
    "llama_batch_init",
    "llama_context_default_params",
    "llama_decode",
    "llama_free",
    "llama_get_logits",
    "llama_get_memory",
    "llama_init_from_model",
    "llama_log_callback",
    "llama_log_set",
    "llama_memory_clear",
    "llama_memory_seq_pos_max",
    "llama_memory_seq_pos_min",
    "llama_memory_seq_rm",
    "llama_model_chat_template",
    "llama_model_default_params",
    "llama_model_free",
    "llama_model_get_vocab",
    "llama_model_has_encoder",
    "llama_model_is_diffusion",
    "llama_model_is_hybrid",
    "llama_model_is_recurrent",
    "llama_model_load_from_file",
    "llama_model_n_ctx_train",
    "llama_model_n_swa",
    "llama_model_quantize",
    "llama_model_quantize_default_params",
    "llama_n_batch",
    "llama_n_ctx",
    "llama_state_seq_get_data_ext",
    "llama_state_seq_get_size_ext",
    "llama_state_seq_set_data_ext",
    "llama_supports_gpu_offload",
    "llama_token_to_piece",
    "llama_tokenize",
    "llama_vocab_bos",
    "llama_vocab_eos",
    "llama_vocab_get_add_bos",
    "llama_vocab_get_add_eos",
    "llama_vocab_get_text",
    "llama_vocab_is_eog",
    "llama_vocab_n_tokens",
    "llama_vocab_type",
)
FIELDS = {
    "llama_model_params": {"n_gpu_layers"},
    "llama_context_params": {
        "flash_attn_type",
        "n_batch",
        "n_ctx",
        "n_seq_max",
        "n_threads",
        "n_threads_batch",
        "n_ubatch",
        "no_perf",
        "swa_full",
        "type_k",
        "type_v",
    },
    "llama_model_quantize_params": {"allow_requantize", "ftype", "nthread"},
    "llama_batch": {"logits", "n_seq_id", "n_tokens", "pos", "seq_id", "token"},
}
INSTALL_HINT = f"{install_hint('llamacpp')} (it is compiled from source, which takes some minutes)"
CUDA_HINT = (
    "this CUDA build needs CUDA's libraries: import a CUDA build of torch first, or name their "
    "folder in LD_LIBRARY_PATH; libcuda.so.1 comes with the GPU's driver"
)

logger = logging.getLogger("cactus_rules.llamacpp")
logger.addHandler(logging.NullHandler())
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.WARNING}
_ERROR = 4
_errors: deque[str] = deque(maxlen=8)


def missing(library: Any) -> list[str]:
    """Names of the functions and structure fields that the adapter uses and `library` lacks."""
    lacking = [name for name in FUNCTIONS if not hasattr(library, name)]
    for struct, fields in FIELDS.items():
        present = {field[0] for field in getattr(getattr(library, struct, None), "_fields_", ())}
        lacking += [f"{struct}.{field}" for field in sorted(fields - present)]
    return lacking


def load_library(name: str = "llama_cpp") -> Any:
    """Import the bindings, or raise `MissingEngineError` saying what to install."""
    try:
        library = importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        hint = CUDA_HINT if re.search(r"libcu\w+\.so", str(error)) else INSTALL_HINT
        raise MissingEngineError(f"{name} cannot be imported ({error}); {hint}") from error
    if lacking := missing(library):
        raise MissingEngineError(
            f"{name} {getattr(library, '__version__', '(unknown version)')} lacks "
            f"{', '.join(lacking)}; the adapter is written for llama-cpp-python >= 0.3.36, < 0.4: "
            f"{INSTALL_HINT}"
        )
    return library


def take_error() -> str:
    """Return the first error that llama.cpp logged since the last call; empty if none."""
    first = _errors[0] if _errors else ""
    _errors.clear()
    return first


def _log(level: int, text: bytes | None, _user_data: Any) -> None:
    line = (text or b"").decode("utf-8", "replace").rstrip()
    if level == _ERROR and line:
        _errors.append(line.partition(": ")[2] or line)
    if line and (severity := _LEVELS.get(level)) is not None:
        logger.log(severity, "%s", line)


llama_cpp = load_library()
# llama.cpp keeps a pointer to the callback, so the object must live as long as the library.
_log_callback = llama_cpp.llama_log_callback(_log)
llama_cpp.llama_log_set(_log_callback, None)
llama_cpp.llama_backend_init()
