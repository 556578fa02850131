"""What llama.cpp can compute on: the backends of the build, and plug-ins added to it."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from pathlib import Path
from typing import Any

from ..errors import EngineError, ModelFileError, UnsupportedError
from .library import llama_cpp, take_error

_GUIDE = "docs/llamacpp.md, section 'On a GPU'"


def backends() -> tuple[str, ...]:
    """Names of the backends that are present, for example ``("CUDA", "CPU")``."""
    facts = llama_cpp.llama_print_system_info().decode()
    return tuple(re.findall(r"(?:^|\| )(\w+) : ", facts))


def load_backend(path: str | os.PathLike[str]) -> None:
    """Add a backend to a build of llama.cpp that lacks it, before the first model is loaded.

    Args:
        path: a ggml backend library of the same llama.cpp version, such as the ``libggml-cuda.so``
            that ``scripts/build_llamacpp_cuda.sh`` makes for a CPU build of llama-cpp-python.

    Raises:
        ModelFileError: there is no such file.
        EngineError: llama.cpp refused it; what it had goes on working.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ModelFileError(f"path={str(path)!r} is not a file; give a ggml backend library")
    load = _ggml_backend_load()
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
    present = [name for name in backends() if name != "CPU"]
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


def _ggml_backend_load() -> Any:
    """The C function, in the library that llama.cpp itself uses."""
    try:
        load = importlib.import_module(f"{llama_cpp.__name__}._ggml").libggml.ggml_backend_load
    except (ImportError, AttributeError) as error:
        raise EngineError(
            f"llama-cpp-python {llama_cpp.__version__} offers no way to load a backend ({error}); "
            "install a build that has it"
        ) from error
    load.argtypes, load.restype = [ctypes.c_char_p], ctypes.c_void_p
    return load
