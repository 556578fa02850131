"""Exact laws of the speculative loop on tiny history-dependent models, by enumeration.

Independent of the package under test: a `Step` says what one tested position does, as two vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cactus_rules.theory import instances

Row = NDArray[np.float64]
History: TypeAlias = tuple[int, ...]
Sequences: TypeAlias = dict[History, float]


class Step(NamedTuple):
    """One tested position: mass kept and mass out per token, and the charge of an emitted token."""

    kept: Row
    out: Row
    charge_kept: Row
    charge_replaced: float


Policy: TypeAlias = Callable[[History, int, float], Step]
"""(history, its length when the call began, charges booked when the call began) -> Step."""


@dataclass
class Model:
    """A random pair of rows for every history, drawn when first asked for."""

    seed: int
    size: int
    close: bool = False
    rows: dict[History, tuple[Row, Row]] = field(default_factory=dict)

    def __call__(self, history: History) -> tuple[Row, Row]:
        """(draft row, target row) after `history`."""
        if history not in self.rows:
            rng = np.random.default_rng([self.seed, len(history), *history])
            q = instances.row(rng, self.size)
            p = instances.row(rng, self.size)
            self.rows[history] = ((p + 2 * q) / 3 if self.close else p, q)
        return self.rows[history]


def token_loop(
    model: Model, length: int, drafts: int, policy: Policy
) -> tuple[Sequences, float, float]:
    """The loop up to `length` tokens: law of the sequence, expected and largest total charge."""
    law: Sequences = {}
    charges = [0.0, 0.0]

    def walk(history: History, mass: float, start: int, booked: float, spent: float) -> None:
        if mass == 0.0:
            return
        if len(history) == length:
            law[history] = law.get(history, 0.0) + mass
            charges[0] += mass * spent
            charges[1] = max(charges[1], spent)
            return
        if len(history) == start + drafts:
            for token, weight in enumerate(model(history)[1]):
                walk((*history, token), mass * float(weight), len(history) + 1, spent, spent)
            return
        step = policy(history, start, booked)
        replaced = np.maximum(step.out - step.kept, 0)
        for token in range(model.size):
            here, kept = (*history, token), float(step.kept[token])
            walk(here, mass * kept, start, booked, spent + float(step.charge_kept[token]))
            now = spent + step.charge_replaced
            walk(here, mass * float(replaced[token]), len(here), now, now)

    walk((), 1.0, 0, 0.0, 0.0)
    return law, charges[0], charges[1]


def target_law(model: Model, length: int) -> Sequences:
    """The target's own law of sequences."""
    return chain_law(lambda history: model(history)[1], model.size, length)


def chain_law(row: Callable[[History], Row], size: int, length: int) -> Sequences:
    """prod_k row(x_<k)[x_k] for all sequences of `length` tokens."""
    law: Sequences = {(): 1.0}
    for _ in range(length):
        law = {
            (*x, token): mass * float(weight)
            for x, mass in law.items()
            for token, weight in zip(range(size), row(x), strict=True)
        }
    return law


def kl(law: Sequences, target: Sequences) -> float:
    """KL(law || target) in nats."""
    terms = [m * math.log(m / target[x]) if target[x] > 0 else math.inf
             for x, m in law.items() if m > 0]  # fmt: skip
    return math.fsum(terms)


def distance(law: Sequences, target: Sequences) -> float:
    """Total variation."""
    return 0.5 * math.fsum(abs(law.get(x, 0.0) - m) for x, m in target.items())


def token_accepted(model: Model, drafts: int, law: Callable[[History], Row]) -> float:
    """Mean number of accepted drafts of the token-by-token walk."""

    def beyond(history: History) -> float:
        if len(history) == drafts:
            return 0.0
        kept = np.minimum(model(history)[0], law(history))
        return sum(float(m) * (1 + beyond((*history, t))) for t, m in enumerate(kept) if m > 0)

    return beyond(())
