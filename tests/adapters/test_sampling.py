"""Sampling options against values computed here, and what is said about bad ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from table_model import softmax

import cactus_rules as cr
from cactus_rules.adapters.sampling import Sampling

ROW = np.array([2.0, -1.0, 0.5, 0.0, 1.0], np.float32)


def adjusted(prefix: list[int], **options: Any) -> np.ndarray:
    return Sampling(**options).adjust(ROW[None], prefix)[0]


def probabilities(**options: Any) -> np.ndarray:
    """Dense probabilities of ROW, whatever form they come in."""
    law = Sampling(**options).distribution(ROW[None])
    if not isinstance(law, cr.Sparse):
        return np.asarray(law)[0]
    dense = np.zeros(len(ROW))
    keep = np.asarray(law.ids[0]) >= 0
    dense[np.asarray(law.ids[0])[keep]] = np.asarray(law.probs[0])[keep]
    return dense


def test_neutral_options_change_nothing() -> None:
    rows = ROW[None]
    assert Sampling().adjust(rows, [1, 2]) is rows
    np.testing.assert_allclose(probabilities(), softmax(ROW), rtol=1e-6)


def test_repetition_penalty_divides_and_multiplies_once_per_token() -> None:
    got = adjusted([0, 0, 1], repetition_penalty=2.0)
    np.testing.assert_allclose(got, [1.0, -2.0, 0.5, 0.0, 1.0])


def test_frequency_and_presence_penalties() -> None:
    got = adjusted([0, 0, 1], frequency_penalty=0.5, presence_penalty=0.25)
    np.testing.assert_allclose(got, [2 - 1.25, -1 - 0.75, 0.5, 0, 1])


@pytest.mark.parametrize(("last_n", "seen"), [(0, []), (1, [1]), (2, [0, 1]), (-1, [0, 1, 4])])
def test_penalties_look_at_the_last_tokens(last_n: int, seen: list[int]) -> None:
    got = adjusted([4, 4, 0, 1], presence_penalty=1.0, penalty_last_n=last_n)
    expected = ROW.copy()
    expected[seen] -= 1
    np.testing.assert_allclose(got, expected)


def test_logit_bias_adds_and_forbids() -> None:
    got = adjusted([], logit_bias={1: 3.0, 4: -math.inf})
    np.testing.assert_allclose(got, [2, 2, 0.5, 0, -np.inf])
    assert probabilities(logit_bias={}).min() > 0


def test_the_processor_comes_last_and_sees_the_prefix() -> None:
    calls = []

    def processor(prefix: np.ndarray, logits: np.ndarray) -> np.ndarray:
        calls.append((prefix.tolist(), logits.tolist()))
        logits[2] = -np.inf
        return logits

    rows = np.stack([ROW, ROW])
    before = rows.copy()
    got = Sampling(logits_processor=processor, logit_bias={0: 1.0}).adjust(rows, [7, 8, 9])
    assert [prefix for prefix, _ in calls] == [[7, 8], [7, 8, 9]]
    assert calls[0][1][0] == 3.0
    assert np.all(got[:, 2] == -np.inf)
    np.testing.assert_array_equal(rows, before)


def test_a_processor_that_returns_another_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"logits_processor returned shape \(2,\) for a row of"):
        adjusted([], logits_processor=lambda prefix, logits: logits[:2])


def test_temperature() -> None:
    np.testing.assert_allclose(probabilities(temperature=0.5), softmax(ROW / 0.5), rtol=1e-6)
    np.testing.assert_array_equal(probabilities(temperature=0), [1, 0, 0, 0, 0])


def test_filters_keep_the_likeliest_tokens() -> None:
    p = softmax(ROW)
    top = np.where(np.isin(np.arange(5), [0, 4]), p, 0)
    np.testing.assert_allclose(probabilities(top_k=2), top / top.sum(), rtol=1e-6)
    nucleus = np.where(np.isin(np.arange(5), [0, 4, 2]), p, 0)
    np.testing.assert_allclose(
        probabilities(top_p=float(p[0] + p[4] + 0.01)), nucleus / nucleus.sum(), rtol=1e-6
    )
    likely = np.where(p >= 0.2 * p.max(), p, 0)
    assert 1 < (likely > 0).sum() < 5
    np.testing.assert_allclose(probabilities(min_p=0.2), likely / likely.sum(), rtol=1e-6)


@pytest.mark.parametrize(
    "options", [{"top_k": 2}, {"top_p": 0.9}, {"min_p": 0.1}, {"temperature": 0}], ids=str
)
def test_a_filter_gives_a_candidate_list(options: dict[str, Any]) -> None:
    law = Sampling(**options).distribution(np.stack([ROW, -ROW]))
    assert isinstance(law, cr.Sparse)
    assert np.asarray(law.ids).shape[-1] < len(ROW)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, r"temperature must be finite and >= 0 .*, got -1\.0"),
        ({"temperature": math.nan}, r"temperature must be finite and >= 0 .*, got nan"),
        ({"top_k": -1}, r"top_k must be an integer >= 0 \(0 keeps all tokens\), got -1"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\] .*, got 0\.0"),
        ({"top_k": 2.5}, r"top_k must be an integer >= 0 \(0 keeps all tokens\), got 2\.5"),
        ({"min_p": 1.5}, r"min_p must be in \[0, 1\] .*, got 1\.5"),
        ({"repetition_penalty": 0.0}, r"repetition_penalty=0\.0 must be finite, > 0 \(1 is off\)"),
        ({"frequency_penalty": math.inf}, r"frequency_penalty=inf must be finite"),
        ({"penalty_last_n": -2}, r"penalty_last_n=-2 must be an integer >= -1"),
        ({"logit_bias": {3: math.inf}}, r"logit_bias\[3\]=inf must be finite or -inf"),
        ({"logit_bias": {-1: 0.0}}, r"logit_bias\[-1\]=0\.0 must be"),
        ({"logit_bias": {"a": 0.0}}, r"logit_bias\['a'\]=0\.0: 'a' must be a token id"),
        ({"logit_bias": {1: None}}, r"logit_bias\[1\]=None must be a number"),
        ({"logit_bias": None}, "logit_bias=None must map token ids to numbers, for example"),
        ({"logits_processor": 1}, "logits_processor=1 must be a function"),
        ({"temperature": "hot"}, "temperature='hot' must be a number"),
        ({"top_p": None}, "top_p=None must be a number"),
        ({"penalty_last_n": 2.5}, r"penalty_last_n=2\.5 must be an integer"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


def test_a_bias_outside_the_vocabulary_is_named() -> None:
    with pytest.raises(ValueError, match=r"logit_bias\[9\]=1\.0 must be for a token id below 5"):
        Sampling(logit_bias={9: 1.0}).check_vocabulary(5)
