"""Counter-based uniforms: published vectors, a slow twin, and who gets which number."""

from __future__ import annotations

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from kinds import Kind

import cactus_rules as cr
from cactus_rules.random import philox

ONES = 0xFFFFFFFF

# Random123, kat_vectors: philox4x32, 10 rounds: counter, key, result.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def _twin(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10 with Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        left, right = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(right >> 32) ^ c[1] ^ k[0], right & ONES, (left >> 32) ^ c[3] ^ k[1], left & ONES]
        k = [(k[0] + 0x9E3779B9) & ONES, (k[1] + 0xBB67AE85) & ONES]
    return c


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_vectors(
    counter: list[int], key: list[int], expected: list[int], kind: Kind
) -> None:
    assert _twin(counter, key) == expected
    assert list(philox(tuple(counter), tuple(key))) == expected
    arrays = [kind.make(np.array([word, 0], dtype=np.int64)) for word in counter + key]
    words = philox(tuple(arrays[:4]), tuple(arrays[4:]))
    assert [int(kind.back(word)[0]) for word in words] == expected


_SEEDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1]))


@given(_SEEDS, st.integers(0, 2**62), st.integers(0, 2**31), st.sampled_from(list(cr.Stream)))
def test_a_uniform_is_the_high_bits_of_its_counter(
    seed: int, step: int, k: int, stream: cr.Stream
) -> None:
    words = _twin([step & ONES, step >> 32, k, stream], [seed & ONES, seed >> 32])
    expected = (((words[1] << 32) | words[0]) >> 11) * 2.0**-53
    assert float(cr.uniforms(seed, step, k, stream)) == expected
    as_array = np.array([seed], dtype=np.uint64)
    assert cr.uniforms(as_array, step, k, stream)[0] == expected
    assert cr.uniforms(as_array.view(np.int64), step, k, stream)[0] == expected


def test_every_part_of_the_name_counts() -> None:
    names = [(11, 3, 2, stream) for stream in cr.Stream]
    names += [(12, 3, 2, 0), (11 + 2**32, 3, 2, 0), (11, 4, 2, 0), (11, 3 + 2**32, 2, 0)]
    names += [(11, 3, 1, 0), (3, 11, 2, 0), (11, 2, 3, 0)]
    assert len({float(cr.uniforms(*name)) for name in names}) == len(names)


def test_every_kind_gives_the_same_bits(other_kind: Kind) -> None:
    seed = np.array([0, 1, 2**40, -1, -(2**63)])
    step, k = np.arange(3)[:, None, None], np.arange(4)[:, None]
    expected = cr.uniforms(seed, step, k, cr.Stream.DRAW)
    got = cr.uniforms(*map(other_kind.make, (seed, step, k)), cr.Stream.DRAW)
    assert expected.shape == (3, 4, 5)
    np.testing.assert_array_equal(other_kind.back(got), expected)


def test_uniforms_are_in_range_distinct_and_uniform() -> None:
    parts = [np.arange(n).reshape(shape) for n, shape in ((8, (8, 1, 1)), (50, (50, 1)), (9, (9,)))]
    u = np.stack([cr.uniforms(*parts, stream) for stream in cr.Stream])
    assert u.min() >= 0
    assert u.max() < 1
    assert len(np.unique(u)) == u.size
    assert np.all(u * 2**53 == np.floor(u * 2**53))
    # Mean and correlation between the streams, at five standard errors.
    assert abs(u.mean() - 0.5) < 5 * np.sqrt(1 / 12 / u.size)
    flat = u.reshape(3, -1) - 0.5
    for i, j in ((0, 1), (1, 2), (0, 2)):
        correlation = 12 * float(np.mean(flat[i] * flat[j]))
        assert abs(correlation) < 5 / np.sqrt(flat.shape[1])


def test_uniforms_need_integers() -> None:
    for seed in (1.5, np.array([0.5])):
        with pytest.raises(ValueError, match="seed, step and k must be integers, got dtype float"):
            cr.uniforms(seed, 0, 0, cr.Stream.COIN)


def _requests(many: int, k: int = 3, width: int = 7) -> tuple[np.ndarray, ...]:
    """Drafts of random length, from rows without zeros, with seeds and steps of their own."""
    rng = np.random.default_rng(3)
    q, p = rng.dirichlet(np.ones(width), (many, k + 1)), rng.dirichlet(np.ones(width), (many, k))
    token = (rng.random(p.shape) * p).argmax(axis=-1)
    token[np.arange(k) >= rng.integers(0, k + 1, size=(many, 1))] = -1
    seeds = rng.integers(-(2**63), 2**63 - 1, size=many)
    return p, q, token, seeds, rng.integers(0, 2**40, size=many)


@pytest.mark.parametrize("walk", ["token", "block"])
def test_a_request_gets_the_same_tokens_in_any_slot_and_batch(kind: Kind, walk: str) -> None:
    many = 12 if kind.is_numpy else 4
    arrays = _requests(many)
    rule = cr.Mentored(0.1)

    def tokens(rows: np.ndarray) -> np.ndarray:
        p, q, token, seeds, steps = (kind.make(array[rows]) for array in arrays)
        v = cr.verify(p, q, token, rule, seeds=seeds, steps=steps, walk=walk)
        return kind.back(v.token_ids)

    whole = tokens(np.arange(many))
    order = np.random.default_rng(0).permutation(many)
    np.testing.assert_array_equal(tokens(order), whole[order])
    for i in range(many):
        np.testing.assert_array_equal(tokens(np.array([i]))[0], whole[i])


def test_padding_and_neighbours_change_no_number() -> None:
    p, q, token, seeds, steps = _requests(6)
    rule = cr.Cactus(0.1)
    expected = cr.verify(p, q, token, rule, seeds=seeds, steps=steps).token_ids
    # More room in the draft, and a neighbour that drafts nothing.
    wide_p = np.concatenate([p, np.full((6, 2, 7), 1 / 7)], axis=1)
    wide_q = np.concatenate([q, np.full((6, 2, 7), 1 / 7)], axis=1)
    wide = np.concatenate([token, np.full((6, 2), -1)], axis=1)
    wide[2] = -1
    got = cr.verify(wide_p, wide_q, wide, rule, seeds=seeds, steps=steps).token_ids
    np.testing.assert_array_equal(np.delete(got[:, :4], 2, 0), np.delete(expected, 2, 0))


def test_a_request_without_drafts_draws_its_bonus_token_only() -> None:
    _, q, _, seeds, steps = _requests(5)
    none = np.zeros((5, 0), dtype=np.int64)
    v = cr.verify(None, q[:, :1], none, cr.Lossless(), seeds=seeds, steps=steps)
    u = cr.uniforms(seeds, steps, 0, cr.Stream.DRAW)
    expected = [cr.draw(row, float(x)) for row, x in zip(q[:, 0], u, strict=True)]
    np.testing.assert_array_equal(v.token_ids[:, 0], expected)
    np.testing.assert_array_equal(v.num_accepted, 0)


def test_seeds_and_steps_name_the_uniforms() -> None:
    p, q, token, seeds, steps = _requests(6)
    k = np.arange(4)
    given = [
        cr.uniforms(seeds[:, None], steps[:, None], k, stream)
        for stream in (cr.Stream.COIN, cr.Stream.DRAW)
    ]
    named = cr.verify(p, q, token, cr.Lossless(), seeds=seeds, steps=steps)
    told = cr.verify(p, q, token, cr.Lossless(), uniforms=np.stack(given, axis=-1))
    np.testing.assert_array_equal(named.token_ids, told.token_ids)


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1, -1])
def test_one_seed_and_step_for_all_requests_or_for_one(seed: int) -> None:
    p, q, token, _, _ = _requests(2)
    both = cr.verify(p, q, token, cr.Lossless(), seeds=seed, steps=3)
    single = cr.verify(p[1], q[1], token[1], cr.Lossless(), seeds=seed, steps=3)
    np.testing.assert_array_equal(both.token_ids[1], single.token_ids)
    given = np.array([seed % 2**64] * 2, dtype=np.uint64)
    listed = cr.verify(p, q, token, cr.Lossless(), seeds=given, steps=[3, 3])
    np.testing.assert_array_equal(listed.token_ids, both.token_ids)


def test_rng_and_uniforms_are_alternatives_to_seeds() -> None:
    p, q, token, _, _ = _requests(3)
    drawn = cr.verify(p, q, token, cr.Lossless(), rng=np.random.default_rng(9))
    u = np.random.default_rng(9).random((3, 4, 2))
    told = cr.verify(p, q, token, cr.Lossless(), uniforms=u)
    np.testing.assert_array_equal(drawn.token_ids, told.token_ids)


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_the_coin_and_the_draw_of_a_position_are_its_own(rule: cr.Rule) -> None:
    # Changing what belongs to an unvisited position or to an unused draw changes nothing.
    p, q, token, _, _ = _requests(40)
    rng = np.random.default_rng(1)
    u = rng.random((40, 4, 2))
    v = cr.verify(p, q, token, rule, uniforms=u)
    other = rng.random(u.shape)
    stop, length = v.num_accepted[:, None], v.num_draft_tokens[:, None]
    position = np.arange(4)
    other[..., 0] = np.where((position <= stop) & (position < length), u[..., 0], other[..., 0])
    other[..., 1] = np.where(position == stop, u[..., 1], other[..., 1])
    again = cr.verify(p, q, token, rule, uniforms=other)
    np.testing.assert_array_equal(again.token_ids, v.token_ids)
