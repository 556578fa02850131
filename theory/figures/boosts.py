"""How far one token is raised: cap against q_n, for every divergence and for the three solvers."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import cactus_rules as cr
from cactus_rules.theory.figures.style import INK, SOLVERS, line, save

LOOKS = {
    "kl": ("KL(h, q)", "#D55E00", "-"),
    "reverse_kl": ("KL(q, h)", "#0072B2", "--"),
    "tv": ("total variation", "#000000", ":"),
    "chi2": ("chi-square", "#E69F00", "-."),
    "neyman": ("Neyman", "#56B4E9", (0, (5, 1, 1, 1, 1, 1))),
    "hellinger": ("squared Hellinger", "#009E73", (0, (3, 1))),
    "js": ("Jensen-Shannon", "#CC79A7", (0, (6, 2))),
    "max": ("max-divergence", "#999999", "-"),
}


def main() -> None:
    """Write boosts.png."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9))
    q = np.linspace(1e-6, 1, 801)
    for name, (label, color, dash) in LOOKS.items():
        left.plot(q, cr.boost(q, 0.1, name), color=color, linestyle=dash, label=label)
    left.plot([0, 1], [0, 1], color=INK, linewidth=0.8, alpha=0.6)
    left.text(0.74, 0.68, "cap = $q_n$", rotation=40, fontsize=8.5, color=INK)
    left.set(xlabel="target probability $q_n$ of the drafted token", ylabel="cap",
             title=r"exact solver, $\delta = 0.1$", xlim=(0, 1), ylim=(0, 1.01))  # fmt: skip
    left.legend(loc="lower right", ncols=1)
    tail = np.logspace(-9, 0, 600)
    for name, solver in SOLVERS:
        right.loglog(tail, cr.boost(tail, 0.1, "kl", solver), **line(name))
    right.loglog(tail, tail, color=INK, linewidth=0.8, alpha=0.6, label="cap = $q_n$ (lossless)")
    right.set(xlabel="target probability $q_n$", ylabel="cap", ylim=(1e-9, 2),
              title=r"the three solvers for KL, $\delta = 0.1$")  # fmt: skip
    right.legend(loc="lower right")
    save(figure, "boosts.png")


if __name__ == "__main__":
    main()
