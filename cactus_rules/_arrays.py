"""The little that this library needs on top of the array API: namespaces, gathers, float64."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

import array_api_compat
import array_api_compat.numpy
import numpy as np

Array: TypeAlias = Any
"""A numpy, torch, cupy, jax or array-api-strict array; scalars count as numpy."""

Namespace: TypeAlias = Any

numpy_namespace: Namespace = array_api_compat.numpy

_PLAIN = (np.ndarray, np.generic, float, int)


_SCALAR_FUNCTIONS = ("sqrt", "exp", "expm1", "log1p", "sign", "sin", "asin", "atan2", "asarray")


def _where(condition: Any, then: Any, otherwise: Any) -> Any:
    if condition:
        return then
    return np.float64(otherwise) if type(otherwise) is float else otherwise


scalars: Namespace = SimpleNamespace(
    **{name: getattr(np, name) for name in _SCALAR_FUNCTIONS},
    float64=np.float64,
    where=_where,
    minimum=lambda a, b: b if b < a else a,
)
"""Numpy's own functions for numpy scalars, less the array overhead where a branch will do."""


class Kernels(Protocol):
    """What takes the place of the core's own passes over rows."""

    def decide(self, draft: Array | None, target: Rows, at: Any, length: Array, u: Array) -> Any:
        """As `cactus_rules._walk.decide_plainly`."""

    def clip_within_budget(
        self, draft: Rows, target: Rows, divergence: Any, delta: Array
    ) -> tuple[Array, Array] | None:
        """As `cactus_rules._clip.clip_within_budget`; None for a divergence without a kernel."""


class Rows(ABC):
    """Rows of probabilities `(..., V)` that are read in a way of their own, such as logits.

    For adapters: `verify` takes them in the place of arrays, under the safe policy.
    """

    stored: Array
    """The array behind the rows, of the same shape."""
    kernels: Kernels | None = None
    """Takes the place of the core's passes over the rows of a target, where there is one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the rows."""
        return tuple(self.stored.shape)

    @property
    def dtype(self) -> Any:
        """Dtype of the stored array."""
        return self.stored.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @abstractmethod
    def gather(self, index: Array) -> Array:
        """Probabilities of the tokens `index (...)`, float64."""

    @abstractmethod
    def row_at(self, k: Array) -> Array:
        """The rows `(..., V)` of one position `k (...)` per request."""

    @abstractmethod
    def whole(self) -> Array:
        """All rows, float64."""

    @abstractmethod
    def is_measure(self) -> Array:
        """Whether all probabilities of a row are finite and >= 0, `(...)`."""

    @abstractmethod
    def first(self, count: int) -> Rows:
        """The rows of the first `count` positions."""


def kernels_of(rows: Array) -> Kernels | None:
    """The kernels that rows bring along."""
    return rows.kernels if isinstance(rows, Rows) else None


def namespace(*arrays: Array) -> Namespace:
    """The array namespace that all the given arrays share; numpy for plain Python numbers."""
    stored = [_stored(array) for array in arrays if not isinstance(array, _PLAIN)]
    if not stored:
        return numpy_namespace
    if all(map(_is_tensor, stored)):
        # torch.compile cannot trace array_namespace without warnings.
        import array_api_compat.torch as torch_namespace

        return torch_namespace
    return array_api_compat.array_namespace(*stored)


def is_numpy(xp: Namespace) -> bool:
    """Whether `xp` is numpy, where checks are free of device synchronisation."""
    return xp is numpy_namespace


def is_torch(xp: Namespace) -> bool:
    """Whether `xp` is torch."""
    return getattr(xp, "__name__", "") in ("torch", "array_api_compat.torch")


def device_of(array: Array) -> Any:
    """The device of an array, None for plain Python numbers."""
    if isinstance(array, _PLAIN):
        return None
    stored = _stored(array)
    return stored.device if _is_tensor(stored) else array_api_compat.device(stored)


def has_axes(value: Any) -> bool:
    """Whether it is an array with axes: several values, not one."""
    # Numbers first: of a number that it traces, torch.compile knows no attributes.
    return not isinstance(value, (float, int, str)) and getattr(value, "ndim", 0) > 0


def _stored(array: Array) -> Array:
    return array.stored if isinstance(array, Rows) else array


def _is_tensor(array: Array) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def asarray(xp: Namespace, value: Any, like: Array) -> Array:
    """`value` as an array of `xp` on the device of `like`; arrays of `xp` pass through."""
    if not isinstance(value, _PLAIN) and hasattr(value, "dtype") and not is_numpy(xp):
        return value
    if is_numpy(xp):
        return np.asarray(value)
    if isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        # Filled on the device: a copy from the host would break the capture of a CUDA graph.
        dtype = xp.float64 if isinstance(value, float) else xp.int64
        return xp.full((), value, dtype=dtype, device=device_of(like))
    # By way of numpy: torch would read a list of floats as float32.
    return xp.asarray(np.array(value), device=device_of(like))


def float64(xp: Namespace, array: Array) -> Array:
    """`array` in float64, on its own device; a numpy scalar stays a scalar."""
    if isinstance(array, (float, int, np.generic)):
        return np.float64(array)
    if isinstance(array, Rows):
        return array.whole()
    return xp.astype(array, xp.float64, copy=False)


def gather(xp: Namespace, rows: Array, index: Array) -> Array:
    """`rows[..., index]` for `rows (..., V)` and `index (...)`, in float64."""
    if isinstance(rows, Rows):
        return rows.gather(index)
    if rows.ndim == 1 and isinstance(index, np.generic):
        return np.float64(rows[index])
    if rows.ndim == 1:
        return float64(xp, rows[index] if index.ndim == 0 else xp.take(rows, index))
    batch = np.broadcast_shapes(tuple(rows.shape[:-1]), tuple(index.shape))
    rows = xp.broadcast_to(rows, (*batch, rows.shape[-1]))
    index = xp.broadcast_to(index, batch)
    return float64(xp, xp.take_along_axis(rows, index[..., None], axis=-1)[..., 0])


def positive(xp: Namespace, x: Array) -> Array:
    """The positive part max(x, 0); NaN stays NaN."""
    return xp.maximum(x, xp.zeros((), dtype=x.dtype, device=getattr(x, "device", None)))


def possible(xp: Namespace, condition: Array) -> bool:
    """False if a condition is known to hold nowhere; True where looking would synchronise.

    On the CPU looking is free; on other devices, and for a compiler, it is not.
    """
    if is_numpy(xp):
        return bool(np.any(condition))
    if not is_torch(xp) or xp.compiler.is_compiling():
        return True
    return condition.device.type != "cpu" or bool(condition.any())


def cumulative_sum(xp: Namespace, rows: Array) -> Array:
    """Running sums along the last axis."""
    # array-api-compat looks for the namespace again, by caches that torch.compile warns of.
    return xp.cumsum(rows, dim=-1) if is_torch(xp) else xp.cumulative_sum(rows, axis=-1)


def is_kind(xp: Namespace, array: Array, kind: str) -> bool:
    """Whether the dtype is of the array API's kind "integral" or "real floating"."""
    if is_numpy(xp):
        return array.dtype.kind in ("iu" if kind == "integral" else "f")
    return bool(xp.isdtype(array.dtype, kind))


def quiet(xp: Namespace) -> AbstractContextManager[Any]:
    """Silence numpy's floating point warnings where the limit cases are handled by hand.

    Array libraries that are built on numpy warn as numpy does; torch's compiler knows no errstate.
    """
    return nullcontext() if is_torch(xp) else np.errstate(all="ignore")


def to_numpy(array: Array) -> np.ndarray:
    """A float64 numpy copy of any array, from any device, for offline analysis."""
    if hasattr(array, "detach"):
        array = array.detach().cpu().double()
    return np.asarray(array, dtype=np.float64)
