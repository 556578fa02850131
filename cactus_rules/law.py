r"""The exact output law of every rule, and how far it is from the target.

With drafted n from p, coin and residual, the emitted token has the law

    out_i = min(p_i, cap_i) + sum_n (p_n - cap_n)+ * residual_i^(n)

where residual^(n) depends on n through scale_n only. Sorted by scale and by p/q the double sum is
one pass over cumulative sums: O(V log V) for any rule.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass

import numpy as np

from cactus_rules import _validate, divergences
from cactus_rules._arrays import Array, namespace, quiet, to_numpy
from cactus_rules._positions import read_positions
from cactus_rules.residual import residual_weights
from cactus_rules.rules.base import Numbers, Rule, check_rule
from cactus_rules.sparse import Sparse

_XP = namespace(np.empty(0))


@dataclass(frozen=True)
class Audit:
    """How much a rule accepts on given rows, and how far its output law is from the target.

    Float64 arrays `(...)`, one entry per row; divergences in nats, all of the **output law**.
    """

    acceptance_rate: np.ndarray
    """Probability that a drafted token is kept."""
    kl: np.ndarray
    """KL(output || target)."""
    reverse_kl: np.ndarray
    """KL(target || output)."""
    tv: np.ndarray
    """Total variation distance."""
    chi2: np.ndarray
    """Pearson's chi-square of the output against the target."""
    max_divergence: np.ndarray
    """log max output/target."""
    law: np.ndarray
    """The output law `(..., V)`."""


def output_law(p: Array, q: Array, rule: Rule, *, one_hot: bool = False) -> np.ndarray:
    """The law of the token emitted at one position, exactly.

    Args:
        p: draft rows `(..., V)` that tokens are drawn from. Any array, or nested lists; computed in
            float64 numpy.
        q: target rows `(..., V)`.
        rule: parameters may be arrays `(...)`, one value per row.
        one_hot: the verifier is told a one-hot draft (draft_probs=None), though tokens come from p.

    Returns:
        float64 `(..., V)`.

    Raises:
        ValueError: rows that are not laws, or of different shape; `Sparse` lists (pass
            ``.dense(vocabulary_size)``); parameters of a shape that does not fit.
    """
    return _analyse(p, q, rule, one_hot)[0]


def audit(p: Array, q: Array, rule: Rule, *, one_hot: bool = False) -> Audit:
    """Acceptance rate and divergences of the output law, exactly; arguments as in `output_law`."""
    law, rate, q = _analyse(p, q, rule, one_hot)
    between = {name: d.between(law, q) for name, d in divergences.BY_NAME.items()}
    return Audit(
        rate,
        between["kl"],
        between["reverse_kl"],
        between["tv"],
        between["chi2"],
        between["max"],
        law,
    )


def _as_numpy(rows: Array, name: str) -> np.ndarray:
    if isinstance(rows, Sparse):
        raise ValueError(
            f"{name} is Sparse, but the output law is one over the whole vocabulary: pass "
            f"{name}.dense(vocabulary_size)"
        )
    try:
        array = to_numpy(rows)
    except (TypeError, ValueError):
        array = np.empty(())
    if rows is None or array.ndim == 0:
        raise ValueError(
            f"{name} must be rows (..., V), an array or nested lists of one length, "
            f"got {reprlib.repr(rows)}"
            + (": one_hot=True needs the law that tokens are drawn from too" * (rows is None))
        )
    return array


def _normalised(array: np.ndarray, rows: Array, name: str) -> np.ndarray:
    # Each dtype's sums are off 1 by its own rounding; float64 rows may come from a float32 softmax.
    dtype = str(getattr(rows, "dtype", array.dtype)).rsplit(".", maxsplit=1)[-1]
    dtype = "float32" if dtype == "float64" else dtype
    _validate.check_rows(_XP, array, name, dtype=dtype, repairs=False)
    return np.asarray(array / array.sum(axis=-1, keepdims=True))


def _analyse(
    p: Array, q: Array, rule: Rule, one_hot: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The output law, the acceptance rate, and the target rows in float64, of sum 1."""
    check_rule(rule)
    given_p, given_q = p, q
    p, q = _as_numpy(p, "p"), _as_numpy(q, "q")
    if p.shape != q.shape:
        raise ValueError(
            f"p {p.shape} and q {q.shape} must have one shape (..., V): pad the smaller "
            "vocabulary with zeros"
        )
    rule.check_shapes(p.shape[:-1], p.shape, "row")
    p, q = _normalised(p, given_p, "p"), _normalised(q, given_q, "q")
    read_one_hot = one_hot or rule.ignores_draft
    tokens = np.broadcast_to(np.arange(p.shape[-1]), p.shape)
    draft = None if read_one_hot else np.where(p > 0, p, 0.0)
    with quiet(_XP):
        numbers, told = _numbers(rule.aligned(), draft, q, tokens)
        kept = p * np.where(numbers.cap < told, numbers.cap / told, 1.0)
        kept = np.where(p > 0, kept, 0.0)
        rejected = p - kept
        law = np.empty_like(p)
        for row in np.ndindex(*p.shape[:-1]):
            law[row] = kept[row] + _recovered(
                None if draft is None else draft[row], q[row], rejected[row], _pick(numbers, row)
            )
    return law, kept.sum(axis=-1), q


def _numbers(
    rule: Rule, draft: np.ndarray | None, q: np.ndarray, tokens: np.ndarray
) -> tuple[Numbers, np.ndarray]:
    """The rule's numbers for every token as the drafted one, and p_n as the verifier is told it."""
    at = read_positions(
        _XP,
        rule,
        None if draft is None else draft[..., None, :],
        q[..., None, :],
        tokens,
    )
    shape = q.shape
    parts = (at.numbers.cap, at.numbers.scale, at.numbers.floor, at.numbers.floor_id)
    full = (None if part is None else np.broadcast_to(part, shape) for part in parts)
    return Numbers(*full), at.p_n


def _pick(numbers: Numbers, row: tuple[int, ...]) -> Numbers:
    """The numbers of one row; a floor is one for the whole row."""
    floor, floor_id = (
        None if part is None else part[row][0] for part in (numbers.floor, numbers.floor_id)
    )
    return Numbers(numbers.cap[row], np.asarray(numbers.scale)[row], floor, floor_id)


def _recovered(
    p: np.ndarray | None, q: np.ndarray, rejected: np.ndarray, numbers: Numbers
) -> np.ndarray:
    """sum_n rejected_n residual^(n), for one row."""
    if not rejected.any():
        return np.zeros_like(q)
    if p is None:
        return _recovered_one_hot(q, rejected, numbers)
    scales = np.asarray(numbers.scale)
    if np.all(scales == scales[0]):
        token = np.argmax(rejected)
        weights = residual_weights(
            _XP, p, q, token, Numbers(0.0, scales[0], numbers.floor, numbers.floor_id)
        )
        weights = weights if weights.any() else q
        return np.asarray(rejected.sum() * (weights / weights.sum()))
    return _recovered_by_scale(p, q, rejected, scales)


def _recovered_one_hot(q: np.ndarray, rejected: np.ndarray, numbers: Numbers) -> np.ndarray:
    """Residual of n: q on the floor's set; without n unless the scale is infinite."""
    allowed = q
    if numbers.floor is not None and numbers.floor_id is not None:
        ids = np.arange(len(q))
        inside = (q > numbers.floor) | ((q == numbers.floor) & (ids <= numbers.floor_id))
        allowed = np.where(inside, q, 0.0)
    whole = np.asarray(numbers.scale) == math.inf
    law = allowed / allowed.sum() * rejected[whole].sum()
    without = np.where(whole, 0.0, rejected)
    rest = 1.0 - q
    share = np.where(rest > 0, without / np.where(rest > 0, rest, 1.0), 0.0)
    alone = np.where(rest > 0, 0.0, without)
    return np.asarray(law + q * (share.sum() - share) + alone)


def _recovered_by_scale(
    p: np.ndarray, q: np.ndarray, rejected: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    """sum_n rejected_n (scale_n q - p)+ / Z(scale_n), by cumulative sums over sorted scales."""
    hit = rejected > 0
    order = np.argsort(scales[hit], kind="stable")
    s, mass = scales[hit][order], rejected[hit][order]
    inside = q > 0
    ratio = np.where(inside, p / np.where(inside, q, 1.0), math.inf)
    by_ratio = np.argsort(ratio, kind="stable")
    q_sum = np.concatenate([[0.0], np.cumsum(q[by_ratio])])
    p_sum = np.concatenate([[0.0], np.cumsum(p[by_ratio])])
    below = np.searchsorted(ratio[by_ratio], s, side="left")
    total = s * q_sum[below] - p_sum[below]
    share = np.where(total > 0, mass / np.where(total > 0, total, 1.0), 0.0)
    # Entry j sums over the scales from the j-th on; token i meets those above p_i/q_i.
    zeroth = np.concatenate([np.cumsum(share[::-1])[::-1], [0.0]])
    first = np.concatenate([np.cumsum((share * s)[::-1])[::-1], [0.0]])
    start = np.searchsorted(s, ratio, side="right")
    law = np.maximum(q * first[start] - np.where(inside, p, 0.0) * zeroth[start], 0.0)
    lost = np.zeros_like(q)
    lost[np.flatnonzero(hit)[order]] = np.where(total > 0, 0.0, mass)
    return np.asarray(law + _recovered_one_hot(q, lost, Numbers(0.0, 1.0 + 0 * q)))
