"""`accept`: one drafted token (or a batch of them) against one rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cactus_rules import _validate
from cactus_rules._arrays import (
    Array,
    Namespace,
    asarray,
    gather,
    is_kind,
    is_numpy,
    numpy_namespace,
    quiet,
)
from cactus_rules._positions import Positions, read_positions, recovered_weights
from cactus_rules.residual import draw_index
from cactus_rules.rules import Cactus, Rule
from cactus_rules.rules.base import check_rule
from cactus_rules.sparse import Sparse, align, emptied


@dataclass(frozen=True)
class Acceptance:
    """The decision on drafted tokens before any randomness: what `accept` returns.

    Nothing of the size of the vocabulary is computed until `residual` or a rejecting `sample`.
    """

    probability: Array
    """Of keeping the token, min(1, cap/p_n), float64 `(...)`."""
    cap: Array
    """The rule's cap, float64 `(...)`: the token is kept iff u p_n < cap."""
    scale: Array
    """The rule's scale, float64 `(...)`: a recovered token is drawn from max(scale q - p, 0)."""
    status: Array
    """`Status` bits `(...)`: what the safe policy repaired; 0 is nothing."""
    ids: np.ndarray | None
    """Token ids of the columns of `residual`, for `Sparse` rows; None for dense rows."""
    _at: Positions = field(repr=False)
    _rows: tuple[Namespace, Array | None, Array] = field(repr=False)

    def decide(self, u: Array) -> Array:
        """Whether to keep the token, for uniform numbers `u (...)` in [0, 1): u p_n < cap.

        Raises:
            ValueError: u outside [0, 1) or of a shape that does not fit, for numpy rows.
        """
        xp = self._rows[0]
        if is_numpy(xp):
            if not isinstance(u, float):
                u = _validate.as_array(xp, u, self.cap, "u")
                if u.shape != self.cap.shape:
                    _validate.common_shape(
                        u.shape,
                        self.cap.shape,
                        f"u {u.shape} does not fit the tokens {self.cap.shape}: give one per token",
                    )
            _validate.check_uniforms(xp, u, "u")
        return u * self._at.p_n < self.cap

    def residual(self) -> Array:
        """The law of the recovered token after a rejection, float64 `(..., V)`, normalised."""
        xp = self._rows[0]
        weights = self._weights()
        return weights / xp.sum(weights, axis=-1)[..., None]

    def sample(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """(accepted, token): the drafted token, or one drawn from the residual.

        Raises:
            ValueError: `rng` is no numpy generator.
        """
        _validate.check_generator(rng)
        xp, _, target = self._rows
        shape = tuple(self._at.token.shape)
        accepted = self.decide(asarray(xp, rng.random(shape), target))
        if is_numpy(xp) and np.all(accepted):
            return accepted, self._named(self._at.token)
        drawn = draw_index(xp, self._weights(), asarray(xp, rng.random(shape), target))
        return accepted, self._named(xp.where(accepted, self._at.token, drawn))

    def _weights(self) -> Array:
        xp, draft, target = self._rows
        with quiet(xp):
            return recovered_weights(xp, draft, target, self._at)[0]

    def _named(self, columns: Array) -> Array:
        if self.ids is None:
            return columns
        return np.take_along_axis(self.ids, columns[..., None], axis=-1)[..., 0]


def accept(
    p: Array | Sparse | None,
    q: Array | Sparse,
    /,
    token: Array,
    delta: Any = None,
    *,
    rule: Rule | None = None,
    policy: str | None = None,
) -> Acceptance:
    """Decide on drafted tokens by an acceptance rule; Cactus with the exact solver by default.

    Args:
        p: **draft** probabilities `(..., V)` that the token was really drawn from, after all
            sampling filters; or None for a one-hot draft (n-gram, argmax). Many papers call it q.
            An array of any library; nested lists of floats count as numpy arrays.
        q: **target** probabilities `(..., V)`, after the same kind of filters. Many call it p.
        token: drafted token ids `(...)`.
        delta: Cactus' budget in nats, a number or `(...)`; short for ``rule=Cactus(delta)``.
        rule: any rule of this library, instead of `delta`.
        policy: "strict" (default for numpy and `Sparse`) reads whole rows and raises ValueError for
            bad data. "safe" (default for other arrays) reads p[token] and q[token] only, so that
            the cost does not depend on V, and repairs: a bad p[token] is read as a one-hot draft,
            a bad q[token] or a token outside the row has cap 0.

    Returns:
        An `Acceptance`. It holds no randomness: `.decide(u)` and `.sample(rng)` take it.

    Raises:
        ValueError: shapes that do not fit, bad parameters, and under "strict" bad data: entries
            that are NaN, negative or infinite, sums off by more than the dtype explains, a token
            outside the row or with p[token] = 0. Swapping p and q raises no error by itself.
    """
    if (rule is None) == (delta is None):
        raise ValueError("give either delta (for Cactus) or rule=..., exactly one of them")
    rule = _cactus(delta) if rule is None else check_rule(rule)
    ids, given = None, token
    if isinstance(q, Sparse) or isinstance(p, Sparse):
        p, q, token, ids = _aligned(p, q, token)
    xp, p, q = _validate.as_rows(p, q, ("p", "q"))
    token = _validate.as_array(xp, token, q, "token")
    batch = _check_shapes(xp, p, q, token)
    rule.check_shapes(batch, batch, "row")
    policy = _validate.check_policy(policy, "strict" if is_numpy(xp) else "safe")
    if policy == "strict":
        named = token if ids is None else np.asarray(given)
        _validate.check_tokens(xp, named, q.shape[-1] if ids is None else None, None, "token")
        _validate.check_rows(xp, q, "q", ids=ids)
        if p is not None:
            _validate.check_rows(xp, p, "p", ids=ids)
            _validate.check_drafted(xp, gather(xp, p, token), named, None, "p")
    elif ids is not None:
        q = emptied(q)
    draft = None if rule.ignores_draft else p
    with quiet(xp):
        at = read_positions(xp, rule, draft, q, token)
        ratio = at.numbers.cap / at.p_n
        probability = xp.where(ratio < 1, ratio, 1.0 + 0 * at.p_n * at.q_n)
        scale = at.numbers.scale + 0 * at.p_n
    return Acceptance(probability, at.numbers.cap, scale, at.status, ids, at, (xp, draft, q))


def _cactus(delta: Any) -> Rule:
    try:
        return Cactus(delta)
    except ValueError:
        if isinstance(delta, Rule):
            raise ValueError(f"delta is a budget, got {delta!r}: give a rule as rule=") from None
        raise


def _check_shapes(xp: Namespace, p: Array | None, q: Array, token: Array) -> tuple[int, ...]:
    """The shape of the positions, to which rows and tokens broadcast; ValueError if they do not."""
    if q.ndim == 0 or (p is not None and (p.ndim == 0 or p.shape[-1] != q.shape[-1])):
        shapes = f"p {None if p is None else tuple(p.shape)} and q {tuple(q.shape)}"
        raise ValueError(
            f"{shapes} must have the same last axis, the vocabulary: pad the shorter with zeros"
        )
    if not is_kind(xp, token, "integral"):
        raise ValueError(f"token must hold integers, got dtype {token.dtype}")
    batch: tuple[int, ...] = tuple(token.shape)
    for name, rows in (("p", p), ("q", q)):
        if rows is None:
            continue
        if not is_kind(xp, rows, "real floating"):
            raise ValueError(f"{name} must hold floats (probabilities), got dtype {rows.dtype}")
        leading = tuple(rows.shape[:-1])
        if leading != tuple(token.shape):
            _validate.common_shape(
                leading,
                tuple(token.shape),
                f"token {tuple(token.shape)} does not fit {name} {tuple(rows.shape)}: "
                f"give one token per row, {leading}",
            )
            batch = _validate.common_shape(
                batch, leading, f"q {tuple(q.shape)} does not fit the rows of p: give one q per p"
            )
    return batch


def _aligned(
    p: Array | Sparse | None, q: Array | Sparse, token: Any
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray]:
    """Candidate lists as dense rows over their common ids, and the token as a column of these."""
    if not isinstance(q, Sparse) or not (p is None or isinstance(p, Sparse)):
        raise ValueError("p and q must both be Sparse or both be dense: use Sparse.from_dense")
    if p is not None and p.shape[:-1] != q.shape[:-1]:
        raise ValueError(
            f"p {p.shape} and q {q.shape} must list candidates (..., C) for the same rows (...)"
        )
    tokens = _validate.as_array(numpy_namespace, token, q.probs, "token")
    if tokens.dtype.kind not in "iu":
        raise ValueError(f"token must hold integers, got dtype {tokens.dtype}")
    _validate.check_fits("token", tokens.shape, q.shape[:-1], "row")
    tokens = np.broadcast_to(tokens, q.shape[:-1])
    ids, draft, target, columns = align(p, q, tokens)
    return draft, target, columns, ids
