"""Acceptance against the true KL of the output law, all rules: the Pareto front.

pareto_real.png: recorded SmolLM2 rows; pareto_family.png: a self-made family of rows. Every point
is one parameter of one rule, both axes the mean over the positions, computed exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import cactus_rules as cr
from cactus_rules.theory.figures.rows import DRAFTS, Row, paper_setting, recorded
from cactus_rules.theory.figures.style import STYLES, save, style

Pair = tuple[Row, Row]
Grid = tuple[Callable[[float], cr.Rule], Sequence[float]]

GRIDS: dict[str, Grid] = {
    "Cactus, exact": (cr.Cactus, (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1)),
    "Cactus, Taylor": (lambda d: cr.Cactus(d, solver="taylor"), (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1)),
    "Cactus, closed": (lambda d: cr.Cactus(d, solver="closed"), (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1)),
    "Mentored": (cr.Mentored, (1e-3, 0.01, 0.03, 0.1, 0.3, 0.6)),
    "Band": (cr.Band, (0.1, 0.3, 0.7, 1.4, 2.2, 4)),
    "Lenience": (cr.Lenience, (1.1, 1.3, 1.7, 2.5, 5, 15)),
    "Ensemble": (cr.Ensemble, (0.9, 0.7, 0.5, 0.3, 0.15, 0.0)),
    "Typical": (lambda a: cr.Typical(0.3 * a, a), (0.05, 0.3, 0.9)),
    "Top-k set": (lambda k: cr.TopK(int(k)), (5, 20, 200)),
}


def front(pairs: Sequence[Pair], rule: cr.Rule) -> tuple[float, float]:
    """Mean KL of the output law and mean acceptance over the pairs."""
    seen = [cr.audit(p, q, rule) for p, q in pairs]
    return float(np.mean([a.kl for a in seen])), float(np.mean([a.acceptance_rate for a in seen]))


def panel(axes: Axes, pairs: Sequence[Pair], title: str) -> None:
    """One set of rows, all rules."""
    for name, (make, values) in GRIDS.items():
        points = np.array([front(pairs, make(v)) for v in values])
        axes.plot(points[:, 0], points[:, 1], **style(name, linewidth=1.2))
    lossless = float(np.mean([np.minimum(p, q).sum() for p, q in pairs]))
    axes.axhline(lossless, color="#333333", linewidth=0.8, linestyle=":")
    axes.text(4.8, lossless, "Lossless", fontsize=8.5, color="#333333", ha="right", va="bottom")
    axes.set(xscale="log", xlim=(1e-3, 5), title=title)


def family(rng: np.random.Generator, size: int, noise: float, tail: float) -> Pair:
    """A Zipf-like target and a draft whose logits are off by Gaussian noise."""
    logits = -tail * np.log(np.arange(1, size + 1)) + rng.normal(0, 1, size)
    draft = logits + rng.normal(0, noise, size)
    return tuple(np.exp(z - np.logaddexp.reduce(z)) for z in (draft, logits))


def main() -> None:
    """Write both figures."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 7.4), sharex=True)
    for row, draft in zip(axes, DRAFTS, strict=True):
        panel(row[0], recorded(draft, 16), f"SmolLM2, {draft} draft, T = 1")
        panel(row[1], [paper_setting(pair) for pair in recorded(draft)],
              f"{draft} draft, T = .6, top-k 20, top-p .95")  # fmt: skip
        row[0].set_ylabel("mean acceptance rate")
    for axis in axes[1]:
        axis.set_xlabel("mean KL(output, target) in nats")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    save(figure, "pareto_real.png")

    figure, axes = plt.subplots(1, 3, figsize=(10.5, 4.2), sharey=True, sharex=True)
    rng = np.random.default_rng(1)
    cases = (
        (0.5, 1.5, "close draft"),
        (1.5, 1.5, "rough draft"),
        (1.5, 0.7, "rough draft, flat target"),
    )
    for axis, (noise, tail, title) in zip(axes, cases, strict=True):
        panel(axis, [family(rng, 400, noise, tail) for _ in range(20)], f"{title}, V = 400")
        axis.set_xlabel("mean KL(output, target) in nats")
    axes[0].set_ylabel("mean acceptance rate")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    save(figure, "pareto_family.png")
    assert set(GRIDS) == set(STYLES)


if __name__ == "__main__":
    main()
