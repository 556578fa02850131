"""Shared hypothesis strategies: built, not filtered.

Left out, because other files are about them: rows that are no laws (`test_safe_policy.py`,
`test_errors.py`), and rows of different width (`test_errors.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import cactus_rules as cr


def times(factor: int) -> settings:
    """Settings with `factor` times the examples of the profile in use."""
    return settings(max_examples=factor * settings.default.max_examples)  # type: ignore[union-attr]


Pair = tuple[np.ndarray, np.ndarray]
"""Draft row and target row."""

_GRAIN = 2**40
"""Probabilities of `exact_laws` are multiples of 1/_GRAIN, so that float64 adds them up exactly."""

_WEIGHTS = st.one_of(
    st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, 3.0]),
    st.floats(0.01, 10.0),
    st.sampled_from([5e-324, 1e-310, 1e-200, 1e-30, 1e-17, 1e-9, 1e-4]),
)
"""Zeros, ties, ordinary weights, subnormal and tiny ones."""


@st.composite
def laws(draw: st.DrawFn, width: int) -> np.ndarray:
    """A float64 row: one-hot, uniform, or any mixture of zeros, ties, ordinary and tiny entries."""
    shape = draw(st.sampled_from(["any", "any", "any", "one-hot", "uniform"]))
    if shape == "one-hot":
        return np.eye(width)[draw(st.integers(0, width - 1))]
    if shape == "uniform":
        return np.full(width, 1 / width)
    weights = np.array(draw(st.lists(_WEIGHTS, min_size=width, max_size=width)))
    weights[draw(st.integers(0, width - 1))] += draw(st.sampled_from([1.0, 1.0, 100.0]))
    return weights / weights.sum()


@st.composite
def pairs(draw: st.DrawFn, min_width: int = 2, max_width: int = 8) -> Pair:
    """Two float64 rows of one width: unrelated, equal, near each other, or sharing no token."""
    width = draw(st.integers(min_width, max_width))
    q = draw(laws(width))
    relation = draw(st.sampled_from(["any", "any", "any", "equal", "near", "disjoint"]))
    if relation == "equal":
        return q.copy(), q
    p = draw(laws(width))
    if relation == "near":
        p = q + draw(st.sampled_from([1e-15, 1e-9, 1e-3])) * p
    if relation == "disjoint":
        p = np.where(q > 0, 0.0, p + 0.125)
        p = p if p.sum() > 0 else q.copy()
    return p / p.sum(), q


@st.composite
def typed_pairs(draw: st.DrawFn) -> Pair:
    """As `pairs`, in float16, float32 or float64: the sums are off 1 by the dtype's rounding."""
    p, q = draw(pairs())
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    return p.astype(dtype), q.astype(dtype)


@st.composite
def exact_laws(draw: st.DrawFn, width: int) -> np.ndarray:
    """A float64 row whose entries add up to exactly 1: zeros, ties and entries from 1e-12 occur."""
    point = st.one_of(
        st.integers(0, 8), st.integers(0, _GRAIN), st.integers(0, 8).map(lambda i: i * _GRAIN // 8)
    )
    cuts = sorted(draw(st.lists(point, min_size=width - 1, max_size=width - 1)))
    entries = np.diff(np.array([0, *cuts, _GRAIN])) / _GRAIN
    return np.array(draw(st.permutations(entries.tolist())))


@st.composite
def exact_pairs(draw: st.DrawFn, min_width: int = 2, max_width: int = 6) -> Pair:
    """Two rows of `exact_laws`."""
    width = draw(st.integers(min_width, max_width))
    return draw(exact_laws(width)), draw(exact_laws(width))


def distinct_pair(rng: np.random.Generator, width: int, zeros: int = 0) -> Pair:
    """Two rows without ties, with `zeros` entries of each set to 0."""
    rows = rng.dirichlet(np.full(width, 0.5), size=2) + 1e-3 * rng.random((2, width))
    for row in rows:
        row[rng.permutation(width)[:zeros]] = 0.0
    p, q = rows / rows.sum(axis=-1, keepdims=True)
    return p, q


PROBABILITIES = st.one_of(
    st.floats(1e-300, 1.0, exclude_max=True),
    st.integers(0, 299).flatmap(lambda e: st.floats(1, 9).map(lambda m: m * 10.0**-e / 10)),
    st.integers(1, 2**20).map(lambda i: 1 - i * 2.0**-53),
)
"""Of a token under the target, in (0, 1): from 1e-300, and up to the last float below 1."""

BUDGETS = st.one_of(
    st.floats(1e-12, 50.0),
    st.integers(-12, 1).flatmap(lambda e: st.floats(1, 5).map(lambda m: m * 10.0**e)),
    st.sampled_from([1e-12, 0.1, 0.5, 0.6931471805599453, 1.0, 50.0]),
)

ORDERS = st.sampled_from([-3.0, -1.0, -0.5, 0.01, 0.5, 0.99, 1.01, 1.5, 2.0, 3.0, 7.0, 30.0])
"""Of the alpha family: around its excluded orders 0 and 1, and steep powers."""

DIVERGENCES = st.one_of(
    st.sampled_from(list(cr.divergences.BY_NAME.values())), ORDERS.map(cr.divergences.Alpha)
)

_SMALL_BUDGETS = st.sampled_from([0.0, 1e-6, 0.01, 0.1, 0.5, 1.0, 5.0])
_SHARES = st.sampled_from([0.0, 0.05, 0.3, 0.71, 1.0])


def _cactus() -> st.SearchStrategy[cr.Cactus]:
    solvers: Any = st.sampled_from(["taylor", "closed"])
    return st.one_of(
        st.builds(cr.Cactus, _SMALL_BUDGETS, DIVERGENCES),
        st.builds(cr.Cactus, _SMALL_BUDGETS, st.just("kl"), solvers),
    )


CLIP_RULES = st.one_of(
    st.builds(cr.Mentored, _SMALL_BUDGETS, DIVERGENCES),
    st.builds(cr.Band, st.sampled_from([0.0, 0.01, 0.3, 1.0, 4.0])),
)

MONOTONE_RULES = st.one_of(
    st.just(cr.Lossless()),
    _cactus(),
    CLIP_RULES,
    st.builds(cr.Lenience, st.sampled_from([1.0, 1.1, 1.5, 4.0, 1e6])),
    st.builds(cr.Ensemble, _SHARES),
    st.builds(cr.ReducibleFuzzy, _SMALL_BUDGETS, st.sampled_from(["js", "tv", "kl", "hellinger"])),
)
"""The rules whose output law lies between draft and target."""

SET_RULES = st.one_of(
    st.builds(cr.TopK, st.integers(1, 9)),
    st.builds(cr.Nucleus, _SHARES),
    st.builds(cr.MinP, _SHARES),
    st.builds(cr.RelaxedTopN, st.integers(1, 9), _SHARES),
)

RULES = st.one_of(
    MONOTONE_RULES,
    SET_RULES,
    st.just(cr.SampleMatch()),
    st.builds(cr.Typical, st.sampled_from([0.0, 0.09, 0.3]), st.sampled_from([0.3, 0.6, 2.0])),
    st.builds(cr.Threshold, st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from([0.2, 1.0, np.inf])),
)
"""Every rule of the library, with random parameters."""

EXAMPLES: tuple[cr.Rule, ...] = (
    cr.Lossless(),
    cr.SampleMatch(),
    cr.Cactus(0.1),
    cr.Cactus(0.4, solver="taylor"),
    cr.Cactus(0.4, solver="closed"),
    cr.Cactus(0.05, "hellinger"),
    cr.Cactus(0.05, cr.divergences.Alpha(1.5)),
    cr.Mentored(0.1),
    cr.Mentored(0.05, "tv"),
    cr.Mentored(0.3, "max"),
    cr.Band(0.7),
    cr.Lenience(1.5),
    cr.Ensemble(0.6),
    cr.ReducibleFuzzy(0.05),
    cr.Typical(),
    cr.Threshold(0.5, 0.8),
    cr.TopK(3),
    cr.Nucleus(0.7),
    cr.MinP(0.3),
    cr.RelaxedTopN(4, 0.1),
)
"""One or more of each rule, for tests that go through all of them with seeded rows."""


def name_of(rule: cr.Rule) -> str:
    """A rule as a test id."""
    return repr(rule).replace("cactus_rules.divergences.", "")
