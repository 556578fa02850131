"""What the three solvers spend: KL(surrogate, q) against q_n, and the worst case against delta."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import brentq

import cactus_rules as cr
from cactus_rules.theory.figures.style import INK, SOLVERS, Solver, line, save


def spent(q: np.ndarray, delta: float, solver: Solver) -> np.ndarray:
    """KL between the coins (cap, 1 - cap) and (q, 1 - q)."""
    cost: np.ndarray = cr.divergences.get("kl").two_point(cr.boost(q, delta, "kl", solver), q)
    return cost


def main() -> None:
    """Write spent.png."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9))
    delta = 0.1
    q = np.linspace(1e-4, 1 - 1e-4, 2000)
    for name, solver in SOLVERS:
        left.plot(q, spent(q, delta, solver), **line(name))
    low = brentq(lambda x: float(spent(np.array(x), delta, "taylor")) - delta, 1e-3, 0.8)
    left.axvspan(low, math.exp(-delta), color="#E69F00", alpha=0.12, linewidth=0)
    left.text((low + math.exp(-delta)) / 2, 0.012, "Taylor exceeds\nits budget", ha="center",
              fontsize=8.5, color=INK)  # fmt: skip
    left.axhline(math.log1p(2 * delta), color=INK, linewidth=0.8, linestyle=":")
    left.text(0.02, math.log1p(2 * delta) + 0.003, r"$\log(1 + 2\delta)$", fontsize=9, color=INK)
    left.text(0.02, delta + 0.003, r"$\delta = 0.1$", fontsize=9, color=INK)
    left.set(xlabel="target probability $q_n$ of the drafted token",
             ylabel="KL(surrogate, target) in nats", ylim=(0, 0.2), xlim=(0, 1),
             title="one budget, every $q_n$")  # fmt: skip
    deltas = np.logspace(-3, 1, 200)
    grid = np.concatenate([np.logspace(-8, -2, 100), np.linspace(0.01, 1, 3001)[:-1]])
    for name, solver in SOLVERS:
        peaks = [np.array([1 / (1 + 2 * d), math.exp(-d)]) for d in deltas]
        worst = [
            max(spent(grid, d, solver).max(), spent(peak, d, solver).max()) / d
            for d, peak in zip(deltas, peaks, strict=True)
        ]
        right.semilogx(deltas, worst, **line(name))
    crossover = brentq(lambda d: math.log1p(2 * d) - d, 0.5, 3)
    right.axvline(crossover, color=INK, linewidth=0.8, linestyle=":")
    right.text(crossover * 1.1, 1.75, rf"$\delta^* = {crossover:.4f}$", fontsize=9, color=INK)
    right.set(xlabel=r"budget $\delta$ in nats",
              ylabel=r"worst KL(surrogate, target) / $\delta$", ylim=(0, 2.05),
              title="worst case over $q_n$")  # fmt: skip
    right.legend(loc="lower left")
    save(figure, "spent.png")


if __name__ == "__main__":
    main()
