"""What llama.cpp can compute on: the backends of the build, and plug-ins added to it."""

from __future__ import annotations

import ctypes
import importlib
import os
from pathlib import Path
from typing import Any

from ..errors import EngineError, ModelFileError, UnsupportedError
from .library import llama_cpp, take_error

_GUIDE = "docs/llamacpp.md, section 'On a GPU'"


def available_backends() -> tuple[str, ...]:
    """Names of the backends that are present, for example ``("CUDA", "CPU")``."""
    count = _ggml("ggml_backend_reg_count", ctypes.c_size_t)()
    entry = _ggml("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)
    name = _ggml("ggml_backend_reg_name", ctypes.c_char_p, ctypes.c_void_p)
    return tuple(name(entry(i)).decode() for i in range(count))


def load_backend(path: str | os.PathLike[str]) -> None:
    """Add a backend to a build of llama.cpp that lacks it, before the first model is loaded.

    Args:
        path: a ggml backend library of the same llama.cpp version, such as the ``libggml-cuda.so``
            that ``scripts/build_llamacpp_cuda.sh`` makes for a CPU build of llama-cpp-python.

    Raises:
        ModelFileError: there is no such file.
        EngineError: llama.cpp refused it; what it had goes on working.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ModelFileError(f"path={path!r} must be the path of a ggml backend library")
    file = Path(path).expanduser()
    if not file.is_file():
        raise ModelFileError(f"path={str(path)!r} is not a file; give a ggml backend library")
    load = _ggml("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)
    take_error()
    if not load(os.fsencode(file.resolve())):
        raise EngineError(
            f"path={str(path)!r} was not loaded as a backend "
            f"({take_error() or 'no reason given'}); it must be built for this version of "
            "llama.cpp, and the libraries that it needs (CUDA's runtime and cuBLAS) must be found: "
            f"see {_GUIDE}"
        )


def check_gpu_layers(n_gpu_layers: int) -> None:
    """Raise `UnsupportedError` where layers are asked to lie on a GPU and there is none."""
    if n_gpu_layers == 0 or llama_cpp.llama_supports_gpu_offload():
        return
    present = [name for name in available_backends() if name != "CPU"]
    if present:
        why = (
            f"the {' and '.join(present)} backend of llama.cpp found no GPU on this machine "
            "(does nvidia-smi list one?)"
        )
    else:
        why = (
            "this build of llama-cpp-python computes on the CPU alone; install a GPU build or add "
            f"a backend to it ({_GUIDE})"
        )
    raise UnsupportedError(f"n_gpu_layers={n_gpu_layers}: {why}, or use n_gpu_layers=0")


def _ggml(name: str, result: Any, *arguments: Any) -> Any:
    """A C function of the ggml library that llama.cpp itself uses."""
    try:
        function = getattr(importlib.import_module(f"{llama_cpp.__name__}._ggml").libggml, name)
    except (ImportError, AttributeError) as error:
        raise EngineError(
            f"llama-cpp-python {llama_cpp.__version__} gives no access to {name} ({error}); "
            "install a build that does"
        ) from error
    function.restype, function.argtypes = result, list(arguments)
    return function
