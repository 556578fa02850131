"""The little that this library needs on top of the array API: namespaces, gathers, float64."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, TypeAlias

import array_api_compat
import array_api_compat.numpy as numpy_namespace
import numpy as np

Array: TypeAlias = Any
"""A numpy, torch, cupy, jax or array-api-strict array; scalars count as numpy."""

Namespace: TypeAlias = Any

_PLAIN = (np.ndarray, np.generic, float, int)


_SCALAR_FUNCTIONS = ("sqrt", "exp", "expm1", "log1p", "sign", "sin", "asin", "atan2", "asarray")

scalars: Namespace = SimpleNamespace(
    **{name: getattr(np, name) for name in _SCALAR_FUNCTIONS},
    float64=np.float64,
    where=lambda condition, then, otherwise: then if condition else otherwise,
    minimum=lambda a, b: b if b < a else a,
)
"""Numpy's own functions for numpy scalars, less the array overhead where a branch will do."""


def namespace(*arrays: Array) -> Namespace:
    """The array namespace that all the given arrays share; numpy for plain Python numbers."""
    if all(isinstance(array, _PLAIN) for array in arrays):
        return numpy_namespace
    return array_api_compat.array_namespace(
        *(array for array in arrays if not isinstance(array, _PLAIN))
    )


def is_numpy(xp: Namespace) -> bool:
    """Whether `xp` is numpy, where checks are free of device synchronisation."""
    return xp is numpy_namespace


def device_of(array: Array) -> Any:
    """The device of an array, None for plain Python numbers."""
    return None if isinstance(array, _PLAIN) else array_api_compat.device(array)


def asarray(xp: Namespace, value: Any, like: Array) -> Array:
    """`value` as an array of `xp` on the device of `like`; arrays of `xp` pass through."""
    if hasattr(value, "dtype") and not isinstance(value, _PLAIN) and not is_numpy(xp):
        return value
    if is_numpy(xp):
        return np.asarray(value)
    return xp.asarray(value, device=device_of(like))


def float64(xp: Namespace, array: Array) -> Array:
    """`array` in float64, on its own device; a numpy scalar stays a scalar."""
    if isinstance(array, (float, int, np.generic)):
        return np.float64(array)
    return xp.astype(array, xp.float64, copy=False)


def gather(xp: Namespace, rows: Array, index: Array) -> Array:
    """`rows[..., index]` for `rows (..., V)` and `index (...)`, in float64."""
    if rows.ndim == 1 and isinstance(index, np.generic):
        return np.float64(rows[index])
    if rows.ndim == 1:
        return float64(xp, rows[index] if index.ndim == 0 else xp.take(rows, index))
    batch = np.broadcast_shapes(tuple(rows.shape[:-1]), tuple(index.shape))
    rows = xp.broadcast_to(rows, (*batch, rows.shape[-1]))
    index = xp.broadcast_to(index, batch)
    return float64(xp, xp.take_along_axis(rows, index[..., None], axis=-1)[..., 0])


def is_kind(xp: Namespace, array: Array, kind: str) -> bool:
    """Whether the dtype is of the array API's kind "integral" or "real floating"."""
    if is_numpy(xp):
        return array.dtype.kind in ("iu" if kind == "integral" else "f")
    return bool(xp.isdtype(array.dtype, kind))


def quiet(xp: Namespace) -> AbstractContextManager[Any]:
    """Silence numpy's floating point warnings where the limit cases are handled by hand."""
    return np.errstate(all="ignore") if is_numpy(xp) else nullcontext()


def to_numpy(array: Array) -> np.ndarray:
    """A float64 numpy copy of any array, from any device, for offline analysis."""
    if hasattr(array, "detach"):
        array = array.detach().cpu().double()
    return np.asarray(array, dtype=np.float64)
