"""Exact laws of block verification on tiny models by enumeration; nothing of the core is used."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cactus_rules.theory.chains import History, Model, Policy, Row, Sequences


class BlockWalk(NamedTuple):
    """What block verification does with one drafted block: level probabilities and residuals."""

    ratios: list[float]
    levels: list[float]
    residuals: list[Row]


def block_numbers(model: Model, block: History, law: Callable[[History], Row]) -> BlockWalk:
    """r_i, t_i and the unnormalised residual (r_i h - p)+ after each of the levels 0 .. K."""
    ratios, levels, residuals = [1.0], [], []
    for i, token in enumerate(block):
        p, h = model(block[:i])[0], law(block[:i])
        residuals.append(np.maximum(ratios[i] * h - p, 0))
        gap = float(residuals[i].sum())
        rest = gap + 1 - ratios[i]
        levels.append(gap / rest if rest > 0 else 1.0)
        ratios.append(min(1.0, ratios[i] * float(h[token]) / float(p[token])))
    residuals.append(model(block)[1])
    levels.append(ratios[-1])
    return BlockWalk(ratios, levels, residuals)


def block_law(
    model: Model,
    drafts: int,
    law: Callable[[History], Row],
    numbers: Callable[[Model, History, Callable[[History], Row]], BlockWalk] = block_numbers,
    one_coin: bool = False,
) -> tuple[Sequences, float]:
    """The K+1 tokens of one call, continued by the chain `law` where it stops early; mean accepted.

    `numbers` and `one_coin` are for wrong variants.
    """
    out: Sequences = {}
    accepted = 0.0
    for block in itertools.product(range(model.size), repeat=drafts):
        drafted = math.prod(float(model(block[:i])[0][t]) for i, t in enumerate(block))
        if drafted == 0:
            continue
        _, levels, residuals = numbers(model, block, law)
        above = 1.0
        highest = 0.0
        for level in range(drafts, -1, -1):
            keep = levels[level] if level else 1.0
            if one_coin:
                here, highest = max(keep - highest, 0.0), max(keep, highest)
            else:
                here, above = above * keep, above * (1 - keep)
            mass = drafted * here
            weights = residuals[level]
            if mass == 0 or weights.sum() == 0:
                continue
            accepted += level * mass
            for token, weight in enumerate(weights / weights.sum()):
                prefix = (*block[:level], token)
                for x, rest in _continued(prefix, drafts + 1, law, model).items():
                    out[x] = out.get(x, 0.0) + mass * float(weight) * rest
    return out, accepted


def block_loop(
    model: Model, length: int, drafts: int, policy: Policy
) -> tuple[Sequences, float, float]:
    """As `token_loop`, each call by block verification; `policy(...).out` is the fixed law."""
    law: Sequences = {}
    charges = [0.0, 0.0]

    def call(history: History, mass: float, booked: float) -> None:
        if len(history) >= length:
            whole = history[:length]
            law[whole] = law.get(whole, 0.0) + mass
            charges[0] += mass * booked
            charges[1] = max(charges[1], booked)
            return
        start = len(history)
        branch = Model(0, model.size, rows=_Shifted(model, history))
        for block in itertools.product(range(model.size), repeat=drafts):
            drafted = mass * math.prod(float(branch(block[:i])[0][t]) for i, t in enumerate(block))
            steps = [policy(history + block[:i], start, booked) for i in range(drafts)]
            laws = {block[:i]: step.out for i, step in enumerate(steps)}
            walk = block_numbers(branch, block, laws.__getitem__)
            above, spent = drafted, [booked]
            for step in steps:
                spent.append(spent[-1] + step.charge_replaced)
            for level in range(drafts, -1, -1):
                keep = walk.levels[level] if level else 1.0
                here, above = above * keep, above * (1 - keep)
                weights = walk.residuals[level]
                if here == 0 or weights.sum() == 0:
                    continue
                for token, weight in enumerate(weights / weights.sum()):
                    if weight > 0:
                        emitted = (*history, *block[:level], token)
                        call(emitted, here * float(weight), spent[min(level + 1, drafts)])

    call((), 1.0, 0.0)
    return law, charges[0], charges[1]


class _Shifted(dict[History, tuple[Row, Row]]):
    """The rows of a model as seen after a history."""

    def __init__(self, model: Model, history: History) -> None:
        super().__init__()
        self.model, self.history = model, history

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: History) -> tuple[Row, Row]:
        return self.model((*self.history, *key))


def _continued(
    prefix: History, length: int, law: Callable[[History], Row], model: Model
) -> Sequences:
    """All continuations of `prefix` to `length` tokens by `law`, the last token by the target."""
    found: Sequences = {prefix: 1.0}
    while len(next(iter(found))) < length:
        found = {
            (*x, token): mass * float(weight)
            for x, mass in found.items()
            for token, weight in enumerate(law(x) if len(x) < length - 1 else model(x)[1])
        }
    return found
