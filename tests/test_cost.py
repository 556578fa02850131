"""The cost model: its formula, its limits, and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cactus_rules.cost import CostModel, expected_tokens


def test_expected_tokens_is_the_mean_of_the_truncated_geometric_law() -> None:
    rng = np.random.default_rng(0)
    a, k = 0.7, 4
    kept = np.cumprod(rng.random((200_000, k)) < a, axis=-1).sum(axis=-1)
    # Five standard errors of the mean of a variable in 0..4.
    assert expected_tokens(a, k) == pytest.approx(1 + kept.mean(), abs=5 * 2 / np.sqrt(200_000))
    assert expected_tokens([a] * 6, k) == expected_tokens(a, k)
    assert expected_tokens(0.0, 8) == 1.0
    assert expected_tokens(1.0, 8) == 9.0


def test_free_drafts_and_batches_gain_every_token() -> None:
    model = CostModel({1: 1.0, 9: 1.0})
    assert model.speedup(1.0, 8) == 9.0
    assert model.best_length(0.5) == 16


def test_batches_that_cost_as_much_as_single_tokens_gain_nothing() -> None:
    model = CostModel({1: 1.0, 17: 17.0})
    assert model.speedup(0.9, 4) < 1
    assert model.best_length(0.9) == 0


def test_costs_are_interpolated_and_extended() -> None:
    model = CostModel({1: 10.0, 5: 18.0, 9: 30.0}, draft=1.0, overhead=0.5)
    assert model.call(2) == 14.0 + 2.0 + 0.5
    assert model.call(12) == 30.0 + 3.0 * 4 + 12.0 + 0.5


def test_costs_that_fall_are_not_extended_below_zero() -> None:
    assert CostModel({1: 2.0, 2: 1.0}).call(20) == 1.0


def test_acceptance_is_any_number_or_one_per_position() -> None:
    model = CostModel({1: 1.0, 9: 1.1})
    for number in (np.float32(0.5), np.array(0.5)):
        assert model.best_length(number) == model.best_length(0.5)
        assert expected_tokens(number, 3) == expected_tokens(0.5, 3)
    assert model.best_length(np.array([0.9, 0.9])) == 2


BATCH = {1: 1.0, 9: 1.1}

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: CostModel([1, 2]), "batch must map the number of tokens of a call to its cost"),
    (lambda: CostModel(None), "batch must map .*, got None"),
    (lambda: CostModel("a"), "batch must map .*, got 'a'"),
    (lambda: CostModel({1: 1.0, 2: math.nan}), r"costs must be .* got batch\[2\] = nan"),
    (lambda: CostModel({1: 1.0, 2: "x"}), r"costs must be .* got batch\[2\] = 'x'"),
    (lambda: CostModel(BATCH, draft=None), "costs must be .* got draft = None"),
    (lambda: CostModel(BATCH, overhead=math.inf), "costs must be .* got overhead = inf"),
    (lambda: CostModel({0: 1.0, 1: 1.0}), r"integers >= 1 as its keys \(tokens\), got \[0, 1\]"),
    (lambda: CostModel({1: 1.0, 2.5: 1.0}), r"integers >= 1 as its keys .*, got \[1, 2\.5\]"),
    (lambda: CostModel(BATCH).call(-3), "k must be an integer >= 0 .*, got -3"),
    (lambda: CostModel(BATCH).speedup(0.5, 2.5), "k must be an integer >= 0 .*, got 2.5"),
    (lambda: CostModel(BATCH).best_length("a"), r"acceptance must be in \[0, 1\], .* got 'a'"),
    (lambda: CostModel(BATCH).best_length(0.5, -1), "most must be an integer >= 0 .*, got -1"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text[-40:] for _, text in REFUSED])
def test_what_is_no_cost_is_refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="batch must have the cost of 1 token"):
        CostModel({2: 1.0})
    with pytest.raises(ValueError, match="costs must be positive"):
        CostModel({1: 1.0, 2: 0.0})
    with pytest.raises(ValueError, match=r"acceptance must be in \[0, 1\]"):
        expected_tokens(1.2, 3)
    with pytest.raises(ValueError, match="has 2 positions, k = 3 needs as many"):
        expected_tokens([0.5, 0.5], 3)
