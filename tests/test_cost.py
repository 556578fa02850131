"""The cost model: its formula, its limits, and its errors."""

from __future__ import annotations

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


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="batch must have the cost of 1 token"):
        CostModel({2: 1.0})
    with pytest.raises(ValueError, match="costs must be positive"):
        CostModel({1: 1.0, 2: 0.0})
    with pytest.raises(ValueError, match=r"acceptance must be in \[0, 1\]"):
        expected_tokens(1.2, 3)
    with pytest.raises(ValueError, match="has 2 positions, k = 3 needs as many"):
        expected_tokens([0.5, 0.5], 3)
