"""The law of sampled text against the exact law, with the library's own sampling beside it.

Every chi-square test has level `LEVEL`; there are eight, so that a correct library fails at least
one with probability below 1e-3. Seeds are fixed: the tests are repeatable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import tiny_transformers as tiny
import torch
import transformers as tf

import cactus_rules as cr
from cactus_rules.adapters.transformers import speculative

LEVEL = 1e-3 / 8
LENGTH = 300
PROMPT = torch.tensor([[1, 2, 3, 4]])
TARGET = tiny.llama()
DRAFT = tiny.noisy(TARGET)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def sample(length: int = LENGTH, **options: Any) -> torch.Tensor:
    torch.manual_seed(11)
    options = {"do_sample": True, "top_k": 0} | options
    mask = torch.ones_like(PROMPT)
    ids = TARGET.generate(PROMPT, attention_mask=mask, max_new_tokens=length, **options)
    assert ids.shape[1] == PROMPT.shape[1] + length
    return ids


class Rounds:
    """Which new tokens had a draft; the others are drawn from the target itself."""

    def __init__(self) -> None:
        self.drafted: list[bool] = []

    def __call__(self, p: Any, q: Any, result: cr.Verification) -> None:
        accepted, count = int(result.num_accepted), int(result.num_draft_tokens)
        self.drafted += [k < count for k in range(accepted + 1)]


def speculated(rule: cr.Rule, **options: Any) -> tuple[torch.Tensor, np.ndarray]:
    rounds = Rounds()
    draft = options.pop("draft_model", DRAFT)
    fast = speculative(
        draft_model=draft, rule=rule, num_draft_tokens=3, adaptive=False, observe=rounds
    )
    ids = sample(custom_generate=fast, **options)
    return ids, np.array(rounds.drafted[: ids.shape[1] - PROMPT.shape[1]])


def p_value(ids: torch.Tensor, expected: np.ndarray) -> float:
    """Of the new tokens, under one law per position of the text, grouped by the token before."""
    text, start = ids[0].numpy(), PROMPT.shape[1]
    return tiny.chi_square(text[start:], expected[start - 1 : -1], text[start - 1 : -1])


def expected_laws(
    ids: torch.Tensor, drafted: np.ndarray, rule: cr.Rule, processors: Any = ()
) -> tuple[np.ndarray, np.ndarray]:
    """The rule's output laws where there was a draft, and the target's laws."""
    p, q = (tiny.laws(model, ids, processors) for model in (DRAFT, TARGET))
    rows = PROMPT.shape[1] - 1 + np.flatnonzero(drafted)
    law = q.copy()
    law[rows] = cr.output_law(p[rows], q[rows], rule)
    return law, q


@pytest.mark.parametrize("sampler", ["plain", "assisted by the library", "lossless", "ngram"])
def test_these_follow_the_target(sampler: str) -> None:
    if sampler == "plain":
        ids = sample()
    elif sampler == "assisted by the library":
        draft = tiny.noisy(TARGET)
        draft.generation_config.num_assistant_tokens = 3
        draft.generation_config.num_assistant_tokens_schedule = "constant"
        draft.generation_config.assistant_confidence_threshold = 0
        ids = sample(assistant_model=draft)
    else:
        options = {"draft_model": "ngram"} if sampler == "ngram" else {}
        ids, drafted = speculated(cr.Lossless(), **options)
        assert drafted.mean() > 0.5
    assert p_value(ids, tiny.laws(TARGET, ids)) > LEVEL


@pytest.mark.parametrize("rule", [cr.Cactus(0.3), cr.Mentored(0.3)], ids=repr)
def test_lossy_rules_follow_their_output_law(rule: cr.Rule) -> None:
    ids, drafted = speculated(rule)
    law, target = expected_laws(ids, drafted, rule)
    assert p_value(ids, law) > LEVEL
    assert p_value(ids, target) < LEVEL / 10  # the test sees the difference


@pytest.mark.parametrize("rule", [cr.Cactus(0.3), cr.Mentored(0.3)], ids=repr)
def test_processors_and_warpers_apply_to_both_sides(rule: cr.Rule) -> None:
    processors = [
        tf.RepetitionPenaltyLogitsProcessor(1.2),
        tf.TemperatureLogitsWarper(0.8),
        tf.TopKLogitsWarper(4),
    ]
    ids, drafted = speculated(rule, repetition_penalty=1.2, temperature=0.8, top_k=4)
    law, _ = expected_laws(ids, drafted, rule, processors)
    assert p_value(ids, law) > LEVEL
    plain, _ = expected_laws(ids, drafted, rule)
    assert p_value(ids, plain) < LEVEL / 10
