"""The rules as records: registry, parameters, guarantees; and the numbers of each, by formula."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import strategies

import cactus_rules as cr
from cactus_rules import rules


def test_registry_has_every_rule_under_its_name() -> None:
    classes = {
        x for x in vars(rules).values() if isinstance(x, type) and issubclass(x, cr.Rule)
    } - {cr.Rule}
    assert set(cr.REGISTRY.values()) == classes
    assert all(cr.REGISTRY[rule.name] is rule for rule in classes)
    assert {type(rule) for rule in strategies.EXAMPLES} == classes


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_rules_are_frozen_records(rule: cr.Rule) -> None:
    assert dataclasses.replace(rule) == rule  # type: ignore[type-var]
    assert hash(rule) == hash(dataclasses.replace(rule))  # type: ignore[type-var]
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.name = "other"  # type: ignore[misc]


PROMISES: list[tuple[cr.Rule, str | None, str | None, float | None]] = [
    (cr.Lossless(), "output", "every divergence", 0.0),
    (cr.SampleMatch(), "output", "every divergence", 0.0),
    (cr.Cactus(0.1), "surrogate", "kl", 0.1),
    (cr.Cactus(0.1, "js"), "surrogate", "js", 0.1),
    (cr.Cactus(0.1, solver="closed"), "surrogate", "kl", 0.1),
    (cr.Cactus(0.1, solver="taylor"), "surrogate", "kl", math.log(1.2)),
    (cr.Mentored(0.1, "reverse_kl"), "output", "reverse_kl", 0.1),
    (cr.Band(0.7), "output", "max", 0.7),
    (cr.Lenience(1.5), "output", "max", math.log(1.5)),
    (cr.Ensemble(0.6), "output", "tv", 0.4),
    (cr.ReducibleFuzzy(0.05), "output", "js", 0.05),
    (cr.Typical(), None, None, None),
    (cr.Threshold(), None, None, None),
    (cr.TopK(3), None, None, None),
    (cr.Nucleus(0.7), None, None, None),
    (cr.MinP(0.3), None, None, None),
    (cr.RelaxedTopN(), None, None, None),
]


@pytest.mark.parametrize(("rule", "law", "divergence", "bound"), PROMISES, ids=repr)
def test_guarantee(
    rule: cr.Rule, law: str | None, divergence: str | None, bound: float | None
) -> None:
    promise = rule.guarantee
    assert (promise.law, promise.divergence) == (law, divergence)
    assert promise.bound == (bound if bound is None else pytest.approx(bound))
    text = str(promise)
    assert text.startswith("none") if law is None else f"({law} law, target) <= {bound:.6g}" in text


BOUNDED = [promise for promise in PROMISES if promise[1] == "output" and promise[3]]


@pytest.mark.parametrize(("rule", "law", "divergence", "bound"), BOUNDED, ids=repr)
def test_output_guarantees_hold_and_are_reached(
    rule: cr.Rule, law: str, divergence: str, bound: float
) -> None:
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(200):
        p, q = strategies.distinct_pair(rng, 4)
        spent = float(cr.divergences.get(divergence).between(cr.output_law(p, q, rule), q))
        assert spent <= bound * (1 + 1e-9)
        largest = max(largest, spent)
    # A bound that no row comes near would say nothing.
    assert largest >= 0.5 * bound


REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (cr.Cactus, {"delta": -0.1}, r"Cactus: delta must be .* >= 0, got -0\.1: .*0 is lossless"),
    (cr.Cactus, {"delta": math.nan}, r"Cactus: delta must be .* >= 0, got nan"),
    (cr.Cactus, {"delta": "0.1"}, r"Cactus: delta must be a number or an array"),
    (cr.Cactus, {"delta": True}, r"Cactus: delta must be a number or an array"),
    (cr.Cactus, {"delta": np.array([0.1, -1.0])}, r"Cactus: delta must be .* >= 0"),
    (cr.Cactus, {"delta": [0.1, math.nan]}, r"Cactus: delta must be .* >= 0"),
    (cr.Cactus, {"delta": 0.1, "divergence": "x"}, r"divergence must be one of 'kl'"),
    (cr.Cactus, {"delta": 0.1, "solver": "x"}, r"solver must be 'exact', 'taylor' or 'closed'"),
    (cr.Cactus, {"delta": 1, "divergence": "tv", "solver": "closed"}, r"formula for .*'kl'"),
    (cr.Mentored, {"delta": -1}, r"Mentored: delta must be .* >= 0, got -1"),
    (cr.Mentored, {"delta": 1, "divergence": None}, r"divergence must be one of 'kl'"),
    (cr.Band, {"width": -1.0}, r"Band: width must be .* >= 0, got -1\.0"),
    (cr.Lenience, {"factor": 0.9}, r"Lenience: factor must be .* >= 1, got 0\.9: .*1/l"),
    (cr.Ensemble, {"weight": 1.1}, r"Ensemble: weight must be .* in \[0, 1\], got 1\.1"),
    (cr.ReducibleFuzzy, {"threshold": -0.1}, r"ReducibleFuzzy: threshold must be .* >= 0"),
    (cr.Typical, {"epsilon": -0.1}, r"Typical: epsilon must be .* >= 0"),
    (cr.Typical, {"alpha": math.nan}, r"Typical: alpha must be .* >= 0"),
    (cr.Threshold, {"acc": 0.0}, r"Threshold: acc must be .* 1\], got 0\.0"),
    (cr.Threshold, {"acc": 1.1}, r"Threshold: acc must be .* 1\], got 1\.1"),
    (cr.Threshold, {"single": -0.1}, r"Threshold: single must be .* >= 0.*math\.inf"),
    (cr.TopK, {"k": 0}, "TopK: k must be an integer >= 1, got 0"),
    (cr.TopK, {"k": "x"}, "TopK: k must be an integer >= 1, got 'x'"),
    (cr.TopK, {"k": 1.5}, r"TopK: k must be an integer >= 1, got 1\.5"),
    (cr.TopK, {"k": True}, r"TopK: k must be an integer >= 1, got True"),
    (cr.TopK, {"k": [1, 0]}, r"TopK: k must be an integer >= 1, got array\(\[1, 0\]\)"),
    (cr.TopK, {"k": [1.0, 2.0]}, r"TopK: k must be an integer >= 1"),
    (cr.Nucleus, {"mass": 1.5}, r"Nucleus: mass must be .* in \[0, 1\], got 1\.5"),
    (cr.MinP, {"ratio": -0.5}, r"MinP: ratio must be .* in \[0, 1\], got -0\.5"),
    (cr.RelaxedTopN, {"n": 0}, "RelaxedTopN: n must be an integer >= 1, got 0"),
    (cr.RelaxedTopN, {"gap": 2.0}, r"RelaxedTopN: gap must be .* in \[0, 1\], got 2\.0"),
    (cr.Budgeted, {"total": -1.0, "length": 2}, r"Budgeted: total must be .* >= 0, got -1\.0"),
    (cr.Budgeted, {"total": "x", "length": 2}, "Budgeted: total must be a number >= 0, got 'x'"),
    (cr.Budgeted, {"total": 1.0, "length": 2.5}, r"Budgeted: length must be an integer .* 2\.5"),
    (cr.Budgeted, {"total": 1.0, "length": 2, "pace": 0.5}, "Budgeted: pace must be .* >= 1"),
]


@pytest.mark.parametrize(("rule", "parameters", "text"), REFUSED, ids=lambda x: str(x)[:40])
def test_bad_parameters_are_refused_with_name_value_and_remedy(
    rule: type, parameters: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        rule(**parameters)


P, Q, N = np.array([0.1, 0.5, 0.4]), np.array([0.5, 0.3, 0.2]), 1
CAP = math.inf

NUMBERS: list[tuple[cr.Rule, float, float]] = [
    (cr.Lossless(), 0.3, 1.0),
    (cr.Cactus(0.1, "tv"), 0.4, 0.6 / 0.7),
    (cr.Cactus(0.1, solver="taylor"), 0.3 + math.sqrt(0.2 * 0.21), (0.7 - math.sqrt(0.042)) / 0.7),
    (cr.Lenience(1.5), 0.45, 1.0),
    (cr.Ensemble(0.75), 0.35, 1.0),
    (cr.Typical(epsilon=0.2, alpha=1.0), CAP, CAP),
    (cr.Typical(epsilon=0.4, alpha=1.0), 0.0, CAP),  # e^{-H(q)} = .357
    (cr.Typical(epsilon=0.4, alpha=0.8), CAP, CAP),
    (cr.Threshold(0.5, 0.9), 0.6, 1.0),
    (cr.Threshold(0.5, 0.3), CAP, 1.0),
    (cr.TopK(1), 0.0, CAP),
    (cr.TopK(2), CAP, CAP),
    (cr.Nucleus(0.5), 0.0, CAP),
    (cr.Nucleus(0.75), CAP, CAP),
    (cr.MinP(0.5), CAP, CAP),
    (cr.MinP(0.625), 0.0, CAP),
    (cr.RelaxedTopN(2, 0.25), CAP, CAP),
    (cr.RelaxedTopN(2, 0.125), 0.0, CAP),
    (cr.ReducibleFuzzy(10.0), CAP, 1.0),
    (cr.ReducibleFuzzy(1e-9), 0.3, 1.0),
]


@pytest.mark.parametrize(("rule", "cap", "scale"), NUMBERS, ids=lambda x: repr(x)[:40])
def test_numbers(rule: cr.Rule, cap: float, scale: float) -> None:
    a = cr.accept(P, Q, N, rule=rule)
    assert float(a.cap) == pytest.approx(cap)
    assert float(a.scale) == pytest.approx(scale)


def test_ties_at_a_floor_go_to_the_lower_id() -> None:
    q = np.array([0.25, 0.25, 0.25, 0.25])
    for rule in (cr.TopK(2), cr.Nucleus(0.5)):
        kept = [float(cr.accept(None, q, n, rule=rule).probability) for n in range(4)]
        assert kept == [1, 1, 0, 0]
        np.testing.assert_array_equal(cr.accept(None, q, 3, rule=rule).residual(), [0.5, 0.5, 0, 0])
    relaxed = cr.accept(None, q, 3, rule=cr.RelaxedTopN(2, 0.0))
    np.testing.assert_array_equal(relaxed.residual(), [1, 0, 0, 0])


def test_nucleus_of_all_mass_keeps_all_that_has_probability() -> None:
    q = np.array([1.0, 1e-17, 0.0])
    kept = [float(cr.accept(None, q, n, rule=cr.Nucleus(1.0)).probability) for n in range(3)]
    assert kept == [1, 1, 0]


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_a_one_hot_target_is_an_exact_match(rule: cr.Rule) -> None:
    q = np.array([0.0, 1.0, 0.0])
    p = np.array([0.3, 0.3, 0.4])
    for draft in (p, None):
        for n in range(3):
            a = cr.accept(draft, q, n, rule=rule)
            assert float(a.probability) == float(n == 1)
            np.testing.assert_array_equal(a.residual(), q)
