"""One real position, budgets from nothing to everything: acceptance and divergence."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np

import cactus_rules as cr
from cactus_rules.theory.figures.rows import recorded
from cactus_rules.theory.figures.style import INK, line, save

MAKE: dict[str, Callable[[float], cr.Rule]] = {
    "Cactus, exact": cr.Cactus,
    "Cactus, Taylor": lambda d: cr.Cactus(d, solver="taylor"),
    "Cactus, closed": lambda d: cr.Cactus(d, solver="closed"),
    "Mentored": cr.Mentored,
}


def main() -> None:
    """Write limits.png."""
    pairs = recorded("Q2_K")
    overlap = [float(np.minimum(p, q).sum()) for p, q in pairs]
    p, q = pairs[int(np.argsort(overlap)[len(overlap) // 2])]
    deltas = np.logspace(-4, 1.3, 36)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9))
    for name, make in MAKE.items():
        seen = [cr.audit(p, q, make(float(d))) for d in deltas]
        left.semilogx(deltas, [float(a.acceptance_rate) for a in seen], **line(name))
        right.loglog(deltas, [float(a.kl) for a in seen], **line(name))
    everything = float(cr.audit(p, q, cr.Mentored(np.inf)).kl)
    left.axhline(float(np.minimum(p, q).sum()), color=INK, linewidth=0.8, linestyle=":")
    left.text(0.02, float(np.minimum(p, q).sum()) + 0.006, "Lossless", fontsize=8.5, color=INK)
    left.set(xlabel=r"budget $\delta$ in nats", ylabel="acceptance rate", ylim=(None, 1.01),
             title="SmolLM2, Q2_K draft, T = 1, one position")  # fmt: skip
    left.legend(loc="lower right")
    right.loglog(deltas, deltas, color=INK, linewidth=0.8, alpha=0.6)
    right.text(2e-4, 4.2e-4, r"KL = $\delta$", rotation=38, fontsize=8.5, color=INK)
    right.axhline(everything, color=INK, linewidth=0.8, linestyle=":")
    right.text(1.2e-4, everything * 1.12, "KL(draft, target): everything accepted", fontsize=8.5,
               color=INK)  # fmt: skip
    right.set(xlabel=r"budget $\delta$ in nats", ylabel="KL(output, target) in nats",
              ylim=(5e-5, 10), title="what the output law spends")  # fmt: skip
    save(figure, "limits.png")


if __name__ == "__main__":
    main()
