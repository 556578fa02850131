"""A divergence budget per sequence that is never overspent (theory/derivations/09-sequences.md)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cactus_rules import divergences
from cactus_rules._clip import clip_within_budget
from cactus_rules.boost import boost
from cactus_rules.rules import Drafted, Guarantee, Numbers, Rule

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Priced(Rule):
    """The clip rule with its own two ends at every position of one draft, as `Budgeted` sets them.

    Args:
        upper: a, so that cap = a q_n; `(K,)`.
        lower: b, the scale; `(K,)`.
        prices: KL(output law || target) of each position, in nats; `(K,)`.
        placed_at_positions: internal to `verify`.
    """

    upper: Any
    lower: Any
    prices: Any
    placed_at_positions: bool = False

    name = "priced"
    metered = True

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = upper q_n, scale = lower."""
        return Numbers(self.upper * at.q_n, self.lower)

    def aligned(self) -> Self:
        """The same: the parameters are one per position already. From then on as any rule."""
        if self.placed_at_positions:
            return super().aligned()
        return replace(self, placed_at_positions=True)

    def check_shapes(
        self, requests: tuple[int, ...], positions: tuple[int, ...], each: str
    ) -> None:
        """Its parameters have one value per position."""
        super().check_shapes(positions, positions, "position")

    @property
    def guarantee(self) -> Guarantee:
        """The prices, position by position."""
        return Guarantee("output", "kl", self.prices)


@dataclass
class Budgeted:
    """KL(law of the whole sequence || target) <= total, for one sequence at a time.

    Before each target call `rule` prices the drafted positions and returns the rule for `verify`;
    after the call `charge` books the positions that emitted a token:

        keeper = Budgeted(total=5.0, length=256)
        while ...:
            rule = keeper.rule(draft_probs, target_probs)
            v = verify(draft_probs, target_probs, ids, rule, rng=rng)      # either walk
            keeper.charge(int(v.num_accepted))

    On every path the booked KLs sum to at most `total`. So, by the chain rule, the law of the
    sequence is within `total` of the target's, whatever its length, with bonus tokens, rejections
    and early stops.

    The price of position k reads rows 1 .. k only. That is what makes the guarantee true: a price
    that looked at row k+1 would depend on the token drafted at k, and the output law at k would no
    longer be the law that is booked.

    Args:
        total: nats for the sequence, >= 0.
        length: tokens planned, >= 1. It steers the spending; the guarantee does not need it.
        pace: how many even shares a position may take, >= 1. Above 1 spends earlier, which pays
            where good drafts leave part of their share unused.
    """

    total: float
    length: int
    pace: float = 1.0
    spent: float = field(default=0.0, init=False)
    emitted: int = field(default=0, init=False)
    _prices: Vector = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters."""
        length = self.length
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1:
            raise ValueError(f"Budgeted: length must be an integer >= 1 (tokens), got {length!r}")
        for name, value, low in (("total", self.total, 0), ("pace", self.pace, 1)):
            if not isinstance(value, (int, float, np.number)) or not value >= low:
                raise ValueError(f"Budgeted: {name} must be a number >= {low}, got {value!r}")

    def rule(
        self, draft_probs: Any, target_probs: Any, draft_token_ids: Any | None = None
    ) -> Priced:
        """The rule for one target call.

        Args:
            draft_probs: `(K, V)`, or None for one-hot drafts (n-gram, argmax), each a function of
                the tokens before it.
            target_probs: `(K+1, V)`.
            draft_token_ids: `(K,)`, needed for one-hot drafts only.
        """
        target = np.asarray(target_probs, dtype=np.float64)
        count = len(target) - 1
        upper, lower, prices = np.ones(count), np.ones(count), np.zeros(count)
        left = max(self.total - self.spent, 0.0)
        for k in range(count):
            share = self.pace * left / max(self.length - self.emitted - k, 1)
            delta = min(left, share)
            q = target[k] / target[k].sum()
            if draft_probs is None:
                ends = self._one_hot(q, draft_token_ids, k, delta)
            else:
                p = np.asarray(draft_probs[k], dtype=np.float64)
                ends = self._clipped(p / p.sum(), q, delta)
            upper[k], lower[k], price = ends
            prices[k] = min(max(price, 0.0), left)
            left -= prices[k]
        self._prices = prices
        return Priced(upper, lower, prices)

    def charge(self, num_accepted: int) -> float:
        """Book a call that accepted `num_accepted` drafts; returns its cost in nats."""
        cost = float(self._prices[: num_accepted + 1].sum())
        self.spent = min(self.spent + cost, self.total)
        self.emitted += num_accepted + 1
        self._prices = np.zeros(0)
        return cost

    @staticmethod
    def _clipped(p: Vector, q: Vector, delta: float) -> tuple[float, float, float]:
        """a, b and the KL of clip(p, b q, a q)."""
        kl = divergences.get("kl")
        a, b = (float(end) for end in clip_within_budget(p, q, kl, np.asarray(delta)))
        law = np.clip(p, b * q, a * q)
        return a, b, float(kl.between(law / law.sum(), q))

    @staticmethod
    def _one_hot(q: Vector, ids: Any, k: int, delta: float) -> tuple[float, float, float]:
        """The same for a draft that is surely ids[k]: two numbers are enough."""
        if ids is None:
            raise ValueError("draft_token_ids is needed where draft_probs is None")
        q_n = float(q[int(ids[k])]) if 0 <= int(ids[k]) < len(q) else 0.0
        if not 0 < q_n < 1:
            return 1.0, 1.0, 0.0
        cap = float(boost(q_n, delta))
        price = float(divergences.get("kl").two_point(cap, q_n))
        return cap / q_n, (1 - cap) / (1 - q_n), price
