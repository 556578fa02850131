"""Cactus: accept the drafted token as often as a divergence budget on the surrogate allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from cactus_rules import divergences
from cactus_rules._arrays import namespace
from cactus_rules.boost import Solver, boost, check_solver
from cactus_rules.divergences import Divergence
from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule, about, parameter


@dataclass(frozen=True)
class Cactus(Rule):
    """Given the drafted n: maximise min(h_n/p_n, 1) over laws h with D_f(h||q) <= delta [1, eq. 3].

    The best h, the surrogate for this n, raises q_n to `cap` and scales the rest of q by
    (1-cap)/(1-q_n) [1, Theorem 2]. Reads two numbers, costs O(1).

    The budget bounds each **surrogate**, not the output law, which mixes the surrogates of all
    drafted tokens: its KL can exceed delta many times. `audit` gives the true figure; `Mentored`
    keeps its budget on the output law. With a one-hot draft the two laws are one.

    Args:
        delta: budget per position, in nats for KL; >= 0; 0 is lossless. A number or an array.
        divergence: a name or a record of `cactus_rules.divergences`.
        solver: "exact"; "taylor" (the published form, may exceed delta); or "closed" (see `boost`).

    [1] arXiv 2604.04987.
    """

    delta: Any = field(metadata=about("budget per position, in nats for KL", 0.1))
    divergence: str | Divergence = field(
        default="kl", metadata=about("which divergence the budget is in")
    )
    solver: Solver = field(default="exact", metadata=about("exact, taylor (published) or closed"))

    name = "cactus"
    fixed_law = False
    metered = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        parameter(self, "delta", 0.0, remedy="the budget is in nats; 0 is lossless")
        object.__setattr__(self, "divergence", divergences.get(self.divergence))
        check_solver(divergences.get(self.divergence), self.solver)

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = boost(q_n), scale = (1-cap)/(1-q_n), and 1 where q_n = 1."""
        cap = boost(at.q_n, self.delta, self.divergence, self.solver)
        rest = 1 - at.q_n
        scale = (1 - cap) / at.xp.where(rest > 0, rest, 1.0 + 0 * rest)
        return Numbers(cap, at.xp.where(rest > 0, scale, 1.0 + 0 * scale))

    @property
    def guarantee(self) -> Guarantee:
        """The budget on the surrogate; log(1 + 2 delta) for the Taylor form."""
        name = divergences.get(self.divergence).name
        if self.solver != "taylor":
            return Guarantee("surrogate", name, self.delta)
        log1p = namespace(self.delta).log1p if hasattr(self.delta, "dtype") else math.log1p
        return Guarantee(
            "surrogate", name, log1p(2 * self.delta), "delta itself where cap + q_n <= 1"
        )
