"""Set acceptance: keep any token of a likely set of the target, else draw from that set."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

from cactus_rules._arrays import Array, Namespace, asarray, cumulative_sum, gather
from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule, about, integer, parameter


class _SetRule(Rule):
    """Accept iff n is in a set S of the target's likeliest tokens, else draw from q on S."""

    reads = "target"

    @abstractmethod
    def size(self, descending: Array, xp: Namespace) -> Array:
        """How many tokens of the row, sorted by falling probability, are in S: at least one."""

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = infinity on S, else 0; scale = infinity; the floor is S's smallest probability."""
        floor, floor_id = _last_of_set(self.size, at)
        return Numbers(_member(at, floor, floor_id), math.inf, floor, floor_id)

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee(None, condition="the output stays inside the set")


def _last_of_set(size: Any, at: Drafted) -> tuple[Array, Array]:
    """Probability and id of the set's last token; among equals the lower ids come first."""
    xp = at.xp
    order = xp.argsort(-at.target, axis=-1, stable=True)
    descending = xp.take_along_axis(at.target, order, axis=-1)
    last = xp.astype(size(descending, xp), xp.int64) - 1
    last = xp.clip(last, 0, at.target.shape[-1] - 1)
    floor_id = xp.take_along_axis(order, last[..., None], axis=-1)[..., 0]
    return gather(xp, descending, last), floor_id


def _member(at: Drafted, floor: Array, floor_id: Array) -> Array:
    """Infinity for tokens of the set, 0 for others."""
    inside = (at.q_n > floor) | ((at.q_n == floor) & (at.token <= floor_id))
    return at.xp.where(inside, math.inf, 0 * at.q_n)


def _count(condition: Array, xp: Namespace) -> Array:
    return xp.sum(xp.astype(condition, xp.int64), axis=-1)


@dataclass(frozen=True)
class TopK(_SetRule):
    """S = the k likeliest tokens; ties go to the lower id.

    Args:
        k: size of the set, >= 1.
    """

    k: Any = field(metadata=about("size of the set", 10))

    name = "top-k"

    def __post_init__(self) -> None:
        """Check the parameter."""
        integer(self, "k", 1)

    def size(self, descending: Array, xp: Namespace) -> Array:
        """It is k."""
        return xp.zeros_like(descending[..., 0], dtype=xp.int64) + self.k


@dataclass(frozen=True)
class Nucleus(_SetRule):
    """S = the shortest prefix of the tokens by falling probability whose mass reaches `mass`.

    Args:
        mass: in [0, 1]; 0 keeps the likeliest token only, 1 keeps all that has probability.
    """

    mass: Any = field(metadata=about("probability mass of the set", 0.9))

    name = "nucleus"

    def __post_init__(self) -> None:
        """Check the parameter."""
        parameter(self, "mass", 0.0, 1.0)

    def size(self, descending: Array, xp: Namespace) -> Array:
        """The number of tokens before which the mass is not reached."""
        before = cumulative_sum(xp, descending) - descending
        mass = asarray(xp, self.mass, descending)[..., None]
        return _count(((before < mass) | (mass == 1)) & (descending > 0), xp)


@dataclass(frozen=True)
class MinP(_SetRule):
    """S = the tokens with q >= ratio * max q.

    Args:
        ratio: in [0, 1]; 1 keeps the likeliest only, 0 keeps all that has probability.
    """

    ratio: Any = field(metadata=about("least q_n/max q", 0.1))

    name = "min-p"

    def __post_init__(self) -> None:
        """Check the parameter."""
        parameter(self, "ratio", 0.0, 1.0)

    def size(self, descending: Array, xp: Namespace) -> Array:
        """The number of tokens above the threshold."""
        ratio = asarray(xp, self.ratio, descending)[..., None]
        return _count((descending >= ratio * descending[..., :1]) & (descending > 0), xp)


@dataclass(frozen=True)
class RelaxedTopN(Rule):
    """Accept the n likeliest tokens within `gap` of the best; on rejection emit the argmax.

    TensorRT-LLM's relaxed acceptance. Made for greedy decoding: after a rejection nothing is drawn.

    Args:
        n: size of the candidate set, >= 1.
        gap: a candidate needs q >= max q - gap, in [0, 1].
    """

    n: Any = field(default=10, metadata=about("size of the candidate set"))
    gap: Any = field(default=0.6, metadata=about("largest max q - q_n"))

    name = "relaxed-top-n"
    reads = "target"

    def __post_init__(self) -> None:
        """Check the parameters."""
        integer(self, "n", 1)
        parameter(self, "gap", 0.0, 1.0)

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = infinity on the candidates, else 0; the floor of the draw is the argmax."""
        cap = _member(at, *_last_of_set(self._size, at))
        return Numbers(cap, math.inf, *_last_of_set(lambda row, xp: 1 + 0 * row[..., 0], at))

    def _size(self, descending: Array, xp: Namespace) -> Array:
        gap = asarray(xp, self.gap, descending)[..., None]
        near = _count(descending >= descending[..., :1] - gap, xp)
        return xp.minimum(near, self.n + 0 * near)

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee(None, condition="the output stays inside the candidate set")
