"""From logits to the sampled law, against a slow reference."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import Kind

import cactus_rules as cr

OPTIONS = [
    {"temperature": t, "top_k": k, "top_p": p, "min_p": m}
    for t in (0.0, 0.3, 1.0, 2.5)
    for k in (0, 1, 3, 99)
    for p in (0.05, 0.6, 1.0)
    for m in (0.0, 0.1, 1.0)
]


def _reference(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> list[float]:
    """One filter after the other, each on a renormalised law, in plain Python."""
    falling = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if temperature == 0:
        return [float(i == falling[0]) for i in range(len(logits))]
    top = max(logits)
    law = {i: math.exp((logits[i] - top) / temperature) for i in falling}
    law = dict(list(law.items())[:top_k]) if top_k else law
    law = {i: x / math.fsum(law.values()) for i, x in law.items()}
    if top_p < 1:
        kept: dict[int, float] = {}
        for i, x in law.items():
            if not kept or math.fsum(kept.values()) < top_p:
                kept[i] = x
        law = {i: x / math.fsum(kept.values()) for i, x in kept.items()}
    most = max(law.values())
    law = {i: x for i, x in law.items() if x >= min_p * most}
    return [law.get(i, 0.0) / math.fsum(law.values()) for i in range(len(logits))]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
def test_warp_is_the_slow_reference(options: dict[str, Any], kind: Kind) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=3.0, size=(4, 9))
    logits[1, 4] = -np.inf
    logits[2, 3] = logits[2, 6] = logits[2].max()
    got = kind.back(cr.warp(kind.make(logits), **options))
    expected = [_reference(row.tolist(), **options) for row in logits]
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-300)


@given(
    st.lists(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 0.5 + 1e-9, 2.0]), min_size=2, max_size=8),
    st.sampled_from(OPTIONS),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([1, 2, 256]),
)
def test_candidates_are_the_tokens_that_warp_keeps(
    logits: list[float], options: dict[str, Any], dtype: str, few: int
) -> None:
    row = np.array([1.0, *logits], dtype=dtype)
    dense = cr.warp(row, **options)
    with mock.patch("cactus_rules.warp._FEW", few):
        listed = cr.candidates(row, **options)
    np.testing.assert_array_equal(np.flatnonzero(dense), np.sort(listed.ids[listed.ids >= 0]))
    # Sums over all logits and over the kept ones are rounded in other groups.
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(listed.dense(len(row)), dense, rtol=16 * eps)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 1e-6, 0.1, 1.0, 4.0, 20.0]),
    st.sampled_from(["float16", "float32", "float64"]),
    st.sampled_from([0.01, 0.5, 0.9, 0.999999, 1 - 1e-12, 1.0]),
    st.sampled_from([0.0, 0.01, 1.0]),
)
def test_a_nucleus_of_any_size_is_that_of_a_full_sort(
    seed: int, scale: float, dtype: str, top_p: float, min_p: float
) -> None:
    rng = np.random.default_rng(seed)
    # Half types and rounding make ties; scales from flat rows to one token that has all.
    logits = np.round(scale * rng.normal(size=(2, 3000)), int(rng.integers(0, 8))).astype(dtype)
    logits[:, rng.permutation(3000)[: rng.integers(0, 2999)]] = -np.inf
    dense = cr.warp(logits, top_p=top_p, min_p=min_p)
    listed = cr.candidates(logits, top_p=top_p, min_p=min_p)
    for row, ids, probs in zip(dense, listed.ids, listed.probs, strict=True):
        np.testing.assert_array_equal(np.flatnonzero(row), ids[ids >= 0])
        eps = float(np.finfo(row.dtype).eps)
        np.testing.assert_allclose(probs[ids >= 0], row[ids[ids >= 0]], rtol=16 * eps)


def test_ties_go_to_the_lower_id() -> None:
    logits = np.array([0.0, 2.0, 2.0, 2.0])
    np.testing.assert_array_equal(cr.warp(logits, temperature=0.0), [0, 1, 0, 0])
    np.testing.assert_array_equal(cr.warp(logits, top_k=2), [0, 0.5, 0.5, 0])
    np.testing.assert_array_equal(cr.warp(logits, top_p=0.1), [0, 1, 0, 0])
    np.testing.assert_array_equal(cr.candidates(logits, top_k=2).ids, [1, 2])


def test_top_k_ranks_logits_that_round_to_one_probability() -> None:
    logits = np.array([1.0, 1.0 + 2.0**-23, 0.0], dtype=np.float32)
    np.testing.assert_array_equal(cr.warp(logits, temperature=8.0, top_k=1), [0, 1, 0])


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-45, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_low_temperatures_reach_the_argmax_without_nan(temperature: float, dtype: str) -> None:
    logits = np.array([-1e4, 3.0, 2.0, -np.inf], dtype=dtype)
    np.testing.assert_array_equal(cr.warp(logits, temperature=temperature), [0, 1, 0, 0])


def test_temperature_comes_before_the_filters() -> None:
    # At temperature 2 the second token has a third of the first's mass, at 1 a ninth.
    logits = np.log(np.array([9.0, 1.0, 1e-9]))
    assert cr.warp(logits, temperature=2.0, min_p=0.2)[1] > 0
    assert cr.warp(logits, temperature=1.0, min_p=0.2)[1] == 0
    assert cr.warp(logits, temperature=2.0, top_p=0.8)[1] > 0
    assert cr.warp(logits, temperature=1.0, top_p=0.8)[1] == 0


def test_filters_apply_one_after_the_other() -> None:
    # After top-k the first token has 4/7, which reaches .5 alone; before it has .4 and does not.
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
    np.testing.assert_allclose(cr.warp(logits, top_k=2, top_p=0.5), [1, 0, 0, 0])
    np.testing.assert_allclose(cr.warp(logits, top_p=0.5), [4 / 7, 3 / 7, 0, 0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dtype_of_the_result(dtype: str, kind: Kind) -> None:
    if dtype == "float16" and kind.name == "array-api-strict":
        pytest.skip("array-api-strict has no float16")
    for options in ({}, {"top_p": 0.9}, {"temperature": 0.0}):
        law = kind.back(cr.warp(kind.make(np.array([1.0, 2.0], dtype=dtype)), **options))
        assert law.dtype == np.dtype("float64" if dtype == "float64" else "float32")
        assert abs(float(law.sum()) - 1) <= 4 * np.finfo(law.dtype).eps


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("temperature", -1.0, r"temperature must be finite and >= 0 \(0 is greedy\), got -1.0"),
        ("temperature", math.nan, r"temperature must be finite and >= 0 \(0 is greedy\), got nan"),
        ("temperature", math.inf, r"temperature must be finite and >= 0 \(0 is greedy\), got inf"),
        ("top_k", -1, r"top_k must be an integer >= 0 \(0 keeps all tokens\), got -1"),
        ("top_k", 1.5, r"top_k must be an integer >= 0 \(0 keeps all tokens\), got 1.5"),
        ("top_k", True, r"top_k must be an integer >= 0 \(0 keeps all tokens\), got True"),
        ("top_p", 0.0, r"top_p must be in \(0, 1\] \(1 keeps all tokens\), got 0.0"),
        ("top_p", 1.1, r"top_p must be in \(0, 1\] \(1 keeps all tokens\), got 1.1"),
        ("min_p", -0.1, r"min_p must be in \[0, 1\] \(0 keeps all tokens\), got -0.1"),
        ("min_p", 1.1, r"min_p must be in \[0, 1\] \(0 keeps all tokens\), got 1.1"),
        ("temperature", None, "temperature must be finite and >= 0 .*, got None"),
        ("temperature", "1", "temperature must be finite and >= 0 .*, got '1'"),
        (
            "temperature",
            np.ones(2),
            r"temperature must be one number, got an array \(2,\): .*torch",
        ),
        ("top_k", math.inf, "top_k must be an integer >= 0 .*, got inf"),
        ("top_k", math.nan, "top_k must be an integer >= 0 .*, got nan"),
        ("top_k", [1], r"top_k must be an integer >= 0 .*, got \[1\]"),
        ("top_p", "x", r"top_p must be in \(0, 1\] .*, got 'x'"),
        ("min_p", None, r"min_p must be in \[0, 1\] .*, got None"),
    ],
)
def test_options_outside_their_range_are_refused(option: str, value: Any, text: str) -> None:
    for call in (cr.warp, cr.candidates):
        with pytest.raises(ValueError, match=text):
            call(np.array([1.0, 2.0]), **{option: value})


@pytest.mark.parametrize(
    ("logits", "text"),
    [
        (None, "logits must .*(got None|dtype object)"),
        ("x", "logits must .*(got 'x'|dtype <U1)"),
        (0.5, r"logits must be rows \(\.\.\., V\) of at least one token, got shape \(\)"),
        ([], r"logits must be rows \(\.\.\., V\) of at least one token, got shape \(0,\)"),
        (np.zeros((2, 0)), r"of at least one token, got shape \(2, 0\)"),
        (np.array([True, False]), "logits must hold floats, got dtype bool"),
        ([[1.0], [1.0, 2.0]], "logits must be an array, or nested lists whose rows are of one"),
    ],
    ids=str,
)
def test_logits_are_rows_of_numbers(logits: Any, text: str) -> None:
    for call in (cr.warp, cr.candidates):
        with pytest.raises(ValueError, match=text):
            call(logits)


@pytest.mark.parametrize(
    "options", [{}, {"top_k": 4}, {"top_k": 99}, {"top_p": 0.5}, {"min_p": 0.1}], ids=str
)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
def test_a_row_without_a_law_lists_token_0_with_nan(options: dict[str, Any], bad: float) -> None:
    logits = np.zeros((3, 600))
    # One bad entry among equals, or no finite one.
    logits[1, 500 if bad > 0 or math.isnan(bad) else slice(None)] = bad
    assert np.isnan(cr.warp(logits, **options)[1]).all()
    listed = cr.candidates(logits, **options)
    np.testing.assert_array_equal(listed.ids[1][listed.ids[1] >= 0], [0])
    assert np.isnan(listed.probs[1, 0])
    np.testing.assert_allclose(listed.dense(600)[[0, 2]], cr.warp(logits, **options)[[0, 2]])
