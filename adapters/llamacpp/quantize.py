"""A draft made of the target itself: the same GGUF file, quantised further by llama.cpp."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from ..errors import ModelFileError
from .library import llama_cpp, take_error

CACHE_VARIABLE = "CACTUS_RULES_CACHE"
_SAMPLE_BYTES = 1 << 20


def requantize(
    source: Path,
    type_name: str,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    n_threads: int | None = None,
) -> Path:
    """Path of `source` quantised to `type_name` (such as "Q2_K"), made on the first call.

    The result lies in `cache_dir`, or the folder in the environment variable CACTUS_RULES_CACHE, or
    ``~/.cache/cactus_rules``. It is written beside its place and moved there when it is complete,
    so an interrupted or concurrent call leaves no broken file.
    """
    kind = file_type(type_name)
    folder = Path(cache_dir or os.environ.get(CACHE_VARIABLE) or "~/.cache/cactus_rules")
    folder = folder.expanduser()
    made = folder / f"{source.stem}.{type_name.upper()}.{_fingerprint(source)}.gguf"
    if made.is_file():
        return made
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=made.stem, suffix=".part")
    except OSError as error:
        raise ModelFileError(
            f"cache_dir={str(folder)!r} cannot be written ({error.strerror}); give another "
            f"cache_dir or set {CACHE_VARIABLE}"
        ) from error
    os.close(handle)
    part = Path(name)
    try:
        _quantize(source, part, kind, type_name, n_threads)
        os.replace(part, made)
    finally:
        part.unlink(missing_ok=True)
    return made


def file_type(type_name: str) -> int:
    """Number of llama.cpp's file type `type_name`, for example "Q2_K" or "Q3_K_M"."""
    name = type_name.upper()
    prefix = "LLAMA_FTYPE_ALL_" if name == "F32" else "LLAMA_FTYPE_MOSTLY_"
    number = getattr(llama_cpp, prefix + name, None)
    if number is None:
        raise ValueError(
            f"draft='requantize:{type_name}' names no llama.cpp file type; use Q2_K, Q3_K_M, Q4_0, "
            "Q4_K_M or Q8_0"
        )
    return int(number)


def _quantize(source: Path, made: Path, kind: int, name: str, n_threads: int | None) -> None:
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = kind
    params.allow_requantize = True
    params.nthread = n_threads or 0
    take_error()
    status = llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(made), params)
    if status != 0:
        raise ModelFileError(
            f"draft='requantize:{name}': llama.cpp could not quantise {str(source)!r} "
            f"({take_error() or 'no reason given'}); try Q2_K, Q3_K_M or Q4_0"
        )


def _fingerprint(source: Path) -> str:
    """Digest of the file's size, of its start, middle and end, and of the quantising version.

    The file's time is left out: the same model, installed again, has the same draft.
    """
    size = source.stat().st_size
    digest = hashlib.sha256(f"{size} {llama_cpp.__version__}".encode())
    last = max(0, size - _SAMPLE_BYTES)
    with source.open("rb") as file:
        for start in (0, last // 2, last):
            file.seek(start)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]
