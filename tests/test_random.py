"""Philox against the published vectors; uniforms name requests, calls, positions and streams."""

from __future__ import annotations

import numpy as np
import pytest

import cactus_rules as cr
from cactus_rules.random import philox

ONES = 0xFFFFFFFF
# Known-answer vectors of Random123 for philox4x32-10: counter, key, result.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_philox_gives_the_published_vectors(counter: object, key: object, expected: object) -> None:
    words = philox(
        tuple(np.array([x]) for x in counter),  # type: ignore[attr-defined,arg-type]
        tuple(np.array([x]) for x in key),  # type: ignore[attr-defined,arg-type]
    )
    assert tuple(int(word[0]) for word in words) == expected


def test_a_uniform_is_the_top_53_bits_of_two_words() -> None:
    seed, step, k = 0x299F31D0A4093822, 0x85A308D3_243F6A88, 7
    counter = tuple(np.array([x]) for x in (0x243F6A88, 0x85A308D3, k, int(cr.Stream.COIN)))
    low, high, *_ = philox(counter, (np.array([0xA4093822]), np.array([0x299F31D0])))
    x = (int(high[0]) << 32) | int(low[0])
    assert float(cr.uniforms(seed, step, k, cr.Stream.COIN)) == (x >> 11) * 2.0**-53


def test_every_part_of_the_name_counts() -> None:
    base = (11, 3, 2, cr.Stream.DRAFT)
    others = [
        (12, 3, 2, cr.Stream.DRAFT),
        (11 + 2**32, 3, 2, cr.Stream.DRAFT),
        (11, 4, 2, cr.Stream.DRAFT),
        (11, 3 + 2**32, 2, cr.Stream.DRAFT),
        (11, 3, 1, cr.Stream.DRAFT),
        (11, 3, 2, cr.Stream.COIN),
        (11, 3, 2, cr.Stream.DRAW),
    ]
    values = {float(cr.uniforms(*name)) for name in [base, *others]}
    assert len(values) == len(others) + 1


def test_seeds_cover_64_bits_signed_or_unsigned() -> None:
    high = 2**64 - 5
    signed = cr.uniforms(high - 2**64, 0, 0, cr.Stream.COIN)
    assert float(cr.uniforms(high, 0, 0, cr.Stream.COIN)) == float(signed)
    unsigned = np.array([high], dtype=np.uint64)
    assert cr.uniforms(unsigned, 0, 0, cr.Stream.COIN).tolist() == [float(signed)]


def test_uniforms_broadcast_and_lie_in_the_unit_interval() -> None:
    u = cr.uniforms(np.arange(50)[:, None], np.arange(40), 3, cr.Stream.DRAW)
    assert u.shape == (50, 40)
    assert u.dtype == np.float64
    assert u.min() >= 0
    assert u.max() < 1
    assert np.all(u * 2**53 == np.floor(u * 2**53))
    # Six standard errors of the mean of 2000 uniforms.
    assert abs(u.mean() - 0.5) < 6 * np.sqrt(1 / 12 / u.size)


def test_torch_gives_the_same_bits() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    seeds = np.array([0, 1, 2**62, -1])
    ours = cr.uniforms(seeds[:, None], np.arange(5), 2, cr.Stream.COIN)
    theirs = cr.uniforms(torch.tensor(seeds)[:, None], torch.arange(5), 2, cr.Stream.COIN)
    assert theirs.tolist() == ours.tolist()


def test_floats_are_refused() -> None:
    with pytest.raises(ValueError, match="seed, step and k must be integers"):
        cr.uniforms(np.array([0.5]), 0, 0, cr.Stream.COIN)
