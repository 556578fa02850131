"""Block walk against token walk: drafts accepted per call, several rules, recorded rows."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import cactus_rules as cr
from cactus_rules.theory.figures.rows import recorded
from cactus_rules.theory.figures.style import STYLES, save

RULES: dict[str, tuple[str, cr.Rule]] = {
    "Lossless": ("Ensemble", cr.Lossless()),
    "Mentored(.02)": ("Mentored", cr.Mentored(0.02)),
    "Lenience(1.3)": ("Lenience", cr.Lenience(1.3)),
}
LENGTHS = np.arange(1, 13)
RUNS = 40_000


def accepted(rule: cr.Rule, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Mean accepted drafts of both walks for K in LENGTHS: sums of E r_i and E prod min(1, h/p)."""
    r, product = np.ones(RUNS), np.ones(RUNS)
    pools = []
    for p, q in recorded("Q2_K", 24):
        h = cr.output_law(p, q, rule)
        tokens = rng.choice(len(p), RUNS // 4, p=p)
        pools.append(h[tokens] / p[tokens])
    pool = np.stack(pools)
    block, token = [], []
    for _ in LENGTHS:
        ratio = pool[rng.integers(len(pool), size=RUNS), rng.integers(pool.shape[1], size=RUNS)]
        r = np.minimum(1, r * ratio)
        product = product * np.minimum(1, ratio)
        block.append(r.mean())
        token.append(product.mean())
    return np.cumsum(block), np.cumsum(token)


def main() -> None:
    """Write block.png."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9))
    rng = np.random.default_rng(0)
    for label, (look, rule) in RULES.items():
        block, token = accepted(rule, rng)
        color, marker = STYLES[look]["color"], STYLES[look]["marker"]
        left.plot(LENGTHS, 1 + block, color=color, marker=marker, label=f"{label}, block walk")
        left.plot(LENGTHS, 1 + token, color=color, marker=marker, linestyle="--", linewidth=1,
                  label=f"{label}, token walk")  # fmt: skip
        right.plot(LENGTHS, 100 * (block / token - 1), color=color, marker=marker, label=label)
        print(label, np.round(1 + block, 3)[[0, 3, 7]], np.round(1 + token, 3)[[0, 3, 7]])
    left.set(xlabel="drafted tokens K", ylabel="tokens per target call",
             title="SmolLM2, Q2_K draft, T = 1, positions drawn independently")  # fmt: skip
    left.legend()
    right.set(xlabel="drafted tokens K", ylabel="more drafts accepted, %", ylim=(0, None),
              title="gain of the block walk, same output law")  # fmt: skip
    right.legend()
    save(figure, "block.png")


if __name__ == "__main__":
    main()
