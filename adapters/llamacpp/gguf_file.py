"""Whether a file is a GGUF file, and whether it is whole, without loading it.

llama.cpp answers a bad file with lines of log and a null pointer. The checks here come first (a
few bytes are read), and `load_failure` explains afterwards why a load did not work.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from ..errors import ModelFileError

_MAGIC = b"GGUF"
_HEADER_BYTES = 24
_STRING, _ARRAY = 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def checked_path(source: str | os.PathLike[str], argument: str) -> Path:
    """Return `source` as a path if it is a file with a GGUF header, else raise `ModelFileError`."""
    path = Path(source).expanduser()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ModelFileError(f"{argument}={str(source)!r} {what}; give the path of a GGUF file")
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
    except OSError as error:
        raise ModelFileError(
            f"{argument}={str(source)!r} cannot be read ({error.strerror}); check its permissions"
        ) from error
    if head[:4] != _MAGIC:
        raise ModelFileError(
            f"{argument}={str(source)!r} is not a GGUF file (it starts with {head[:4]!r}, not "
            f"{_MAGIC!r}); convert the model to GGUF first"
        )
    if len(head) < _HEADER_BYTES:
        raise ModelFileError(_cut(argument, source, len(head)))
    return path


def load_failure(path: Path, argument: str, engine_error: str) -> ModelFileError:
    """Explain why llama.cpp, whose last words were `engine_error`, did not load `path`."""
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            whole = _last_tensor_start(file) < size
        except (EOFError, KeyError, MemoryError, OverflowError, struct.error):
            whole = False
    if not whole or "file bounds" in engine_error:
        return ModelFileError(_cut(argument, path, size))
    return ModelFileError(
        f"{argument}={str(path)!r} cannot be loaded by llama.cpp "
        f"({engine_error or 'no reason given'}); use a newer llama-cpp-python or another file"
    )


def _cut(argument: str, source: str | os.PathLike[str], size: int) -> str:
    return (
        f"{argument}={str(source)!r} is truncated or damaged: its {size} bytes end before the data "
        "that its header promises; copy or download it again"
    )


def _last_tensor_start(file: BinaryIO) -> int:
    """Offset in the file at which the data of the last tensor starts."""
    file.seek(8)
    n_tensors, n_pairs = _unpack(file, "<QQ")
    alignment = 32
    for _ in range(n_pairs):
        key = _read(file, _unpack(file, "<Q")[0])
        (kind,) = _unpack(file, "<I")
        if key == b"general.alignment":
            (alignment,) = _unpack(file, "<I")
        else:
            _skip(file, kind)
    last = 0
    for _ in range(n_tensors):
        _skip(file, _STRING)
        (n_dims,) = _unpack(file, "<I")
        last = max(last, _unpack(file, f"<{n_dims}QIQ")[-1])
    return -(-file.tell() // alignment) * alignment + last


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _seek_past(file, _unpack(file, "<Q")[0])
    elif kind == _ARRAY:
        inner, count = _unpack(file, "<IQ")
        if inner in _SCALAR_BYTES:
            _seek_past(file, _SCALAR_BYTES[inner] * count)
        else:
            for _ in range(count):
                _skip(file, inner)
    else:
        _seek_past(file, _SCALAR_BYTES[kind])


def _seek_past(file: BinaryIO, count: int) -> None:
    if count:
        file.seek(count - 1, os.SEEK_CUR)
        _read(file, 1)


def _read(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _unpack(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, _read(file, struct.calcsize(form)))
