"""The weights of a GGUF model: loaded from a path, or borrowed from a model loaded elsewhere."""

from __future__ import annotations

import ctypes
import os
import weakref
from pathlib import Path
from typing import Any

from ..errors import ModelFileError, UnsupportedError
from .backends import check_gpu_layers
from .gguf_file import checked_path, load_failure
from .library import llama_cpp, take_error
from .options import ModelOptions
from .vocabulary import Vocabulary


class Weights:
    """A llama.cpp model handle with its vocabulary and the few facts that the adapter needs.

    Attributes:
        handle: the llama.cpp model pointer.
        path: file of the model, or None for a bare pointer.
        vocabulary: token ids to text and back.
        n_ctx_train: context length that the model was trained for.
        n_swa: width of the sliding window, 0 if there is none.
        is_recurrent: whether (some) layers hold a state that cannot be cut back.
    """

    def __init__(self, source: Any, options: ModelOptions, *, argument: str = "target") -> None:
        """Load the path `source`, or borrow a `llama_cpp.Llama` or a model pointer.

        `argument` is the caller's name for `source`, used in messages. Borrowed weights are never
        freed here.
        """
        self._owner: Any = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self.path: Path | None = None
        if isinstance(source, (str, os.PathLike)):
            self.path = checked_path(source, argument)
            self.handle = _load(self.path, options, argument)
            self._finalizer = weakref.finalize(self, llama_cpp.llama_model_free, self.handle)
        else:
            self._owner = source
            self.handle = _borrow(source, argument)
            if path := getattr(source, "model_path", None):
                self.path = Path(path)
        if llama_cpp.llama_model_has_encoder(self.handle) or llama_cpp.llama_model_is_diffusion(
            self.handle
        ):
            raise UnsupportedError(
                f"{argument}={str(self.path)!r} is an encoder-decoder or diffusion model; "
                "only models that write left to right are supported"
            )
        self.vocabulary = Vocabulary(self.handle)
        self.n_ctx_train: int = llama_cpp.llama_model_n_ctx_train(self.handle)
        self.n_swa: int = llama_cpp.llama_model_n_swa(self.handle)
        self.is_recurrent = bool(
            llama_cpp.llama_model_is_recurrent(self.handle)
            or llama_cpp.llama_model_is_hybrid(self.handle)
        )

    def close(self) -> None:
        """Free weights that were loaded here; close every context on them first."""
        if self._finalizer is not None:
            self.vocabulary.close()
            self._finalizer()


def _load(path: Path, options: ModelOptions, argument: str) -> Any:
    check_gpu_layers(options.n_gpu_layers)
    take_error()
    handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), options.model_params())
    if not handle:
        raise load_failure(path, argument, take_error())
    return handle


def _borrow(source: Any, argument: str) -> Any:
    handle = getattr(source, "model", source)
    if isinstance(handle, ctypes.c_void_p):
        handle = handle.value
    if not isinstance(handle, int) or isinstance(handle, bool) or handle == 0:
        raise ModelFileError(
            f"{argument}={source!r} is not a model; give the path of a GGUF file, an open "
            "llama_cpp.Llama, or a llama.cpp model pointer"
        )
    return handle
