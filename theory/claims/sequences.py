"""Group 9a, 9b, 9e, 9f: laws of whole sequences under the speculative loop, by enumeration."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

import cactus_rules as cr
from cactus_rules.budget import Budgeted
from cactus_rules.theory import blocks, chains, instances, oracles
from cactus_rules.theory.claim import Claim, Result, Tally
from cactus_rules.theory.claims.block import textbook
from cactus_rules.theory.claims.telemetry import caps_and_scales

DERIVATION = "derivations/09-sequences.md"
FIGURE = "sequences.png"
LENGTH, DRAFTS = 4, 2


def policy_of(model: chains.Model, rule: cr.Rule) -> chains.Policy:
    """One rule at every tested position, charged KL(out, q)."""

    @cache
    def step(history: chains.History) -> chains.Step:
        p, q = model(history)
        out = cr.output_law(p, q, rule)
        kept = np.minimum(p, caps_and_scales(p, q, rule)[0])
        price = max(oracles.divergence("kl", out / out.sum(), q), 0.0)
        return chains.Step(kept, out, np.full(len(p), price), price)

    return lambda history, start, booked: step(history)


def _model(rng: np.random.Generator, size: int = 3) -> chains.Model:
    return chains.Model(int(rng.integers(2**31)), size, bool(rng.random() < 0.3))


def chain_rule(rng: np.random.Generator, deadline: float) -> Result:
    """KL of the sequence <= expected sum of the positions' KL, bonus tokens and rejections in."""
    tally, loosest = Tally(), 1.0
    for _ in tally.rounds(deadline, 3):
        model = _model(rng)
        target = chains.target_law(model, LENGTH)
        delta = instances.budget(rng, -2, 0)
        for rule in (cr.Mentored(delta), cr.Cactus(delta), cr.Lenience(1.5), cr.Ensemble(0.6)):
            law, spent, _ = chains.token_loop(model, LENGTH, DRAFTS, policy_of(model, rule))
            tally.equal(sum(law.values()), 1.0, 1e-12, "a law")
            whole = chains.kl(law, target)
            loosest = min(loosest, whole / spent)
            tally.at_most(whole, spent, 1e-12, f"{rule!r}: KL of the sequence")
        # No bonus token in reach: the law of each position is known, and KLs add up exactly.
        law, spent, _ = chains.token_loop(model, 3, 3, policy_of(model, cr.Mentored(delta)))
        whole = chains.kl(law, chains.target_law(model, 3))
        tally.equal(whole, spent, 1e-12, "equality without bonus tokens")
        small = _model(rng, 2)
        law, spent, _ = blocks.block_loop(small, LENGTH, DRAFTS, policy_of(small, cr.Lossless()))
        target = chains.target_law(small, LENGTH)
        tally.equal(chains.distance(law, target), 0.0, 1e-12, "block walk: Lossless is exact")
        policy = policy_of(small, cr.Mentored(delta))
        law, spent, _ = blocks.block_loop(small, LENGTH, DRAFTS, policy)
        tally.at_most(chains.kl(law, target), spent, 1e-12, "block walk: KL of the sequence")
    tally.note = f"KL of the sequence was {loosest:.3f} to 1 times the sum"
    return tally.result()


def per_rule(rng: np.random.Generator, deadline: float) -> Result:
    """Bounds for N tokens from bounds per position, each in its own divergence."""
    bounds: dict[str, Callable[[float], float]] = {
        "kl": lambda d: LENGTH * d,
        "reverse_kl": lambda d: LENGTH * d,
        "tv": lambda d: 1 - (1 - d) ** LENGTH,
        "chi2": lambda d: (1 + d) ** LENGTH - 1,
        "neyman": lambda d: (1 + d) ** LENGTH - 1,
        "hellinger": lambda d: 1 - (1 - d) ** LENGTH,
    }
    tally = Tally()
    for index in tally.rounds(deadline, 6):
        name = list(bounds)[index % len(bounds)]
        model, delta = _model(rng), float(10 ** rng.uniform(-2, -0.5))
        order = sorted(chains.target_law(model, LENGTH))
        q = np.array([chains.target_law(model, LENGTH)[x] for x in order])
        law, _, _ = chains.token_loop(
            model, LENGTH, DRAFTS, policy_of(model, cr.Mentored(delta, name))
        )
        p = np.array([law.get(x, 0.0) for x in order])
        tally.at_most(oracles.divergence(name, p, q, 17), bounds[name](delta), 1e-12, name)
        factor = 1 + 2 * delta
        law, _, _ = chains.token_loop(model, LENGTH, DRAFTS, policy_of(model, cr.Lenience(factor)))
        most = max(law.get(x, 0.0) / t for x, t in zip(order, q, strict=True))
        tally.at_most(most, factor**LENGTH, 1e-12, "Lenience: likelihood ratio")
    return tally.result()


def tally_law(law: instances.Row) -> None:
    """The clip rule's law must sum to 1; anything else would hide mass from the enumeration."""
    if abs(float(law.sum()) - 1) > 1e-9:
        raise ValueError(f"not a law: sums to {law.sum()!r}")


def budgeted_policy(model: chains.Model, total: float, length: int, pace: float) -> chains.Policy:
    """What `Budgeted` does at one position of the loop, asked with the rows up to there."""

    @cache
    def step(history: chains.History, start: int, booked: float) -> chains.Step:
        keeper = Budgeted(total, length, pace)
        keeper.spent, keeper.emitted = booked, start
        rows = [model(history[:i]) for i in range(start, len(history) + 1)]
        draft, target = (np.stack(side) for side in zip(*rows, strict=True))
        rule = keeper.rule(draft, np.concatenate([target, target[-1:]]))
        p, q = rows[-1]
        out = np.clip(p, rule.lower[-1] * q, rule.upper[-1] * q)
        tally_law(out)
        price = max(oracles.divergence("kl", out / out.sum(), q), 0.0)
        return chains.Step(np.minimum(p, out), out, np.full(len(p), price), price)

    return step


def _through_verify(
    model: chains.Model, total: float, rng: np.random.Generator, tally: Tally
) -> None:
    """A whole run through `verify`: it decides by the priced laws, and the total holds."""
    keeper = Budgeted(total, 12)
    history: chains.History = ()
    while keeper.emitted < 12:
        rows = [model(history)]
        ids: list[int] = []
        for _ in range(DRAFTS):
            ids.append(int(rng.choice(model.size, p=rows[-1][0])))
            rows.append(model((*history, *ids)))
        p, q = (np.stack(side) for side in zip(*rows, strict=True))
        rule = keeper.rule(p[:-1], q)
        laws = np.clip(p[:-1], rule.lower[:, None] * q[:-1], rule.upper[:, None] * q[:-1])
        u = rng.uniform(0, 1, (DRAFTS + 1, 2))
        for walk in ("token", "block"):
            found = cr.verify(p[:-1], q, np.array(ids), rule, uniforms=u, walk=walk)
            expected = textbook(p[:-1], q, laws, ids, u, walk == "block")
            got = int(found.num_accepted), int(found.token_ids[int(found.num_accepted)])
            tally.true(got == expected, f"verify with the priced rule, {walk} walk")
        keeper.charge(int(found.num_accepted))
        history = (*history, *(int(t) for t in found.token_ids if t >= 0))
    tally.at_most(keeper.spent, total, 0.0, "booked over a run")


def budgeted(rng: np.random.Generator, deadline: float) -> Result:
    """`Budgeted` never books more than its total on any path, and the sequence stays within it."""
    tally, used = Tally(), 0.0
    for _ in tally.rounds(deadline, 4):
        model, total = _model(rng), float(10 ** rng.uniform(-2, 0))
        pace = float(rng.choice([1.0, 2.0, 10.0]))
        planned = int(rng.choice([2, LENGTH, 20]))
        policy = budgeted_policy(model, total, planned, pace)
        law, spent, most = chains.token_loop(model, LENGTH, DRAFTS, policy)
        tally.at_most(most, total, 1e-12, "booked on the dearest path")
        whole = chains.kl(law, chains.target_law(model, LENGTH))
        tally.at_most(whole, spent, 1e-12, "KL of the sequence <= expected booking")
        used = max(used, spent / total)
        small = _model(rng, 2)
        policy = budgeted_policy(small, total, planned, pace)
        law, spent, most = blocks.block_loop(small, LENGTH, DRAFTS, policy)
        tally.at_most(most, total, 1e-12, "block walk: booked on the dearest path")
        whole = chains.kl(law, chains.target_law(small, LENGTH))
        tally.at_most(whole, spent, 1e-12, "block walk: KL of the sequence <= expected booking")
        _through_verify(model, total, rng, tally)
    # Negative control: a price that looks at the drafted token books too little.
    p, q, delta = np.array([0.9, 0.1]), np.array([0.5, 0.5]), 0.1
    bold = cr.output_law(p, q, cr.Mentored(delta))
    peeked_law = np.array([min(p[0], bold[0]), 1 - min(p[0], bold[0])])
    booked = p[0] * oracles.divergence("kl", bold, q)
    spent_truly = oracles.divergence("kl", peeked_law, q)
    tally.at_most(booked, 0.95 * spent_truly, 0.0, "a price that peeks at the draft is too low")
    tally.note = f"up to {used:.2f} of the total used"
    return tally.result()


def ratio_budget(rng: np.random.Generator, deadline: float) -> Result:
    """Lenience with factor e^(what is left): P(x) <= e^total Q(x) for every sequence."""
    tally = Tally()
    for _ in tally.rounds(deadline, 6):
        model, total = _model(rng), float(10 ** rng.uniform(-1, 0.5))

        def step(
            history: chains.History, start: int, booked: float, model: chains.Model = model,
            total: float = total,
        ) -> chains.Step:  # fmt: skip
            p, q = model(history)
            spent = booked
            for i in range(start, len(history)):  # what this call's accepted tokens were charged
                before_p, before_q = model(history[:i])
                token = history[i]
                spent += charge(before_p, before_q, total - spent)[token]
            rule = cr.Lenience(max(math.exp(total - spent), 1.0))
            out = cr.output_law(p, q, rule)
            kept = np.minimum(p, math.exp(total - spent) * q)
            return chains.Step(kept, out, charge(p, q, total - spent), 0.0)

        def charge(p: instances.Row, q: instances.Row, left: float) -> instances.Row:
            return np.maximum(np.log(np.minimum(p, math.exp(left) * q) / q), 0)

        law, _, most = chains.token_loop(model, LENGTH, DRAFTS, step)
        target = chains.target_law(model, LENGTH)
        tally.at_most(most, total, 1e-12, "charged on the dearest path")
        worst = max(math.log(m / target[x]) for x, m in law.items() if m > 0)
        tally.at_most(worst, total, 1e-11, "log P(x)/Q(x)")
    return tally.result()


CLAIMS = (
    Claim("9a", "sequence law",
          "KL(P, Q) <= E sum of the tested positions' KL(out, q), bonus tokens and rejections "
          "included, token or block walk; equality where no bonus token is in reach.",
          DERIVATION, FIGURE, chain_rule),
    Claim("9b", "sequence law",
          "N tokens under Mentored(delta, D): KL, reverse KL <= N delta; TV, Hellinger <= "
          "1-(1-delta)^N; chi2, Neyman <= (1+delta)^N - 1. Lenience: P(x) <= factor^N Q(x).",
          DERIVATION, FIGURE, per_rule),
    Claim("9e", "sequence law",
          "Budgeted(B): at most B booked on every path, KL(P, Q) <= B for the whole sequence, "
          "token or block walk.",
          DERIVATION, FIGURE, budgeted),
    Claim("9f", "sequence law",
          "Lenience with factor exp(B - log ratios charged so far): P(x) <= e^B Q(x) for every "
          "sequence x.",
          DERIVATION, FIGURE, ratio_budget),
)  # fmt: skip
