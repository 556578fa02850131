"""Telemetry against the truth: what the two counters say per position, on recorded rows."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import cactus_rules as cr
from cactus_rules.theory.figures.rows import DRAFTS, Row, paper_setting, recorded
from cactus_rules.theory.figures.style import INK, STYLES, save

RULES: dict[str, cr.Rule] = {
    "Cactus, Taylor": cr.Cactus(0.01, solver="taylor"),
    "Mentored": cr.Mentored(0.05),
    "Band": cr.Band(1.0),
    "Lenience": cr.Lenience(1.5),
}


def counters(p: Row, q: Row, rule: cr.Rule) -> tuple[float, float, float]:
    """Expected kl counter, expected tv counter, true KL; all from the exact output law.

    For these rules min(p, cap) is the output law where p > q, so the counters follow from it.
    """
    seen = cr.audit(p, q, rule)
    bold = (p > q) & (q > 0)
    kept = seen.law[bold]
    kl = float((kept * np.log(kept / q[bold])).sum())
    return kl, float(seen.tv), float(seen.kl)


def main() -> None:
    """Write telemetry.png."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.1), sharex=True, sharey=True)
    rows = [pair for draft in DRAFTS for pair in recorded(draft, 12)]
    rows += [paper_setting(pair) for draft in DRAFTS for pair in recorded(draft)]
    for name, rule in RULES.items():
        points = np.array([counters(p, q, rule) for p, q in rows])
        kl, tv, true = points[points[:, 2] > 1e-5].T
        look = {"linestyle": "", "marker": STYLES[name]["marker"], "color": STYLES[name]["color"],
                "markersize": 4, "alpha": 0.65}  # fmt: skip
        left.loglog(true, kl, label=name, **look)
        right.loglog(true, np.maximum(kl - tv, 2 * tv**2), label=name, **look)
        print(f"{name}: median counter/KL {np.median(kl / true):.2f}, "
              f"sum of counters / sum of KL {kl.sum() / true.sum():.2f}, "
              f"floor {np.maximum(kl - tv, 2 * tv**2).sum() / true.sum():.2f}")  # fmt: skip
    for axis in (left, right):
        axis.plot([1e-5, 5], [1e-5, 5], color=INK, linewidth=0.8)
        axis.set(xlabel="true KL(output, target) of the position, nats", xlim=(1e-4, 3))
    left.set(ylabel="from the counters, nats", ylim=(1e-4, 3), title="upper bound: E[kl_spent]")
    right.set(title="lower bound from both counters")
    left.legend(loc="lower right")
    save(figure, "telemetry.png")


if __name__ == "__main__":
    main()
