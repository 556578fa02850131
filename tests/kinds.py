"""The array kinds that everything runs on, each with its way in and out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Kind:
    """`make` turns a numpy array into one of this kind, `back` an array of it into numpy."""

    name: str
    make: Callable[[Any], Any]
    back: Callable[[Any], np.ndarray]

    @property
    def is_numpy(self) -> bool:
        """Whether arrays of this kind are numpy's: the strict policy is their default."""
        return self.name.startswith("numpy")


class UnavailableError(Exception):
    """An array library that this environment lacks; the text is the reason of the skip."""


def _read_only(array: Any) -> np.ndarray:
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def _strict() -> Kind:
    try:
        import array_api_strict as strict
    except ImportError as error:
        raise UnavailableError(f"array-api-strict is not installed: {error}") from None
    return Kind("array-api-strict", lambda x: strict.asarray(np.array(x)), np.asarray)


def _torch() -> Kind:
    try:
        import torch
    except ImportError as error:
        raise UnavailableError(f"torch is not installed: {error}") from None
    torch.set_num_threads(1)  # the rows are small, and the tests run in processes of their own
    return Kind("torch", lambda x: torch.asarray(np.array(x)), lambda x: x.numpy())


_MAKERS: dict[str, Callable[[], Kind]] = {
    "numpy": lambda: Kind("numpy", np.array, np.asarray),
    "numpy-read-only": lambda: Kind("numpy-read-only", _read_only, np.asarray),
    "array-api-strict": _strict,
    "torch": _torch,
}

NAMES = tuple(_MAKERS)


def kind(name: str) -> Kind:
    """The kind of a name; `UnavailableError` where its library is missing."""
    return _MAKERS[name]()
