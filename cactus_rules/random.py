"""Uniform numbers that belong to a request, not to a batch slot: Philox 4x32-10.

    key = seed (64 bits),  counter = (step, k, stream),  u = (x >> 11) * 2^-53

A step names one target call of a request, k a position in its draft, a stream the purpose. The
same request therefore gets the same numbers in any slot and any batch, and none is used twice. The
integer arithmetic stays inside int64, so that numpy, torch and the kernels give the same bits.

[1] Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from cactus_rules._arrays import Array, Namespace, asarray, namespace

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


class Stream(IntEnum):
    """What a uniform number is for; the streams of one request never meet."""

    DRAFT = 0
    COIN = 1
    DRAW = 2


def uniforms(seed: Array, step: Array, k: Array, stream: int) -> Array:
    """Uniform numbers in [0, 1) for the given request seeds, target calls and draft positions.

    Args:
        seed: 64-bit integers that name requests.
        step: the number of the request's target call, >= 0.
        k: the position in the draft, >= 0.
        stream: a `Stream`.

    Returns:
        float64, the arguments' broadcast shape; multiples of 2^-53.
    """
    xp = namespace(seed, step, k)
    like = next((x for x in (seed, step, k) if hasattr(x, "shape")), seed)
    seed, step, k = (_int64(xp, value, like) for value in (seed, step, k))
    zero = 0 * (seed + step + k)
    counter = (
        zero + (step & _MASK),
        zero + ((step >> 32) & _MASK),
        zero + (k & _MASK),
        zero + int(stream),
    )
    words = philox(counter, (zero + (seed & _MASK), zero + ((seed >> 32) & _MASK)))
    # (x >> 11) of the 64-bit word x = words[1] * 2^32 + words[0].
    high = (words[1] << 21) | (words[0] >> 11)
    return xp.astype(high, xp.float64) * 2.0**-53


def philox(
    counter: tuple[Array, Array, Array, Array], key: tuple[Array, Array]
) -> tuple[Array, Array, Array, Array]:
    """Philox 4x32-10: four 32-bit words from a counter and a key of such words, all in int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def _multiply(a: Array, constant: int) -> tuple[Array, Array]:
    """High and low 32-bit words of the product of two 32-bit words, without leaving 63 bits."""
    low = a * (constant & 0xFFFF)
    high = a * (constant >> 16) + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def _int64(xp: Namespace, value: Array, like: Array) -> Array:
    if isinstance(value, int) and value >= 2**63:
        value -= 2**64
    if isinstance(value, np.ndarray) and value.dtype == np.uint64:
        value = value.view(np.int64)
    array = asarray(xp, value, like)
    if not xp.isdtype(array.dtype, "integral"):
        raise ValueError(f"seed, step and k must be integers, got dtype {array.dtype}")
    return xp.astype(array, xp.int64)
