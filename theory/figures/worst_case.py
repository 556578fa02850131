"""How far the output law of Cactus can get: a random search against the sharp bound."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import cactus_rules as cr
from cactus_rules.theory.claims.worst_case import worst_kl
from cactus_rules.theory.figures.style import INK, SOLVERS, STYLES, Solver, line, save


def searched(k: int, delta: float, solver: Solver, rng: np.random.Generator) -> float:
    """The largest KL(out, q) that a derivative-free search over p and q on k+1 tokens finds."""
    rule = cr.Cactus(delta, solver=solver)

    def loss(z: np.ndarray) -> float:
        p, q = (np.exp(part - np.logaddexp.reduce(part)) for part in np.split(z, 2))
        return -float(cr.audit(p, q, rule).kl)

    best = 0.0
    for _ in range(6):
        p = np.append(np.zeros(k), -6.0) + rng.normal(0, 0.3, k + 1)
        q = np.append(np.full(k, -rng.uniform(0, 3)), 0.0) + rng.normal(0, 0.3, k + 1)
        found = minimize(loss, np.concatenate([p, q]), method="Powell", options={"maxiter": 12})
        best = max(best, -found.fun)
    return best


def main() -> None:
    """Write worst_case.png and print the table of the search."""
    rng = np.random.default_rng(0)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9))
    ks = np.unique(np.logspace(np.log10(2), 4, 60).astype(int))
    print("k, delta, solver, sharp bound, search")
    for name, solver in SOLVERS:
        left.loglog(ks, [worst_kl(int(k), 0.1, solver) for k in ks], **line(name))
        few = (2, 3, 5, 9)
        found = [searched(k, 0.1, solver, rng) for k in few]
        left.plot(few, found, linestyle="", marker=STYLES[name]["marker"], markersize=6,
                  color="white", markeredgecolor=STYLES[name]["color"])  # fmt: skip
        for k, value in zip(few, found, strict=True):
            print(f"{k}, 0.1, {solver}, {worst_kl(k, 0.1, solver):.4f}, {value:.4f}")
        deltas = np.logspace(-4, 1, 100)
        right.loglog(deltas, [worst_kl(19, d, solver) for d in deltas], **line(name))
    left.axhline(0.1, color=STYLES["Mentored"]["color"], linewidth=1.6)
    left.text(16, 0.108, r"$\delta = 0.1$: what Mentored never exceeds", fontsize=8.5, color=INK)
    left.plot([], [], linestyle="", marker="o", color="white", markeredgecolor=INK, label="search")
    left.set(xlabel="k, tokens with p > q > 0", ylabel="sup KL(output, target) in nats",
             title=r"$\delta = 0.1$, growing vocabulary")  # fmt: skip
    left.legend(loc="upper left")
    right.plot(deltas, deltas, color=STYLES["Mentored"]["color"], label="Mentored (= budget)")
    right.set(xlabel=r"budget $\delta$ in nats", ylabel="sup KL(output, target) in nats",
              title="k = 19 (top-k 20 filtering)")  # fmt: skip
    right.legend(loc="upper left")
    save(figure, "worst_case.png")


if __name__ == "__main__":
    main()
