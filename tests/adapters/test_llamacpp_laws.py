"""What SpeculativeLlama emits, on tiny GGUF models: greedy equality, laws, rows given to the rule.

Chi-square tests are at level 1e-3, with fixed seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import tiny_gguf  # noqa: E402
from llama_requests import NO_END, PROMPT, Opener  # noqa: E402
from table_model import chi_square, softmax  # noqa: E402
from tiny_gguf import TinyPair  # noqa: E402

import cactus_rules as cr  # noqa: E402

LEVEL = 1e-3


def first_law(pair: TinyPair, name: str, prefix: list[int]) -> np.ndarray:
    """Exact law of the token after `prefix`, by the torch forward."""
    return softmax(tiny_gguf.forward(getattr(pair, f"{name}_weights"), prefix)[-1])


@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize("draft", ["model", "ngram", "requantize:Q8_0"])
def test_greedy_equals_plain_greedy(
    pair: TinyPair, opened: Opener, tmp_path: Path, k: int, draft: str
) -> None:
    options = {"temperature": 0, "max_tokens": 80, "logit_bias": NO_END}
    plain = opened(pair.target).complete("The ", **options)
    llama = opened(
        pair.target,
        pair.draft if draft == "model" else draft,
        num_draft_tokens=k,
        adaptive=False,
        cache_dir=tmp_path,
    )
    fast = llama.complete("The ", **options)
    assert fast.token_ids == plain.token_ids
    assert len(plain.token_ids) == 80
    assert fast.metrics.num_accepted_tokens > 0
    np.testing.assert_allclose(fast.logprobs, plain.logprobs, atol=1e-3)


@pytest.mark.parametrize("name", ["gemma3", "mamba", "jamba"])
@pytest.mark.parametrize("swa_full", [True, False])
def test_greedy_equals_plain_greedy_on_other_architectures(
    name: str, request: pytest.FixtureRequest, opened: Opener, swa_full: bool
) -> None:
    path = request.getfixturevalue(name)
    options = {"temperature": 0, "max_tokens": 60, "logit_bias": NO_END}
    plain = opened(path, swa_full=swa_full).complete(PROMPT, **options)
    # The model as its own draft with a penalty-free argmax is always right; "ngram" seldom is.
    for draft in (path, "ngram"):
        llama = opened(path, draft, num_draft_tokens=3, swa_full=swa_full)
        assert llama.complete(PROMPT, **options).token_ids == plain.token_ids


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_recurrent_models_with_rejections(
    name: str, request: pytest.FixtureRequest, opened: Opener, folder: Path
) -> None:
    target = request.getfixturevalue(name)
    write = {"mamba": tiny_gguf.write_mamba, "jamba": tiny_gguf.write_jamba}[name]
    draft = folder / f"{name}-other.gguf"
    write(draft, seed=77)
    options = {"temperature": 0, "max_tokens": 30, "logit_bias": NO_END}
    plain = opened(target).complete(PROMPT, **options)
    fast = opened(target, draft, num_draft_tokens=3).complete(PROMPT, **options)
    assert fast.token_ids == plain.token_ids
    assert fast.metrics.num_accepted_tokens < fast.metrics.num_draft_tokens / 2


@pytest.mark.parametrize(
    ("rule", "draft_sampling"),
    [
        (cr.Lossless(), "sample"),
        (cr.Cactus(0.1), "sample"),
        (cr.Mentored(0.1), "sample"),
        (cr.SampleMatch(), "greedy"),
        (cr.Cactus(0.1), "greedy"),
    ],
    ids=repr,
)
def test_sampled_tokens_follow_the_exact_law(
    pair: TinyPair, opened: Opener, rule: Any, draft_sampling: Any
) -> None:
    llama = opened(
        pair.target,
        pair.draft,
        rule=rule,
        num_draft_tokens=2,
        adaptive=False,
        draft_sampling=draft_sampling,
    )
    counts = np.zeros(tiny_gguf.VOCAB)
    seconds: dict[int, np.ndarray] = {}
    for seed in range(1000):
        made = llama.complete(PROMPT, max_tokens=3, seed=seed, logit_bias=NO_END)
        counts[made.token_ids[0]] += 1
        seconds.setdefault(made.token_ids[0], np.zeros(tiny_gguf.VOCAB))[made.token_ids[1]] += 1

    def law(prefix: list[int]) -> np.ndarray:
        p, q = (first_law(pair, name, prefix) for name in ("draft", "target"))
        for row in (p, q):
            row[list(NO_END)] = 0
            row /= row.sum()
        if draft_sampling == "greedy":
            p = np.eye(len(p))[p.argmax()]
        return np.asarray(cr.output_law(p, q, rule))

    assert chi_square(counts, law(PROMPT)) > LEVEL
    first = int(counts.argmax())
    assert chi_square(seconds[first], law([*PROMPT, first])) > LEVEL
    q = first_law(pair, "target", PROMPT)
    q[list(NO_END)] = 0
    distance = chi_square(counts, q / q.sum())
    lossless = isinstance(rule, (cr.Lossless, cr.SampleMatch))
    assert distance > LEVEL if lossless else distance < LEVEL


def test_acceptance_order_of_the_rules(pair: TinyPair, opened: Opener) -> None:
    llama = opened(pair.target, pair.draft, num_draft_tokens=3, adaptive=False)
    rates = {}
    for name, rule in {
        "lossless": cr.Lossless(),
        "cactus": cr.Cactus(0.1),
        "mentored": cr.Mentored(0.1),
    }.items():
        runs = [
            llama.complete(PROMPT, max_tokens=60, seed=s, rule=rule, logit_bias=NO_END).metrics
            for s in range(4)
        ]
        rates[name] = np.mean([run.mean_acceptance_length for run in runs])
    greedy = opened(
        pair.target, pair.draft, num_draft_tokens=3, adaptive=False, draft_sampling="greedy"
    )
    rates["match"] = np.mean(
        [
            greedy.complete(
                PROMPT, max_tokens=60, seed=s, rule=cr.SampleMatch(), logit_bias=NO_END
            ).metrics.mean_acceptance_length
            for s in range(4)
        ]
    )
    assert rates["match"] < rates["lossless"] < rates["mentored"] < rates["cactus"]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"repetition_penalty": 1.5, "penalty_last_n": -1},
        {"frequency_penalty": 0.7, "presence_penalty": 0.4},
        {"logit_bias": {ord("e"): 2.0, ord("t"): -np.inf}},
        {"logits_processor": lambda prefix, row: row * (1 + len(prefix) % 2)},
    ],
    ids=lambda o: "+".join(o),
)
def test_rows_given_to_the_rule(pair: TinyPair, opened: Opener, options: dict[str, Any]) -> None:
    """p and q against the torch forward of the true prefix and options applied here."""
    text = list(PROMPT)
    compared = 0

    def observe(p: Any, q: Any, result: cr.Verification) -> None:
        nonlocal compared
        tokens = result.token_ids[: int(result.num_accepted) + 1].tolist()
        for i in range(len(tokens)):
            prefix = text + tokens[:i]
            compare(q, i, tiny_gguf.forward(pair.target_weights, prefix)[-1], prefix, options)
            if i < int(result.num_draft_tokens):
                compare(p, i, tiny_gguf.forward(pair.draft_weights, prefix)[-1], prefix, options)
                compared += i > 0
        text.extend(tokens)

    llama = opened(pair.target, pair.draft, num_draft_tokens=3, adaptive=False)
    made = llama.complete(PROMPT, max_tokens=16, seed=5, observe=observe, **options)
    assert text[len(PROMPT) :][: len(made.token_ids)] == made.token_ids
    assert compared > 0, "no row inside a draft was compared"


def compare(
    law: Any, i: int, logits: np.ndarray, prefix: list[int], options: dict[str, Any]
) -> None:
    """Compare row i of `law` with `logits` after the options."""
    row = logits.astype(np.float64)
    for token, bias in options.get("logit_bias", {}).items():
        row[token] += bias
    window = prefix if options.get("penalty_last_n") == -1 else prefix[-64:]
    for token in set(window):
        penalty = options.get("repetition_penalty", 1.0)
        row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
        row[token] -= options.get("frequency_penalty", 0.0) * window.count(token)
        row[token] -= options.get("presence_penalty", 0.0)
    if processor := options.get("logits_processor"):
        row = processor(np.array(prefix), row)
    p = softmax(row / options.get("temperature", 1.0))
    order = np.argsort(-p)
    keep = np.ones(len(p), bool)
    if top_k := options.get("top_k"):
        keep[order[top_k:]] = False
    if top_p := options.get("top_p"):
        before = np.cumsum(p[order]) - p[order]
        keep[order[before >= top_p]] = False
    if min_p := options.get("min_p"):
        keep &= p >= min_p * p.max()
    p = np.where(keep, p, 0)
    p /= p.sum()
    if isinstance(law, cr.Sparse):
        got = np.zeros(len(p))
        ids, probs = np.asarray(law.ids)[i], np.asarray(law.probs)[i]
        got[ids[ids >= 0]] = probs[ids >= 0]
    else:
        got = np.asarray(law)[i]
    np.testing.assert_allclose(got, p, rtol=2e-3, atol=1e-7)


def test_log_probabilities_against_torch(pair: TinyPair, opened: Opener) -> None:
    made = opened(pair.target, pair.draft).complete(PROMPT, max_tokens=12, seed=8)
    rows = tiny_gguf.forward(pair.target_weights, PROMPT + made.token_ids)
    q = softmax(rows)[len(PROMPT) - 1 : -1]
    expected = np.log(q[np.arange(len(made.token_ids)), made.token_ids])
    np.testing.assert_allclose(made.logprobs, expected, atol=1e-4)
