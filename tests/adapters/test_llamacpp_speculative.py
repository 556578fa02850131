"""SpeculativeLlama on tiny GGUF pairs: laws, greedy equality, options, interruptions, chat.

Chi-square tests are at level 1e-3, with fixed seeds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import tiny_gguf  # noqa: E402
from table_model import chi_square, softmax  # noqa: E402
from tiny_gguf import TinyPair  # noqa: E402

import cactus_rules as cr  # noqa: E402
from cactus_rules.adapters.errors import (  # noqa: E402
    ContextOverflowError,
    ModelFileError,
    UnsupportedError,
    VocabularyMismatchError,
)
from cactus_rules.adapters.llamacpp import SpeculativeLlama  # noqa: E402

EXACT = {"n_ctx": 256, "n_threads": 1, "type_k": "f32", "type_v": "f32", "flash_attn": False}
LEVEL = 1e-3
NO_END = {tiny_gguf.EOS: -np.inf, tiny_gguf.TURN: -np.inf}
PROMPT = [tiny_gguf.BOS, *b"once"]
Opener = Callable[..., SpeculativeLlama]


@pytest.fixture
def opened() -> Iterator[Opener]:
    objects = []

    def open_pair(target: Any, draft: Any = None, **options: Any) -> SpeculativeLlama:
        objects.append(SpeculativeLlama(target, draft, **(EXACT | options)))
        return objects[-1]

    yield open_pair
    for made in objects:
        made.close()


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


def test_the_same_seed_gives_the_same_text_whatever_ran_before(
    pair: TinyPair, opened: Opener
) -> None:
    llama = opened(pair.target, pair.draft)
    first = llama.complete(PROMPT, max_tokens=40, seed=11)
    llama.complete("something else", max_tokens=9, seed=4)
    llama.chat([{"role": "user", "content": "hi"}], max_tokens=5, seed=1)
    again = llama.complete(PROMPT, max_tokens=40, seed=11)
    assert llama.complete(PROMPT, max_tokens=2, seed=1).num_cached_tokens == 0
    assert (again.token_ids, again.logprobs) == (first.token_ids, first.logprobs)
    other = llama.complete(PROMPT, max_tokens=40, seed=12)
    assert other.token_ids != first.token_ids


def test_seeds_of_requests_without_one(pair: TinyPair, opened: Opener) -> None:
    fixed = opened(pair.target, pair.draft, seed=5)
    first = fixed.complete(PROMPT, max_tokens=20)
    assert fixed.complete(PROMPT, max_tokens=20).token_ids == first.token_ids
    assert fixed.complete([*PROMPT, 1], max_tokens=2).seed != first.seed
    fresh = opened(pair.target, pair.draft)
    one, two = (fresh.complete(PROMPT, max_tokens=20) for _ in range(2))
    assert one.seed != two.seed
    assert fresh.complete(PROMPT, max_tokens=20, seed=one.seed).token_ids == one.token_ids


def test_streamed_pieces_make_the_completion(pair: TinyPair, opened: Opener) -> None:
    llama = opened(pair.target, pair.draft)
    whole = llama.complete(PROMPT, max_tokens=50, seed=2, logit_bias=NO_END)
    stream = llama.generate(PROMPT, max_tokens=50, seed=2, logit_bias=NO_END)
    pieces = list(stream)
    assert all(pieces)
    assert "".join(pieces) == whole.text == stream.completion.text
    assert stream.completion.token_ids == whole.token_ids
    assert whole.finish_reason == "length"
    assert bytes(whole.token_ids).decode("utf-8", "replace") == whole.text
    assert whole.num_prompt_tokens == len(PROMPT)
    assert len(whole.logprobs) == len(whole.token_ids) == 50


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 7])
def test_max_tokens_is_exact(pair: TinyPair, opened: Opener, max_tokens: int) -> None:
    llama = opened(pair.target, pair.draft, rule=cr.Lenience(1e9), num_draft_tokens=4)
    made = llama.complete(PROMPT, max_tokens=max_tokens, seed=1, logit_bias=NO_END)
    assert len(made.token_ids) == max_tokens
    assert made.finish_reason == "length"


def test_an_end_token_ends_the_text(pair: TinyPair, opened: Opener) -> None:
    llama = opened(pair.target, pair.draft)
    made = llama.complete(PROMPT, max_tokens=200, seed=1, logit_bias={tiny_gguf.EOS: 5.0})
    assert made.finish_reason == "stop"
    assert made.token_ids.index(tiny_gguf.EOS) == len(made.token_ids) - 1
    assert "<|eos|>" not in made.text


def test_stop_strings(pair: TinyPair, opened: Opener) -> None:
    llama = opened(pair.target, pair.draft)
    ascii_only = {b: -np.inf for b in range(259) if not 32 <= b < 127}
    whole = llama.complete(PROMPT, max_tokens=60, seed=3, logit_bias=ascii_only)
    stop = whole.text[20:24]
    at = whole.text.index(stop)
    stream = llama.generate(
        PROMPT, max_tokens=60, seed=3, logit_bias=ascii_only, stop=[stop, "~~~~"]
    )
    assert "".join(stream) == whole.text[:at]
    made = stream.completion
    assert made.finish_reason == "stop"
    assert made.token_ids == whole.token_ids[: at + len(stop)]
    alone = llama.complete(PROMPT, max_tokens=60, seed=3, logit_bias=ascii_only, stop=stop)
    assert alone.text == made.text


def test_the_context_end_is_a_finish(pair: TinyPair, opened: Opener) -> None:
    llama = opened(pair.target, pair.draft)
    made = llama.complete([65] * 250, max_tokens=None, seed=1, logit_bias=NO_END)
    assert made.finish_reason == "length"
    assert len(made.token_ids) == 7


def test_a_prompt_longer_than_a_batch(pair: TinyPair, opened: Opener) -> None:
    prompt = [tiny_gguf.BOS, *np.random.default_rng(0).integers(0, 256, 150).tolist()]
    options = {"max_tokens": 20, "temperature": 0}
    plain = opened(pair.target).complete(prompt, **options)
    for n_batch in (4, 32):
        llama = opened(pair.target, pair.draft, n_batch=n_batch, num_draft_tokens=6)
        assert llama.complete(prompt, **options).token_ids == plain.token_ids


def test_log_probabilities_against_torch(pair: TinyPair, opened: Opener) -> None:
    made = opened(pair.target, pair.draft).complete(PROMPT, max_tokens=12, seed=8)
    rows = tiny_gguf.forward(pair.target_weights, PROMPT + made.token_ids)
    q = softmax(rows)[len(PROMPT) - 1 : -1]
    expected = np.log(q[np.arange(len(made.token_ids)), made.token_ids])
    np.testing.assert_allclose(made.logprobs, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_cache_types(pair: TinyPair, opened: Opener, kind: str) -> None:
    llama = opened(pair.target, pair.draft, type_k=kind, type_v=kind, flash_attn=True)
    assert len(llama.complete(PROMPT, max_tokens=9, logit_bias=NO_END).token_ids) == 9


def test_already_loaded_models(pair: TinyPair, opened: Opener, tmp_path: Path) -> None:
    loaded = [
        llama_cpp.Llama(str(path), n_ctx=64, n_threads=1, verbose=False)
        for path in (pair.target, pair.draft)
    ]
    expected = opened(pair.target, pair.draft).complete(PROMPT, max_tokens=20, seed=1)
    got = opened(*loaded).complete(PROMPT, max_tokens=20, seed=1)
    assert got.token_ids == expected.token_ids
    assert opened(loaded[0].model, loaded[1].model).complete(PROMPT, max_tokens=5, seed=1)
    opened(loaded[0], "requantize:Q8_0", cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"draft='requantize:Q8_0' needs the target's file"):
        opened(loaded[0].model, "requantize:Q8_0", cache_dir=tmp_path)
    for llama in loaded:
        llama.close()


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupted_generation_leaves_a_usable_object(
    pair: TinyPair, opened: Opener, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    llama = opened(pair.target, pair.draft, num_draft_tokens=3)
    options = {"max_tokens": 20, "seed": 6, "logit_bias": NO_END}
    expected = llama.complete(PROMPT, **options).token_ids
    real = llama_cpp.llama_decode
    for at in range(1, 16):
        left = [at]

        def decode(context: Any, batch: Any, left: list[int] = left) -> int:
            left[0] -= 1
            if left[0] == 0 and not after:
                raise KeyboardInterrupt
            status = int(real(context, batch))
            if left[0] == 0:
                raise KeyboardInterrupt
            return status

        with monkeypatch.context() as patch:
            patch.setattr(llama_cpp, "llama_decode", decode)
            stream = llama.generate(PROMPT, **options)
            shown = []
            with contextlib.suppress(KeyboardInterrupt):
                shown.extend(stream)
            assert left[0] <= 0, "the generation was not interrupted"
            assert stream.completion.finish_reason is None
            assert stream.completion.token_ids == expected[: len(stream.completion.token_ids)]
            assert list(stream) == []
        assert llama.complete(PROMPT, **options).token_ids == expected


def test_chat_keeps_the_common_prefix(pair: TinyPair, opened: Opener) -> None:
    llama = opened(pair.target, pair.draft)
    options = {"max_tokens": 8, "seed": 1, "logit_bias": NO_END}
    messages = [{"role": "user", "content": "a first question"}]
    first = llama.chat(messages, **options)
    assert first.num_cached_tokens == 0
    messages += [{"role": "assistant", "content": "x"}, {"role": "user", "content": "more"}]
    second = llama.chat(messages, **options)
    # Kept is the first prompt; the answer in `messages` is not the one that was generated.
    assert second.num_cached_tokens >= first.num_prompt_tokens
    fresh = opened(pair.target, pair.draft).chat(messages, **options)
    assert fresh.num_cached_tokens == 0
    assert fresh.token_ids == second.token_ids


def test_the_same_chat_again_evaluates_one_prompt_token(pair: TinyPair, opened: Opener) -> None:
    llama = opened(pair.target, pair.draft)
    messages = [{"role": "user", "content": "hello"}]
    first = llama.chat(messages, max_tokens=4, seed=1)
    again = llama.chat(messages, max_tokens=4, seed=1)
    assert again.num_cached_tokens == first.num_prompt_tokens - 1
    assert again.token_ids == first.token_ids


def test_chat_uses_the_template_of_the_file(pair: TinyPair, opened: Opener) -> None:
    llama = opened(pair.target)
    llama.chat([{"role": "user", "content": "hi"}], max_tokens=1)
    text = b"user:hi" + b"<turn>" + b"assistant:"
    expected = [tiny_gguf.BOS]
    for part in text.split(b"<turn>"):
        expected += [*part, tiny_gguf.TURN]
    assert llama.target.tokens == expected[:-1]


def test_bad_messages(pair: TinyPair, opened: Opener) -> None:
    with pytest.raises(ValueError, match=r"messages\[0\] lacks \['content'\]; give 'role' and"):
        opened(pair.target).chat([{"role": "user"}])


def test_a_model_without_template_says_so(
    pair: TinyPair, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp, "llama_model_chat_template", lambda model, name: None)
    with pytest.raises(ModelFileError, match="has no chat template; use an instruct model, or"):
        opened(pair.target).chat([{"role": "user", "content": "hi"}])


def test_a_new_request_ends_the_old_one(pair: TinyPair, opened: Opener) -> None:
    llama = opened(pair.target, pair.draft)
    old = llama.generate(PROMPT, max_tokens=50)
    next(old)
    llama.complete(PROMPT, max_tokens=2)
    with pytest.raises(RuntimeError, match="has started another request; use one object per"):
        next(old)


def test_a_mismatched_draft_is_refused(pair: TinyPair, opened: Opener, tmp_path: Path) -> None:
    symbols = tiny_gguf.byte_symbols()[::-1]
    other = tiny_gguf.write_llama(tmp_path / "x.gguf", pair.draft_weights, symbols=symbols)
    with pytest.raises(VocabularyMismatchError, match=r"use .* draft='ngram'"):
        opened(pair.target, other)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_tokens": 0}, ValueError, "max_tokens=0 must be >= 1, or None"),
        ({"grammar": "root ::= x"}, UnsupportedError, "grammars are not supported yet"),
        ({"logit_bias": {300: 1.0}}, ValueError, r"logit_bias\[300\]=1\.0 must be for a token id"),
        ({"stop": ["a", ""]}, ValueError, "holds an empty string"),
        ({"prompt": []}, ValueError, "prompt has no tokens"),
        ({"prompt": [999]}, ValueError, r"prompt holds token ids 999\.\.999; the target's lie in"),
        ({"prompt": [1] * 257}, ContextOverflowError, r"its 257 tokens exceed n_ctx=256; raise"),
    ],
)
def test_bad_requests_fail_before_anything_runs(
    pair: TinyPair, opened: Opener, options: dict[str, Any], error: type, message: str
) -> None:
    llama = opened(pair.target, pair.draft)
    with pytest.raises(error, match=message):
        llama.generate(**({"prompt": PROMPT} | options))
    assert len(llama.complete(PROMPT, max_tokens=2, logit_bias=NO_END).token_ids) == 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_draft_tokens": 0}, ValueError, "num_draft_tokens=0 must be an integer >= 1; for"),
        ({"draft_sampling": "best"}, ValueError, "draft_sampling='best' must be 'sample' or"),
        ({"draft_tree": 3}, UnsupportedError, "draft_tree=3: tree drafts are not supported yet"),
        ({"draft": "nothing.gguf"}, ModelFileError, "draft='nothing.gguf' does not exist"),
        ({"draft": "requantize:Q9"}, ValueError, "draft='requantize:Q9' names no llama.cpp"),
    ],
)
def test_bad_constructions(
    pair: TinyPair, opened: Opener, options: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        opened(pair.target, **options)


def test_a_context_manager_closes(pair: TinyPair) -> None:
    with SpeculativeLlama(pair.target, pair.draft, **EXACT) as llama:
        stream = llama.generate(PROMPT, max_tokens=9)
        next(stream)
    with pytest.raises(RuntimeError, match="was closed or has started another request"):
        next(stream)
    with pytest.raises(ValueError, match="is closed"):
        llama.complete(PROMPT)
