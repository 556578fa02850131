"""A claim: what is stated, of which quantity, where it is derived, and how it is checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

EPS = 2.0**-52

Quantity: TypeAlias = Literal["surrogate", "output law", "sequence law", "solver", "any law"]
Check: TypeAlias = Callable[[np.random.Generator, float], "Result"]


@dataclass(frozen=True)
class Result:
    """Outcome of one check.

    `margin` is the smallest (bound - observed) over all comparisons, and -|error| where equality is
    claimed; rounding may push it a few ulps below 0. `ok` says whether it stays within tolerance.
    """

    instances: int
    margin: float
    ok: bool
    detail: str


@dataclass(frozen=True)
class Claim:
    """One row of the table in `theory/README.md`."""

    id: str
    quantity: Quantity
    statement: str
    derivation: str
    figure: str
    check: Check

    @property
    def script(self) -> str:
        """The module that checks it, relative to `theory/`."""
        return "claims/" + self.check.__module__.rsplit(".", 1)[-1] + ".py"

    @property
    def test(self) -> str:
        """The id of its test."""
        return f"tests/theory/test_claims.py::test_claim[{self.id}]"


class Tally:
    """Collects comparisons, remembers the worst, and becomes a `Result`."""

    def __init__(self) -> None:
        """Nothing compared yet."""
        self.instances = 0
        self.margin = np.inf
        self.excess = 0.0
        self.detail = ""
        self.note = ""

    def at_most(self, observed: float, bound: float, slack: float, what: str) -> None:
        """Claim observed <= bound, tolerating `slack` of rounding."""
        margin = float(bound) - float(observed)
        if margin != margin:
            margin = -np.inf if observed != bound else 0.0
        if margin < self.margin:
            self.margin = margin
            self.detail = self.detail if self.excess > 0 else what
        if -margin - slack > self.excess:
            self.excess = -margin - slack
            self.detail = f"{what}: {float(observed):.10g} > {float(bound):.10g}"

    def equal(self, observed: object, expected: object, slack: float, what: str) -> None:
        """Claim equality of two numbers or arrays, to `slack` in the largest difference."""
        left, right = np.asarray(observed, np.float64), np.asarray(expected, np.float64)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore"):
            gap = np.where(same, 0.0, np.abs(left - right))
        self.at_most(float(gap.max(initial=0.0)), 0.0, slack, what)

    def true(self, condition: bool, what: str) -> None:
        """Claim a statement without a margin."""
        self.at_most(0.0 if condition else 1.0, 0.0, 0.0, what)

    def result(self) -> Result:
        """The outcome so far."""
        detail = self.detail if self.excess > 0 else self.note or f"worst: {self.detail}"
        return Result(self.instances, float(self.margin), self.excess <= 0, detail)

    def rounds(self, deadline: float, least: int, most: int = 10**9) -> Iterator[int]:
        """Count instances: `least`, and more (up to `most`) until `deadline` (monotonic)."""
        while self.instances < least or (time.monotonic() < deadline and self.instances < most):
            self.instances += 1
            yield self.instances - 1
            if self.excess > 0:
                return
