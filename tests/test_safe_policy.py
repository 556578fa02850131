"""The safe policy: raises for no data, emits nothing that a sane row excludes, says what it did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from kinds import Kind

import cactus_rules as cr
from cactus_rules import Status

V = 5

_JUNK = st.sampled_from([0.0, 0.25, 0.5, 1.0, np.nan, np.inf, -np.inf, -0.5, 7.0, 1e308, 5e-324])
_JUNK_ROWS = st.lists(_JUNK, min_size=V, max_size=V).map(np.array)
_ROWS = st.one_of(strategies.laws(V), strategies.laws(V), _JUNK_ROWS, st.just(np.zeros(V)))
_TOKENS = st.one_of(
    st.integers(0, V - 1),
    st.integers(0, V - 1),
    st.sampled_from([-1, -2, V, V + 1, 2**40, -(2**40)]),
)
_UNIFORMS = st.sampled_from([0.0, 1e-17, 0.3, 0.5, 0.97, 1 - 2.0**-53])


@dataclass(frozen=True)
class Call:
    """One request with any data in it."""

    p: np.ndarray
    q: np.ndarray
    token: np.ndarray
    u: np.ndarray


@st.composite
def _calls(draw: st.DrawFn) -> Call:
    k = draw(st.integers(0, 3))
    rows = [np.array([draw(_ROWS) for _ in range(n)]).reshape(n, V) for n in (k, k + 1)]
    token = np.array([draw(_TOKENS) for _ in range(k)], dtype=np.int64)
    u = np.array([[draw(_UNIFORMS), draw(_UNIFORMS)] for _ in range(k + 1)])
    return Call(*rows, token, u)


def _is_law(row: np.ndarray) -> bool:
    """Entries fit to be drawn from; the safe policy does not look at sums but for 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.all(np.isfinite(row) & (row >= 0)) and 0 < row.sum() < np.inf)


@strategies.times(8)
@given(_calls(), strategies.RULES, st.booleans(), st.sampled_from(["token", "block"]))
def test_any_data_emits_tokens_of_the_vocabulary(
    call: Call, rule: cr.Rule, one_hot: bool, walk: str
) -> None:
    walk = walk if rule.fixed_law else "token"
    v = cr.verify(
        None if one_hot else call.p,
        call.q,
        call.token,
        rule,
        uniforms=call.u,
        policy="safe",
        walk=walk,
    )
    emitted = v.token_ids[: int(v.num_accepted) + 1]
    assert np.all((emitted >= 0) & (emitted < V))
    assert np.all(v.token_ids[int(v.num_accepted) + 1 :] == -1)
    assert 0 <= v.num_accepted <= v.num_draft_tokens <= len(call.token)
    for k, n in enumerate(emitted):
        row = call.q[k]
        if _is_law(row):
            assert row[n] > 0
        elif k == len(emitted) - 1:
            # A bad target emits its finite argmax, token 0 if there is none.
            usable = np.where(np.isfinite(row) & (row >= 0), row, -1.0)
            assert n == np.argmax(usable) or usable[n] > 0
    for metered in (v.kl_spent, v.tv_spent):
        assert metered is None or np.isfinite(metered)


@strategies.times(6)
@given(_ROWS, _ROWS, _TOKENS, _UNIFORMS, _UNIFORMS, strategies.RULES)
def test_status_says_what_was_repaired(
    p: np.ndarray, q: np.ndarray, token: int, coin: float, draw: float, rule: cr.Rule
) -> None:
    if token == -1:
        token = 0
    inside = 0 <= token < V
    u = np.array([[coin, draw], [0.0, draw]])
    v = cr.verify(p[None], np.stack([q, q]), [token], rule, uniforms=u, policy="safe")
    first, last = (Status(int(x)) for x in v.status)
    accepted = bool(v.num_accepted)
    reads_rows = not accepted or rule.reads == "rows"
    p_bad = inside and not rule.ignores_draft and _bad_draft(p, token, reads_rows)
    q_bad = (inside and not 0 <= q[token] <= 1 + 2.0**-20) or (not accepted and not _is_law(q))
    assert (Status.TOKEN_OUTSIDE in first) == (not inside)
    assert (Status.TARGET_REPAIRED in first) == q_bad
    # Behind a bad target nothing is said about the draft's row, which was not needed.
    if not q_bad or _bad_draft(p, token if inside else 0, False):
        assert (Status.DRAFT_REPAIRED in first) == p_bad
    assert last == (Status.TARGET_REPAIRED if accepted and not _is_law(q) else 0)


def _bad_draft(p: np.ndarray, token: int, whole: bool) -> bool:
    drafted = not 0 < p[token] <= 1 + 2.0**-20
    return drafted or (whole and not np.all(np.isfinite(p) & (p >= 0)))


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.5, -np.inf], ids=str)
def test_a_bad_draft_row_is_read_as_one_hot(rule: cr.Rule, bad: float, kind: Kind) -> None:
    q = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
    row = np.array([bad, 0.5, 0.25, 0.25, bad])
    told = cr.accept(None, q, 1, rule=rule)
    a = cr.accept(kind.make(row), kind.make(q), kind.make(np.int64(1)), rule=rule, policy="safe")
    if rule.reads == "rows":
        assert float(kind.back(a.probability)) == pytest.approx(float(told.probability))
    np.testing.assert_allclose(kind.back(a.residual()), told.residual(), rtol=1e-14)
    # And so is a drafted token whose own probability makes no sense.
    for own in (bad, 0.0, 1.5):
        row = np.array([0.25, own, 0.5, 0.25, 0.0])
        arrays = kind.make(row), kind.make(q), kind.make(np.int64(1))
        a = cr.accept(*arrays, rule=rule, policy="safe")
        assert float(kind.back(a.probability)) == pytest.approx(float(told.probability))
        np.testing.assert_allclose(kind.back(a.residual()), told.residual(), rtol=1e-14)
        flagged = int(kind.back(a.status)) == Status.DRAFT_REPAIRED
        assert flagged == (not rule.ignores_draft)


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
@pytest.mark.parametrize("token", [-2, V, 10**12])
def test_a_token_outside_the_vocabulary_is_rejected_and_the_target_drawn_from(
    rule: cr.Rule, token: int
) -> None:
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.ones(V), size=2)
    for draft in (p, None):
        a = cr.accept(draft, q, token, rule=rule, policy="safe")
        assert float(a.probability) == 0
        assert int(a.status) == Status.TOKEN_OUTSIDE
        np.testing.assert_allclose(a.residual(), q / q.sum(), rtol=1e-15)
        accepted, drawn = a.sample(rng)
        assert not accepted
        assert 0 <= drawn < V


def test_a_bad_target_emits_its_finite_argmax() -> None:
    u = np.full((2, 2), 0.5)
    p = np.full((1, 4), 0.25)
    for row, expected in (
        ([0.1, np.nan, 0.6, 0.3], 2),
        ([np.nan] * 4, 0),
        ([0.0] * 4, 0),
        ([np.inf, 0.2, 0.2, 0.1], 1),
        ([-1.0, -2.0, -np.inf, np.nan], 0),
    ):
        q = np.array([row, [0.25] * 4])
        v = cr.verify(p, q, [1], cr.Lossless(), uniforms=u + 0.49, policy="safe")
        assert v.num_accepted == 0
        assert v.token_ids[0] == expected
        assert Status.TARGET_REPAIRED in Status(int(v.status[0]))
        bonus = cr.verify(
            None, q[:1], np.zeros(0, int), cr.Lossless(), uniforms=u[:1], policy="safe"
        )
        assert bonus.token_ids[0] == expected
        assert Status(int(bonus.status[0])) == Status.TARGET_REPAIRED


def test_the_block_walk_flags_a_bad_target_before_its_stop() -> None:
    # Token 0 is what a row without a usable entry emits, so that the block walk keeps it.
    q = np.array([[0.0] * 4, [0.25] * 4])
    u = np.full((2, 2), 0.5)
    v = cr.verify(None, q, [0], cr.Lossless(), uniforms=u, policy="safe", walk="block")
    assert v.num_accepted == 1
    np.testing.assert_array_equal(v.status, [Status.TARGET_REPAIRED, 0])


@pytest.mark.parametrize(
    ("rule", "bad"),
    [(cr.Typical(), np.nan)]
    + [(r, bad) for r in (cr.Mentored(0.1), cr.Band(0.5)) for bad in (np.nan, np.inf, -0.1)],
    ids=repr,
)
def test_a_rule_that_reads_a_bad_target_row_keeps_nothing(
    rule: cr.Rule, bad: float, kind: Kind
) -> None:
    p, q = np.full(4, 0.25), np.array([0.25, 0.5, bad, 0.25])
    arrays = kind.make(p), kind.make(q), kind.make(np.int64(1))
    a = cr.accept(*arrays, rule=rule, policy="safe")
    assert float(kind.back(a.probability)) == 0
    np.testing.assert_array_equal(kind.back(a.residual()), [0, 1, 0, 0])


class _Undecided(cr.Lossless):
    """A rule whose arithmetic fails."""

    def numbers(self, at: cr.Drafted) -> cr.Numbers:
        return cr.Numbers(at.q_n * np.nan, 1.0)


def test_a_rule_that_answers_not_a_number_keeps_nothing(kind: Kind) -> None:
    p, q = np.array([0.25, 0.75]), np.array([0.5, 0.5])
    a = cr.accept(kind.make(p), kind.make(q), kind.make(np.int64(1)), rule=_Undecided())
    assert float(kind.back(a.probability)) == 0
    np.testing.assert_array_equal(kind.back(a.residual()), [1, 0])


def test_sane_rows_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.ones(V), size=(9, 4)), rng.dirichlet(np.ones(V), size=(9, 3))
    token = p.argmax(axis=-1)
    u = rng.random((9, 4, 2))
    for rule in strategies.EXAMPLES:
        safe = cr.verify(p, q, token, rule, uniforms=u, policy="safe")
        strict = cr.verify(p, q, token, rule, uniforms=u, policy="strict")
        np.testing.assert_array_equal(safe.token_ids, strict.token_ids)
        np.testing.assert_array_equal(safe.status, 0)


def test_an_exact_reading_of_a_dishonest_draft_keeps_the_target_law() -> None:
    # p says that token 0 cannot be drafted, yet it was: the one-hot reading is lossless for it.
    q = np.array([0.5, 0.3, 0.2])
    a = cr.accept(np.array([0.0, 0.5, 0.5]), q, 0, rule=cr.Lossless(), policy="safe")
    law = float(a.probability) * np.eye(3)[0] + (1 - float(a.probability)) * a.residual()
    np.testing.assert_allclose(law, q, rtol=1e-15)


def test_a_draw_never_leaves_the_vocabulary() -> None:
    # u C_last rounds to C_last where the residual is a single subnormal.
    p, q = np.array([[1.0, 5e-324, 0.0]]), np.array([[1.0, 0.0, 5e-324]] * 2)
    for u in (0.4, 0.6, 0.99, 1 - 2.0**-53):
        v = cr.verify(p, q, [1], cr.Lossless(), uniforms=np.full((2, 2), u))
        np.testing.assert_array_equal(v.token_ids, [2, -1])
        assert cr.draw(np.array([0.0, 5e-324, 0.0]), u) == 1
