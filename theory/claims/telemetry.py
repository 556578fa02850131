"""Group 8: what two numbers per token say about the divergence of the output law."""

from __future__ import annotations

import numpy as np

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.claim import Claim, Result, Tally
from cactus_rules.theory.claims.output_law import regular_rules
from cactus_rules.theory.instances import Row

DERIVATION = "derivations/08-telemetry.md"
FIGURE = "telemetry.png"


def caps_and_scales(p: Row, q: Row, rule: cr.Rule) -> tuple[Row, Row]:
    """Both numbers for every token that can be drafted; 0 and 1 for the others."""
    caps, scales = np.zeros(len(p)), np.ones(len(p))
    for n in np.flatnonzero(p):
        answer = cr.accept(p, q, int(n), rule=rule)
        caps[n], scales[n] = float(answer.cap), float(np.asarray(answer.scale))
    return caps, scales


def counters(p: Row, q: Row, rule: cr.Rule) -> tuple[float, float]:
    """Expectations of the two counters over one tested position, by enumeration.

    kl: log+(min(p, cap)/q) of an accepted draft, 0 of a replaced one; tv: the gain in acceptance.
    """
    caps, _ = caps_and_scales(p, q, rule)
    kl = tv = 0.0
    for n in np.flatnonzero((p > 0) & (q > 0)):
        kept = min(float(p[n]), float(caps[n]))
        kl += kept * max(float(np.log(kept / q[n])), 0.0) if kept > 0 else 0.0
        tv += kept - min(float(p[n]), float(q[n]))
    return kl, tv


def sandwich(rng: np.random.Generator, deadline: float) -> Result:
    """KL <= E[kl] <= KL + TV, E[tv] = TV, and Pinsker's floor, for all regular rules."""
    tally = Tally()
    for _ in tally.rounds(deadline, 14):
        p, q = instances.pair(rng)
        for name, rule in regular_rules(rng).items():
            out = cr.output_law(p, q, rule)
            out = out / out.sum()
            true_kl = oracles.divergence("kl", out, q)
            true_tv = 0.5 * float(np.abs(out - q).sum())
            kl, tv = counters(p, q, rule)
            tally.at_most(true_kl, kl, 1e-12, f"{name}: KL <= E[kl]")
            tally.at_most(kl, true_kl + true_tv, 1e-12, f"{name}: E[kl] <= KL + TV")
            tally.equal(tv, true_tv, 1e-11, f"{name}: E[tv] = TV")
            tally.at_most(2 * tv * tv, true_kl, 1e-12, f"{name}: 2 E[tv]^2 <= KL")
    return tally.result()


def sharper(rng: np.random.Generator, deadline: float) -> Result:
    """Clip rules: KL <= E[kl + tv b log b/(1 - b)], at most TV (1 - b)/2 + O((1-b)^2) too high."""
    tally = Tally()
    for _ in tally.rounds(deadline, 24):
        p, q = instances.pair(rng)
        for rule in (cr.Mentored(instances.budget(rng)), cr.Band(float(rng.uniform(0.01, 3)))):
            out = cr.output_law(p, q, rule)
            true_kl = oracles.divergence("kl", out / out.sum(), q)
            _, scales = caps_and_scales(p, q, rule)
            b = float(scales[p > 0].min())
            kl, tv = counters(p, q, rule)
            weight = b * np.log(b) / (1 - b) if 0 < b < 1 else -float(b >= 1)
            tally.at_most(true_kl, kl + tv * weight, 1e-11, type(rule).__name__)
    return tally.result()


CLAIMS = (
    Claim("8a", "output law",
          "Regular rules, per tested position: KL(out, q) <= E[kl_spent] <= KL(out, q) + "
          "TV(out, q); E[tv_spent] = TV(out, q); 2 E[tv_spent]^2 <= KL(out, q).",
          DERIVATION, FIGURE, sandwich),
    Claim("8b", "output law",
          "Clip rules: KL(out, q) <= E[kl_spent + tv_spent b log b/(1-b)], b = scale.",
          DERIVATION, FIGURE, sharper),
)  # fmt: skip
