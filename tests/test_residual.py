"""What is drawn after a rejection, and how: weights and the inverse CDF in id order."""

from __future__ import annotations

import math

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from kinds import Kind

import cactus_rules as cr
from cactus_rules._arrays import namespace
from cactus_rules.residual import draw_index, residual_weights
from cactus_rules.rules import Numbers

HALF = 1 - 2.0**-53


def _slow_draw(weights: list[float], u: float) -> int:
    """The first i with C_i > u C_last, C in float64; the first that reaches C_last otherwise."""
    sums, total = [], 0.0
    for w in weights:
        total += w
        sums.append(total)
    return next((i for i, c in enumerate(sums) if c > u * total), sums.index(total))


@given(
    st.lists(st.sampled_from([0.0, 0.0, 0.1, 0.25, 1.0, 5e-324, 1e-300]), min_size=1, max_size=9),
    st.one_of(st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 0.25, 0.5, HALF])),
)
def test_draw_is_the_inverse_cdf_in_id_order(weights: list[float], u: float) -> None:
    weights[len(weights) // 2] += 0.25
    expected = _slow_draw(weights, u)
    assert cr.draw(np.array(weights), u) == expected
    assert weights[expected] > 0
    # And so in a batch.
    rows = np.array([weights, weights[::-1]])
    drawn = draw_index(namespace(rows), rows, np.array([u, u]))
    assert drawn.tolist() == [expected, _slow_draw(weights[::-1], u)]


@given(strategies.pairs(), st.integers(1, 400))
def test_draws_at_a_grid_of_uniforms_have_the_law_of_the_row(
    pair: strategies.Pair, many: int
) -> None:
    row = pair[0]
    u = (np.arange(many) + 0.5) / many
    drawn = draw_index(namespace(row), np.broadcast_to(row, (many, len(row))), u)
    share = np.bincount(drawn, minlength=len(row)) / many
    # Each interval of the inverse CDF holds its share of the grid, but for one point at either end.
    np.testing.assert_allclose(share, row, rtol=0, atol=2 / many)
    assert np.all(np.diff(drawn) >= 0)


def test_steps_of_the_inverse_cdf_belong_to_the_next_token(kind: Kind) -> None:
    row = kind.make(np.array([0.25, 0.0, 0.5, 0.25]))
    u = [0.0, np.nextafter(0.25, 0), 0.25, np.nextafter(0.75, 0), 0.75, HALF]
    assert [cr.draw(row, float(x)) for x in u] == [0, 0, 2, 2, 3, 3]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_weights_and_sums_are_float64(dtype: str, kind: Kind) -> None:
    if dtype == "float16" and kind.name == "array-api-strict":
        pytest.skip("array-api-strict has no float16")
    # 60,000 entries of 1e-5: a sum in float32 or float16 would lose its way.
    width = 60000
    row = np.full(width, 1 / width, dtype=dtype)
    exact = row.astype(np.float64)
    for u in (0.1, 0.5, 0.999):
        expected = _slow_draw(exact.tolist(), u)
        assert cr.draw(kind.make(row), u) == expected


def _weights(
    p: list[float] | None, q: list[float], token: int, scale: float, **floor: float
) -> np.ndarray:
    numbers = Numbers(0.0, scale, **{k: np.asarray(v) for k, v in floor.items()})
    target = np.array(q)
    draft = None if p is None else np.array(p)
    return residual_weights(namespace(target), draft, target, np.int64(token), numbers)


def test_weights_are_the_positive_part_of_scale_q_minus_p() -> None:
    p, q = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    np.testing.assert_array_equal(_weights(p, q, 0, 1.0), [0, 0, 0.25])
    np.testing.assert_array_equal(_weights(p, q, 0, 0.75), [0, 0, 0.125])
    # An infinite scale is the target itself, the rejected token included.
    np.testing.assert_array_equal(_weights(p, q, 0, math.inf), q)
    np.testing.assert_array_equal(_weights(None, q, 0, math.inf), q)
    # A one-hot draft takes the rejected token out, at any scale.
    np.testing.assert_array_equal(_weights(None, q, 0, 1.0), [0, 0.25, 0.5])
    np.testing.assert_array_equal(_weights(None, q, 0, 0.5), [0, 0.125, 0.25])


def test_a_floor_keeps_what_lies_above_it_and_ties_up_to_its_id() -> None:
    q = [0.2, 0.3, 0.2, 0.2, 0.1]
    floored = _weights(None, q, 4, math.inf, floor=0.2, floor_id=2)
    np.testing.assert_array_equal(floored, [0.2, 0.3, 0.2, 0, 0])


def test_an_empty_residual_falls_back_to_the_target_without_the_token() -> None:
    q = [0.25, 0.25, 0.5]
    np.testing.assert_array_equal(_weights(q, q, 2, 1.0), [0.25, 0.25, 0])


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, math.inf])
def test_a_zero_times_an_infinite_scale_makes_no_nan(scale: float) -> None:
    weights = _weights([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], 0, scale)
    assert np.all(np.isfinite(weights))
