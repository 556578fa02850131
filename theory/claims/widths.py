"""Groups 9c and 9d: how to split a divergence budget over positions."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.claim import Claim, Result, Tally
from cactus_rules.theory.instances import Row

DERIVATION = "derivations/09-sequences.md"
FIGURE = "sequences.png"


def spend(p: Row, q: Row, width: float) -> tuple[float, float]:
    """(acceptance, KL of the output law) of Band(width), the KL by the oracle's sum."""
    out = cr.output_law(p, q, cr.Band(width))
    rate = float(cr.audit(p, q, cr.Band(width)).acceptance_rate)
    return rate, max(oracles.divergence("kl", out / out.sum(), q, 17), 0.0)


def per_call(rates: list[float], costs: list[float]) -> tuple[float, float]:
    """Expected tokens and nats of one call whose positions accept and cost so much."""
    reach = np.cumprod([1.0, *rates])
    return float(reach.sum()), float(reach[:-1] @ np.array(costs))


def chain_widths(p: Row, q: Row, drafts: int, price: float) -> list[float]:
    """W_{k+1}/price, backward: the widths of positions 1 .. K for equal independent rows."""
    value, widths = 1.0, []
    for _ in range(drafts):
        widths.append(value / price)
        rate, cost = spend(p, q, widths[-1])
        value = 1 + rate * value - price * cost
    return widths[::-1]


def call_at(p: Row, q: Row, widths: list[float]) -> tuple[float, float]:
    """Tokens and nats per call with these widths."""
    seen = [spend(p, q, w) for w in widths]
    return per_call([s[0] for s in seen], [s[1] for s in seen])


def fixed_rows(rng: np.random.Generator, deadline: float) -> Result:
    """Equal widths accept at least as much as any other split of the same total KL."""
    tally = Tally()
    for _ in tally.rounds(deadline, 15):
        rows = [instances.pair(rng, 3, 9, zeros=False) for _ in range(3)]
        width = float(rng.uniform(0.05, 2))
        best = [spend(p, q, width) for p, q in rows]
        total, rate = sum(b[1] for b in best), sum(b[0] for b in best)
        for _ in range(5):
            split = total * rng.dirichlet(np.full(3, float(rng.choice([1, 20]))))
            other = sum(
                float(cr.audit(p, q, cr.Mentored(float(d))).acceptance_rate)
                for (p, q), d in zip(rows, split, strict=True)
            )
            tally.at_most(other, rate, 1e-9, "another split")
    return tally.result()


def value_of_accepting(rng: np.random.Generator, deadline: float) -> Result:
    """In a chain no other widths give more tokens per call at the same nats per token."""
    tally, gains = Tally(), []
    for _ in tally.rounds(deadline, 3):
        p, q = (instances.row(rng, 8) for _ in range(2))
        price = float(rng.uniform(1, 3))
        widths = chain_widths(p, q, 4, price)
        tokens, nats = call_at(p, q, widths)
        if nats < 1e-6 or spend(p, q, widths[0])[0] > 1 - 1e-6:
            continue
        rate = nats / tokens

        def matched(shape: Row, rate: float = rate, p: Row = p, q: Row = q) -> float:
            """Tokens per call of widths proportional to `shape` that spend as much per token."""

            def excess(log_scale: float) -> float:
                there, cost = call_at(p, q, list(np.exp(log_scale) * shape))
                return cost / there - rate

            scale = brentq(excess, -8, 3, xtol=1e-7)
            return call_at(p, q, list(np.exp(scale) * shape))[0]

        equal = matched(np.ones(4))
        gains.append(tokens / equal - 1)
        tally.at_most(equal, tokens, 1e-7, "equal widths")
        for _ in range(2):
            shape = np.array(widths) * np.exp(rng.normal(0, 0.3, 4))
            tally.at_most(matched(shape), tokens, 1e-7, "perturbed widths")
    if gains:
        tally.note = f"gain over equal widths {min(gains):.2%} to {max(gains):.2%}"
    return tally.result()


CLAIMS = (
    Claim("9c", "output law",
          "Fixed rows of equal weight: one width log(a/b) for all positions (Band) accepts most at "
          "a given total of KL(out, q).",
          DERIVATION, FIGURE, fixed_rows),
    Claim("9d", "sequence law",
          "In a chain the best widths are proportional to the value of accepting, "
          "log(a_k/b_k) = W_{k+1}/price, W_k = 1 + A_k W_{k+1} - price D_k, W_{K+1} = 1.",
          DERIVATION, FIGURE, value_of_accepting),
)  # fmt: skip
