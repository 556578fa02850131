"""Sequences: best widths in a chain, and a budget per sequence kept on every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

import cactus_rules as cr
from cactus_rules.theory import instances
from cactus_rules.theory.claims.widths import chain_widths
from cactus_rules.theory.figures.rows import DRAFTS, recorded
from cactus_rules.theory.figures.style import INK, STYLES, save

WIDTHS = np.concatenate([[0.0], np.geomspace(0.02, 12, 24)])
DRAFT_LENGTH, RUNS = 4, 200

Paths: TypeAlias = NDArray[np.float64]
Policy: TypeAlias = Callable[[int, float, int], tuple[float, float]]
"""(recorded position, nats booked, tokens left) -> (acceptance, KL)."""


class Curves:
    """Acceptance and KL of the clip rule against its width, at each recorded position."""

    def __init__(self, draft: str, positions: int) -> None:
        """Computed once; policies then interpolate."""
        rows = recorded(draft, positions)
        seen = [[cr.audit(p, q, cr.Band(float(w))) for w in WIDTHS] for p, q in rows]
        self.rate = np.array([[float(a.acceptance_rate) for a in row] for row in seen])
        self.cost = np.maximum.accumulate([[float(a.kl) for a in row] for row in seen], axis=1)

    def at_width(self, row: int, width: float) -> tuple[float, float]:
        """(acceptance, KL) of Band(width)."""
        rate, cost = (np.interp(width, WIDTHS, side[row]) for side in (self.rate, self.cost))
        return float(rate), float(cost)

    def at_budget(self, row: int, delta: float) -> tuple[float, float]:
        """(acceptance, KL) of Mentored(delta)."""
        cost = min(delta, float(self.cost[row, -1]))
        return float(np.interp(cost, self.cost[row], self.rate[row])), cost


def one_run(
    curves: Curves, policy: Policy, length: int, rng: np.random.Generator
) -> tuple[int, Paths]:
    """One sequence: number of target calls, and nats booked after each emitted token."""
    booked, calls = [0.0], 0
    while len(booked) <= length:
        calls += 1
        for _ in range(DRAFT_LENGTH):
            row = int(rng.integers(len(curves.rate)))
            rate, cost = policy(row, booked[-1], length - len(booked) + 1)
            booked.append(booked[-1] + cost)
            if rng.random() >= rate or len(booked) > length:
                break
        else:
            booked.append(booked[-1])
    return calls, np.array(booked[: length + 1])


def many(curves: Curves, policy: Policy, length: int, runs: int) -> tuple[float, Paths]:
    """Tokens per call over all runs, and the paths of booked nats."""
    rng = np.random.default_rng(0)
    seen = [one_run(curves, policy, length, rng) for _ in range(runs)]
    return runs * length / sum(calls for calls, _ in seen), np.array([path for _, path in seen])


def budgeted(curves: Curves, total: float, pace: float) -> Policy:
    """`Budgeted`'s price at a position, on the interpolated curves."""

    def policy(row: int, spent: float, left: int) -> tuple[float, float]:
        rest = max(total - spent, 0.0)
        return curves.at_budget(row, min(rest, pace * rest / max(left, 1)))

    return policy


def fixed_width(curves: Curves, total: float, length: int) -> Policy:
    """The one band width that spends `total` in the mean."""

    def overspend(log_width: float) -> float:
        width = float(np.exp(log_width))
        paths = many(curves, lambda row, *_: curves.at_width(row, width), length, 60)[1]
        return float(paths[:, -1].mean()) - total

    best = float(np.exp(brentq(overspend, np.log(0.05), np.log(11.9), xtol=0.01)))
    return lambda row, *_: curves.at_width(row, best)


def main() -> None:
    """Write sequences.png and print the table."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4))
    rng = np.random.default_rng(3)
    p, q = instances.row(rng, 30), instances.row(rng, 30)
    for price, marker in ((1.0, "o"), (2.0, "s"), (4.0, "^")):
        widths = chain_widths(p, q, 8, price)
        left.plot(range(1, 9), widths, marker=marker, color=INK, linewidth=1.1,
                  label=f"price {price:g} tokens per nat")  # fmt: skip
    left.set(xlabel="position in the draft, K = 8", ylabel="best width log(a/b) in nats",
             ylim=(0, None), title="equal independent rows: best width per position")  # fmt: skip
    left.legend()
    print("draft, nats x tokens, policy: tokens per call; booked / budget, mean and most")
    for draft in DRAFTS:
        curves = Curves(draft, 24)
        for rate, length in ((0.02, 64), (0.02, 256), (0.1, 64), (0.1, 256)):
            total = rate * length
            policies = {
                "Band, fixed width": fixed_width(curves, total, length),
                "Budgeted": budgeted(curves, total, 1.0),
                "Budgeted, pace 2": budgeted(curves, total, 2.0),
            }
            for name, policy in policies.items():
                tokens, paths = many(curves, policy, length, RUNS)
                ratio = paths[:, -1] / total
                print(f"{draft}, {rate} x {length}, {name}: {tokens:.3f}; "
                      f"{ratio.mean():.3f}, {ratio.max():.3f}")  # fmt: skip
                if (draft, rate, length) == ("Q2_K", 0.02, 256) and "pace" not in name:
                    look = STYLES["Band" if name.startswith("Band") else "Mentored"]
                    right.plot(paths[:25].T, color=look["color"], alpha=0.35, linewidth=0.8)
                    right.plot([], [], color=look["color"], label=name)
    right.axhline(0.02 * 256, color=INK, linewidth=0.9, linestyle=":")
    right.text(4, 0.02 * 256 * 1.02, "budget of the sequence", fontsize=8.5, color=INK)
    right.set(xlabel="tokens emitted", ylabel="KL booked so far in nats", xlim=(0, 256),
              ylim=(0, None), title="SmolLM2, Q2_K draft, 25 runs each")  # fmt: skip
    right.legend(loc="lower right")
    save(figure, "sequences.png")


if __name__ == "__main__":
    main()
