"""Collapse: entropy of the output law as the draft gets greedier, for four rules."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import cactus_rules as cr
from cactus_rules.theory.figures.style import INK, line, save

SIZE = 50


def entropy(law: np.ndarray) -> float:
    """Nats."""
    positive = law[law > 0]
    return float(-(positive * np.log(positive)).sum())


def main() -> None:
    """Write entropy.png."""
    target = 1 / np.arange(1, SIZE + 1) ** 0.8
    target = target / target.sum()
    rules = {
        "Typical": cr.Typical(),
        "Top-k set": cr.TopK(20),
        "Cactus, Taylor": cr.Cactus(0.1, solver="taylor"),
        "Mentored": cr.Mentored(0.1),
        "Lenience": cr.Lenience(1.5),
    }
    temperatures = np.linspace(0.02, 1, 60)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9))
    for name, rule in rules.items():
        spread, moved = [], []
        for temperature in temperatures:
            draft = np.exp((np.log(target) - np.log(target[0])) / temperature)
            draft = draft / draft.sum()
            seen = cr.audit(draft, target, rule)
            spread.append(entropy(seen.law))
            moved.append(float(seen.kl))
        label = {
            "Typical": "Typical (.09, .3)", "Top-k set": "TopK(20)",
            "Cactus, Taylor": "Cactus(.1), Taylor", "Mentored": "Mentored(.1)",
            "Lenience": "Lenience(1.5)",
        }[name]  # fmt: skip
        left.plot(temperatures, spread, **{**line(name), "label": label})
        right.plot(temperatures, np.maximum(moved, 1e-6), **{**line(name), "label": label})
    left.axhline(entropy(target), color=INK, linewidth=0.8, linestyle=":")
    left.text(0.35, entropy(target) + 0.05, "entropy of the target", fontsize=8.5, color=INK)
    left.set(xlabel="temperature of the draft (same model as the target)",
             ylabel="entropy of the output law in nats", ylim=(0, 4), xlim=(0, 1),
             title="spread that is left")  # fmt: skip
    left.legend(loc="lower right")
    right.axhline(0.1, color=INK, linewidth=0.8, linestyle=":")
    right.text(0.03, 0.115, "budget 0.1", fontsize=8.5, color=INK)
    right.set(xlabel="temperature of the draft", ylabel="KL(output, target) in nats", yscale="log",
              ylim=(1e-3, 5), xlim=(0, 1), title="distance from the target")  # fmt: skip
    save(figure, "entropy.png")


if __name__ == "__main__":
    main()
