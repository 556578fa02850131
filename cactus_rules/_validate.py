"""Checks of arguments: errors name the argument, the value, the remedy."""

from __future__ import annotations

import math
import numbers
import reprlib
from functools import cache
from typing import Any

import numpy as np

from cactus_rules._arrays import Array, Namespace, asarray, is_kind, namespace, numpy_namespace

_POLICIES = ("strict", "safe")


def check_policy(policy: str | None, default: str) -> str:
    """The policy to use, or ValueError."""
    if policy is None:
        return default
    if policy not in _POLICIES:
        raise ValueError(f"policy must be 'strict' or 'safe', got {policy!r}")
    return policy


def is_integer(value: object) -> bool:
    """Whether `value` is an integer of Python or numpy; True and False are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def as_rows(
    draft: Array | None, target: Array, names: tuple[str, str]
) -> tuple[Namespace, Array | None, Array]:
    """The namespace of the rows, and both as arrays of it; ValueError for what is no array.

    Nested lists are read as numpy reads them.
    """
    if isinstance(target, (list, tuple)):
        target = as_array(numpy_namespace, target, None, names[1])
    if isinstance(draft, (list, tuple)):
        draft = as_array(numpy_namespace, draft, None, names[0])
    try:
        xp = namespace(target) if draft is None else namespace(draft, target)
    except TypeError:
        kinds = " and ".join(type(rows).__name__ for rows in (draft, target))
        raise ValueError(
            f"{names[0]} and {names[1]} must be rows of probabilities (..., V), arrays of one "
            f"library or nested lists, got {kinds}; only {names[0]} may be None (one-hot drafts)"
        ) from None
    like = draft if isinstance(target, np.ndarray) else target
    target = as_array(xp, target, like, names[1])
    return xp, None if draft is None else as_array(xp, draft, target, names[0]), target


def as_array(xp: Namespace, value: Any, like: Array, name: str) -> Array:
    """`value` as an array of `xp` on the device of `like`; ValueError for what is none."""
    try:
        return asarray(xp, value, like)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be an array, or nested lists whose rows are of one length, "
            f"got {reprlib.repr(value)}"
        ) from None


def check_fits(name: str, given: tuple[int, ...], shape: tuple[int, ...], each: str) -> None:
    """ValueError unless an argument of shape `given` has a value for `each` entry of `shape`."""
    lacking = len(shape) - len(given)
    if lacking < 0 or any(n not in (1, m) for n, m in zip(given, shape[lacking:], strict=True)):
        wanted = f"one value per {each}, {shape}, or one number for all" if shape else "one number"
        raise ValueError(f"{name} {given} does not fit the {each}s {shape}: give {wanted}")


def common_shape(one: Any, other: Any, complaint: str) -> tuple[int, ...]:
    """The shape to which both broadcast; ValueError with the complaint where there is none."""
    try:
        return np.broadcast_shapes(one, other)
    except ValueError:
        raise ValueError(complaint) from None


def check_generator(rng: object) -> None:
    """ValueError unless `rng` draws as numpy's generators do."""
    if not isinstance(rng, (np.random.Generator, np.random.RandomState)):
        raise ValueError(
            f"rng must be a numpy generator, got {rng!r}: pass np.random.default_rng(seed)"
        )


def sum_tolerance(dtype: Any, width: int) -> float:
    """How far the sum of a row of `width` probabilities may be off 1 by its dtype alone.

    16 ulps for the rounding of entries that add up to 1, plus, below float64, a softmax that
    accumulated in float32 (an ulp of float32 times the root of the width), plus flushed subnormals.
    """
    if type(dtype).__module__ == "torch":
        return _sum_tolerance(str(dtype), width)
    # The type first: array-api-strict warns where its dtypes meet numpy's, as in a common cache.
    return _cached_sum_tolerance(type(dtype), dtype, width)  # type: ignore[arg-type]


@cache
def _cached_sum_tolerance(kind: type, dtype: Any, width: int) -> float:
    """For numpy, which takes microseconds to name a dtype; torch.compile warns of caches."""
    return _sum_tolerance(str(dtype), width)


def _sum_tolerance(dtype: str, width: int) -> float:
    name = dtype.rsplit(".", maxsplit=1)[-1]
    if name == "float64":
        return 2.0**-26
    eps = {"float32": 2.0**-23, "float16": 2.0**-10}.get(name, 2.0**-7)
    flushed = 2.0**-25 if name == "float16" else 0.0
    return 16 * eps + math.sqrt(width) * 2.0**-23 + width * flushed


def check_rows(
    xp: Namespace,
    rows: Array,
    name: str,
    used: Array | None = None,
    ids: np.ndarray | None = None,
    dtype: Any = None,
    repairs: bool = True,
) -> None:
    """ValueError unless every row `(..., V)` is a law.

    `used (...)` limits the check; `ids` are the names of the entries of candidate lists; `dtype`
    is that of the rows as the caller gave them; `repairs` says whether the call takes a policy.
    """
    dtype = rows.dtype if dtype is None else dtype
    fine = xp.isfinite(rows) & (rows >= 0)
    at = _first_unfit(xp, xp.all(fine, axis=-1), used)
    if at is not None:
        row = _to_list(rows[(*at, ...)])
        i = next(i for i, x in enumerate(row) if not (np.isfinite(x) and x >= 0))
        where = f"{name}[{', '.join(map(str, (*at, i if ids is None else ids[at][i])))}]"
        raise ValueError(
            f"{where} is {row[i]}: probabilities must be finite and >= 0; "
            "pass softmax outputs, not logits"
            + (", or policy='safe' to have bad rows repaired" if repairs else "")
        )
    total = xp.sum(xp.astype(rows, xp.float64), axis=-1)
    at = _first_unfit(xp, abs(total - 1) <= sum_tolerance(dtype, rows.shape[-1]), used)
    if at is not None:
        label = f"{name}[{', '.join(map(str, at))}]" if at else name
        value = float(total[at] if at else total)
        remedy = (
            "renormalise it (p and q are the draft's and the target's probabilities after all "
            "sampling filters)"
        )
        if abs(value - 1) <= sum_tolerance("float32", rows.shape[-1]):
            remedy = (
                "a softmax in float32 does that; divide the rows by their sums in float64, or "
                "keep them in float32"
            )
        raise ValueError(
            f"{label} sums to {value:.9g}, off 1 by more than {dtype} explains: {remedy}"
        )


def check_drafted(xp: Namespace, p_n: Array, token: Array, used: Array | None, name: str) -> None:
    """ValueError if a drafted token has draft probability 0: it cannot come from that row.

    `token` holds the ids as the caller gave them, also for candidate lists.
    """
    at = _first_unfit(xp, p_n > 0, used)
    if at is not None:
        value = int(token[at] if at else token)
        raise ValueError(
            f"token {value} has probability 0 in {name}{list(at) or ''}, so it was not drawn from "
            "it: pass the row that the token was sampled from (p is the draft, q the target; "
            "check the order), or None for a one-hot draft"
        )


def check_tokens(
    xp: Namespace, token: Array, width: int | None, used: Array | None, name: str
) -> None:
    """ValueError if a token id lies outside the row, or is negative if its width is not known.

    `used` are the positions before a draft's padding; None where there is no padding.
    """
    inside = (token >= 0) if width is None else (token >= 0) & (token < width)
    at = _first_unfit(xp, inside, used)
    if at is not None:
        value = int(token[at] if at else token)
        raise ValueError(
            f"{name}{list(at) or ''} is {value}, outside the vocabulary"
            f"{'' if width is None else f' of {width} tokens'}: "
            + (
                "give one drafted token per row, an id that the target has; verify takes drafts "
                "that end early"
                if used is None
                else "pad short drafts with -1 at their end, and drop ids that the target does "
                "not have"
            )
        )


def check_uniforms(xp: Namespace, uniforms: Array, name: str = "uniforms") -> None:
    """ValueError unless all uniforms are numbers in [0, 1)."""
    if not isinstance(uniforms, float) and not any(
        is_kind(xp, uniforms, kind) for kind in ("real floating", "integral")
    ):
        raise ValueError(f"{name} must hold numbers in [0, 1), got dtype {uniforms.dtype}")
    fine = (uniforms >= 0) & (uniforms < 1)
    if not bool(fine if getattr(fine, "ndim", 0) == 0 else xp.all(fine)):
        raise ValueError(f"{name} must be in [0, 1): draw them with rng.random()")


def _first_unfit(xp: Namespace, ok: Array, used: Array | None) -> tuple[int, ...] | None:
    """Index of the first False where `used`, which None makes everywhere; None if there is none."""
    if used is not None:
        ok = ok | ~used
    if bool(xp.all(ok)):
        return None
    flags = np.asarray(_to_list(ok))
    return tuple(int(i) for i in np.argwhere(~flags)[0]) if flags.ndim else ()


def _to_list(array: Array) -> Any:
    return array.tolist() if hasattr(array, "tolist") else np.asarray(array).tolist()
