"""Group 10: block verification for every rule with a fixed target law."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

import cactus_rules as cr
from cactus_rules.theory import blocks, chains, instances
from cactus_rules.theory.claim import EPS, Claim, Result, Tally
from cactus_rules.theory.instances import Row

DERIVATION = "derivations/10-block.md"
FIGURE = "block.png"


def fixed_rules(rng: np.random.Generator) -> dict[str, cr.Rule]:
    """The rules whose target law does not depend on the drafted token."""
    return {
        "Lossless": cr.Lossless(),
        "Mentored": cr.Mentored(instances.budget(rng, -2, 0)),
        "Band": cr.Band(float(rng.uniform(0, 2))),
        "Ensemble": cr.Ensemble(float(rng.uniform(0, 1))),
    }


Law = Callable[[chains.History], Row]


def _law(model: chains.Model, rule: cr.Rule) -> Law:
    def law(history: chains.History) -> Row:
        p, q = model(history)
        return cr.output_law(p, q, rule)

    return cache(law)


def _target_chain(model: chains.Model, law: Law, drafts: int) -> chains.Sequences:
    def row(history: chains.History) -> Row:
        return law(history) if len(history) < drafts else model(history)[1]

    return chains.chain_law(row, model.size, drafts + 1)


def exact_and_longer(rng: np.random.Generator, deadline: float) -> Result:
    """One call, continued by h, has the law of the chain h; more accepted than token by token."""
    tally, gain = Tally(), 0.0
    for index in tally.rounds(deadline, 6):
        drafts, size = ((1, 4), (2, 3), (3, 2))[index % 3]
        model = chains.Model(int(rng.integers(2**31)), size)
        for name, rule in fixed_rules(rng).items():
            law = _law(model, rule)
            out, accepted = blocks.block_law(model, drafts, law)
            far = chains.distance(out, _target_chain(model, law, drafts))
            tally.equal(far, 0.0, 1e-12, f"{name}, K = {drafts}: TV to the chain")
            token = chains.token_accepted(model, drafts, law)
            tally.at_most(token, accepted, 64 * EPS, f"{name}, K = {drafts}: token walk accepts")
            gain = max(gain, accepted / token - 1)
    tally.note = f"up to {gain:.1%} more drafts accepted"
    return tally.result()


def textbook(p: Row, q: Row, h: Row, ids: list[int], u: Row, block: bool) -> tuple[int, int]:
    """(accepted, next token) by the textbook, one position after the other."""
    count = len(ids)
    r, ratios, levels = 1.0, [1.0], [1.0]
    for i, token in enumerate(ids):
        r = min(1.0, (r if block else 1.0) * h[i, token] / p[i, token])
        ratios.append(r)
        if block and i + 1 < count:
            gap = float(np.maximum(r * h[i + 1] - p[i + 1], 0).sum())
            levels.append(gap / (gap + 1 - r) if gap + 1 - r > 0 else 1.0)
        else:
            levels.append(r)
    kept = [u[i, 0] < levels[i + 1] for i in range(count)]
    if block:
        accepted = max([i + 1 for i in range(count) if kept[i]], default=0)
    else:
        accepted = next((i for i in range(count) if not kept[i]), count)
    weights = q[count] if accepted == count else np.maximum(
        (ratios[accepted] if block else 1.0) * h[accepted] - p[accepted], 0
    )  # fmt: skip
    sums = np.cumsum(weights)
    token = int(np.argmax(sums > u[accepted, 1] * sums[-1]))
    return accepted, token


def decisions(rng: np.random.Generator, deadline: float) -> Result:
    """`verify`, both walks, decides and draws as the textbook does from the same uniforms."""
    tally = Tally()
    for _ in tally.rounds(deadline, 24):
        count, size = int(rng.integers(1, 4)), int(rng.integers(2, 6))
        p, q = (np.stack([instances.row(rng, size) for _ in range(count + 1)]) for _ in range(2))
        p = p[:count]
        ids = [int(rng.choice(size, p=row)) for row in p]
        for name, rule in fixed_rules(rng).items():
            h = np.stack([cr.output_law(a, b, rule) for a, b in zip(p, q[:count], strict=True)])
            for walk in ("token", "block"):
                for _ in range(4):
                    u = rng.uniform(0, 1, (count + 1, 2)) ** float(rng.choice([0.3, 1, 3]))
                    found = cr.verify(p, q, np.array(ids), rule, uniforms=u, walk=walk)
                    accepted, token = textbook(p, q, h, ids, u, walk == "block")
                    expected = [*ids[:accepted], token, *[-1] * (count - accepted)]
                    got = np.asarray(found.token_ids).ravel().tolist()
                    tally.true(got == expected, f"{name}, {walk} walk: {got} for {expected}")
    return tally.result()


def wrong_variants(rng: np.random.Generator, deadline: float) -> Result:
    """Negative controls: each wrong variant is right for K = 1 and wrong for K = 2."""
    tally, seen = Tally(), {}
    for _ in tally.rounds(deadline, 1, 1):
        coins = chains.Model(0, 2)
        for history in ((), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)):
            coins.rows[history] = (np.array([0.7, 0.3]), np.array([0.4, 0.6]))
        three = chains.Model(5, 3)
        for label, model, numbers, one_coin in (
            ("levels r instead of t", coins, _ratio_levels, False),
            ("token residual, two tokens", coins, _token_residual, False),
            ("token residual, three tokens", three, _token_residual, False),
            ("one coin for all positions", three, blocks.block_numbers, True),
        ):
            far = []
            for drafts in (1, 2):
                out, _ = blocks.block_law(
                    model, drafts, _law(model, cr.Lossless()), numbers, one_coin
                )
                far.append(chains.distance(out, chains.target_law(model, drafts + 1)))
            seen[label] = far[1]
            tally.equal(far[0], 0.0, 1e-12, f"{label}: exact at K = 1")
        tally.equal(seen["levels r instead of t"], 0.1586, 1e-4, "levels r: TV .159 at K = 2")
        tally.equal(seen["token residual, two tokens"], 0.0, 1e-12, "harmless with two tokens")
        for label in ("token residual, three tokens", "one coin for all positions"):
            tally.at_most(1e-3, seen[label], 0.0, f"{label}: wrong at K = 2")
    tally.note = ", ".join(f"{label}: TV {far:.3f}" for label, far in seen.items())
    return tally.result()


def _ratio_levels(model: chains.Model, block: chains.History, law: Law) -> blocks.BlockWalk:
    walk = blocks.block_numbers(model, block, law)
    return walk._replace(levels=walk.ratios)


def _token_residual(model: chains.Model, block: chains.History, law: Law) -> blocks.BlockWalk:
    walk = blocks.block_numbers(model, block, law)
    plain = [np.maximum(law(block[:i]) - model(block[:i])[0], 0) for i in range(len(block))]
    return walk._replace(residuals=[*plain, walk.residuals[-1]])


CLAIMS = (
    Claim("10a", "sequence law",
          "Block walk with a fixed target law h: emitted tokens continued by h have the law of the "
          "chain h (K = 1, 2, 3); it accepts at least as much as the token walk.",
          DERIVATION, FIGURE, exact_and_longer),
    Claim("10b", "sequence law",
          "verify(walk='token' or 'block') decides and draws as the textbook does from the same "
          "uniforms.",
          DERIVATION, FIGURE, decisions),
    Claim("10c", "sequence law",
          "Wrong variants are caught: levels r in place of t (TV .159 at K = 2), the token walk's "
          "residual (harmless with two tokens, wrong with three), one coin for all positions.",
          DERIVATION, FIGURE, wrong_variants),
)  # fmt: skip
