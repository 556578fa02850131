"""Requests to SpeculativeLlama on tiny GGUF pairs: seeds, ends, chat, interruptions, errors."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import tiny_gguf  # noqa: E402
from llama_requests import EXACT, NO_END, PROMPT, Opener  # noqa: E402
from tiny_gguf import TinyPair  # noqa: E402

import cactus_rules as cr  # noqa: E402
from cactus_rules.adapters.errors import (  # noqa: E402
    ContextOverflowError,
    EngineError,
    ModelFileError,
    UnsupportedError,
    VocabularyMismatchError,
)
from cactus_rules.adapters.llamacpp import NgramDraft, SpeculativeLlama  # noqa: E402


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


@pytest.mark.parametrize("n_ctx", [1, 3, 20])
def test_a_prompt_longer_than_the_context_that_was_asked_for(
    pair: TinyPair, opened: Opener, n_ctx: int
) -> None:
    """The context is rounded up to 256, which must not make a batch that llama.cpp aborts on."""
    prompt = [tiny_gguf.BOS, *b"a prompt of some thirty tokens"]
    options = {"max_tokens": 12, "temperature": 0}
    plain = opened(pair.target).complete(prompt, **options)
    small = opened(pair.target, pair.draft, n_ctx=n_ctx, num_draft_tokens=5)
    assert small.complete(prompt, **options).token_ids == plain.token_ids


@pytest.mark.parametrize("draft", [True, False])
@pytest.mark.parametrize("options", [{}, {"top_k": 5}, {"top_p": 0.9}, {"temperature": 0}], ids=str)
@pytest.mark.parametrize(
    ("value", "said"),
    [(np.nan, "holds NaN"), (-np.inf, "has no finite entry, so that every token is excluded")],
)
def test_a_target_row_without_a_law_is_an_error(
    pair: TinyPair, opened: Opener, draft: bool, options: dict[str, Any], value: float, said: str
) -> None:
    def processor(prefix: Any, row: Any) -> Any:
        return row if len(prefix) < 12 else np.full_like(row, value)

    llama = opened(pair.target, pair.draft if draft else None)
    whole = llama.complete(PROMPT, max_tokens=7, seed=3, logit_bias=NO_END, **options)
    stream = llama.generate(
        PROMPT, max_tokens=30, seed=3, logit_bias=NO_END, logits_processor=processor, **options
    )
    with pytest.raises(EngineError, match=rf"row of logits for position 12 .* {said}; look at"):
        stream.run()
    made = stream.completion
    assert made.finish_reason == "error"
    assert len(made.token_ids) == len(made.logprobs) == 12 - len(PROMPT)
    assert made.text == bytes(made.token_ids).decode("utf-8", "replace")
    if not draft:
        assert made.token_ids == whole.token_ids
    assert list(stream) == []
    assert llama.complete(PROMPT, max_tokens=2, logit_bias=NO_END).finish_reason == "length"


def test_one_nan_that_a_filter_would_hide_is_an_error(pair: TinyPair, opened: Opener) -> None:
    def processor(prefix: Any, row: Any) -> Any:
        row[-1] = np.nan
        return row

    stream = opened(pair.target, pair.draft).generate(PROMPT, top_k=3, logits_processor=processor)
    with pytest.raises(EngineError, match=r"position 5 .* holds NaN"):
        next(stream)


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


def test_an_ngram_draft_keeps_its_sizes(pair: TinyPair, opened: Opener) -> None:
    found = NgramDraft(longest=4, shortest=2)
    llama = opened(pair.target, found)
    assert llama.draft is found
    text = [tiny_gguf.BOS, *b"abcd abcd"]
    named = opened(pair.target, "ngram").complete(text, max_tokens=8, temperature=0)
    given = llama.complete(text, max_tokens=8, temperature=0)
    assert given.token_ids == named.token_ids
    assert given.metrics.num_draft_tokens > 0


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
        ({"max_tokens": 0}, ValueError, "max_tokens=0 must be an integer >= 1, or None"),
        ({"grammar": "root ::= x"}, UnsupportedError, "grammars are not supported yet"),
        ({"logit_bias": {300: 1.0}}, ValueError, r"logit_bias\[300\]=1\.0 must be for a token id"),
        ({"stop": ["a", ""]}, ValueError, "holds an empty string"),
        ({"rule": "cactus"}, ValueError, "rule must be a rule such as Lossless.*, got 'cactus'"),
        ({"prompt": []}, ValueError, "prompt has no tokens"),
        ({"prompt": b"abc"}, ValueError, r"prompt=b'abc' must be text \(str\) or a list of token"),
        ({"prompt": [1.7, 2.2]}, ValueError, r"prompt\[0\]=1\.7 must be a token id \(int\)"),
        ({"prompt": np.array([1.0])}, ValueError, r"prompt\[0\]=1\.0 must be a token id"),
        ({"prompt": None}, ValueError, "prompt=None must be text"),
        ({"prompt": ["a", "b"]}, ValueError, r"prompt\[0\]='a' must be .*; give text as one str"),
        ({"max_tokens": 2.5}, ValueError, r"max_tokens=2\.5 must be an integer from 1 to"),
        ({"max_tokens": "5"}, ValueError, "max_tokens='5' must be an integer"),
        ({"max_tokens": True}, ValueError, "max_tokens=True must be an integer"),
        ({"stop": 5}, ValueError, "stop=5 must be a string or a list of strings"),
        ({"stop": [None]}, ValueError, r"stop=\[None\] must be a string or a list of strings"),
        ({"observe": 3}, ValueError, "observe=3 must be a function, or None"),
        ({"seed": 1.5}, ValueError, r"seed=1\.5 must be an integer from -9223372036854775808 to"),
        ({"seed": 10**23}, ValueError, "seed=100000000000000000000000 must be an integer from"),
        ({"logit_bias": [1]}, ValueError, r"logit_bias=\[1\] must map token ids to numbers"),
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
        ({"adaptive": "no"}, ValueError, "adaptive='no' must be True or False"),
        ({"seed": "x"}, ValueError, "seed='x' must be an integer"),
        ({"draft_sampling": "best"}, ValueError, "draft_sampling='best' must be 'sample' or"),
        ({"rule": cr.Lossless}, ValueError, "rule must be a rule such as Lossless"),
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
