"""One GGUF model: logits against torch, rollback against a fresh run, interruptions, bad input."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import tiny_gguf  # noqa: E402
from tiny_gguf import TinyPair  # noqa: E402

from cactus_rules.adapters.errors import (  # noqa: E402
    ContextOverflowError,
    EngineError,
    ModelFileError,
)
from cactus_rules.adapters.llamacpp import LlamaModel, ModelOptions  # noqa: E402
from cactus_rules.adapters.llamacpp.model import common_prefix  # noqa: E402

# float32 caches without flash attention: llama.cpp then computes what the torch forward does.
EXACT = {"n_ctx": 512, "n_threads": 1, "type_k": "f32", "type_v": "f32", "flash_attn": False}
IDS = [tiny_gguf.BOS, *b"the quick brown fox jumps over the lazy dog, twice"]
Opener = Callable[..., LlamaModel]


@pytest.fixture
def opened() -> Iterator[Opener]:
    models = []

    def open_model(source: Any, **options: Any) -> LlamaModel:
        models.append(LlamaModel(source, ModelOptions(**(EXACT | options))))
        return models[-1]

    yield open_model
    for model in models:
        model.close()


@pytest.fixture(params=["llama", "gemma3", "mamba", "jamba"])
def path(request: pytest.FixtureRequest) -> Path:
    if request.param == "llama":
        return request.getfixturevalue("pair").target
    return request.getfixturevalue(request.param)


def test_logits_equal_the_torch_forward(pair: TinyPair, opened: Opener) -> None:
    model = opened(pair.target)
    expected = tiny_gguf.forward(pair.target_weights, IDS)
    rows = model.step(IDS)
    assert rows.dtype == np.float32
    assert rows.shape == (len(IDS), tiny_gguf.VOCAB) == (len(IDS), model.n_vocab)
    np.testing.assert_allclose(rows, expected, atol=1e-4)


def test_prefill_then_single_steps_equal_the_torch_forward(pair: TinyPair, opened: Opener) -> None:
    model = opened(pair.target)
    model.prefill(IDS[:20])
    rows = np.concatenate([model.step([token]) for token in IDS[20:]])
    np.testing.assert_allclose(rows, tiny_gguf.forward(pair.target_weights, IDS)[20:], atol=1e-4)
    assert model.tokens == IDS
    assert model.length == len(IDS)


@pytest.mark.parametrize("n_batch", [1, 7, 16])
def test_input_longer_than_a_batch(pair: TinyPair, opened: Opener, n_batch: int) -> None:
    model = opened(pair.target, n_batch=n_batch)
    expected = tiny_gguf.forward(pair.target_weights, IDS)
    np.testing.assert_allclose(model.step(IDS), expected, atol=1e-4)
    model.rollback(0)
    model.prefill(IDS[:-1])
    np.testing.assert_allclose(model.step(IDS[-1:]), expected[-1:], atol=1e-4)


@pytest.mark.parametrize("n_ctx", [1, 20, 30, 257])
def test_a_context_below_the_batch_size(pair: TinyPair, opened: Opener, n_ctx: int) -> None:
    """llama.cpp rounds the context up to 256 cells, but takes batches of `n_ctx` tokens only."""
    model = opened(pair.target, n_ctx=n_ctx, n_batch=512)
    assert model.n_ctx >= 256
    expected = tiny_gguf.forward(pair.target_weights, IDS)
    model.prefill(IDS[:30])
    rows = model.step(IDS[30:])
    np.testing.assert_allclose(rows, expected[30:], atol=1e-4)
    model.rollback(5)
    np.testing.assert_allclose(model.step(IDS[5:]), expected[5:], atol=1e-4)


def test_a_batch_beyond_the_context_takes_no_memory(pair: TinyPair, opened: Opener) -> None:
    model = opened(pair.target, n_ctx=256, n_batch=2**31 - 1)
    assert model.step(IDS).shape == (len(IDS), model.n_vocab)


def test_rows_are_copies(pair: TinyPair, opened: Opener) -> None:
    model = opened(pair.target)
    first = model.step(IDS[:5])
    before = first.copy()
    model.step(IDS[5:])
    np.testing.assert_array_equal(first, before)


@pytest.mark.parametrize("kept", [0, 1, 17, 30, 31, len(IDS)])
def test_rollback_equals_a_fresh_run(path: Path, opened: Opener, kept: int) -> None:
    model, fresh = opened(path), opened(path)
    model.prefill(IDS[:30])
    model.step([1, 2, 3, 4])
    model.rollback(30)
    model.step(IDS[30:])
    model.rollback(kept)
    assert model.tokens == IDS[:kept]
    other = list(b"another end")
    fresh.prefill(IDS[:kept] + other[:1])
    model.prefill(other[:1])
    np.testing.assert_allclose(model.step(other[1:]), fresh.step(other[1:]), atol=1e-4)


def test_single_steps_after_a_rollback_of_a_recurrent_model(mamba: Path, opened: Opener) -> None:
    model, fresh = opened(mamba), opened(mamba)
    model.prefill(IDS[:10])
    for token in (1, 2, 3):
        model.step([token])
    model.rollback(12)
    fresh.prefill([*IDS[:10], 1, 2])
    np.testing.assert_allclose(model.step([9]), fresh.step([9]), atol=1e-5)


def test_a_saved_state_of_other_tokens_is_not_used_again(mamba: Path, opened: Opener) -> None:
    model, fresh = opened(mamba), opened(mamba)
    model.prefill(IDS[:10])
    model.step([1, 2, 3])
    model.rollback(5)
    model.prefill(list(b"something else"))
    model.step([4])
    model.rollback(12)
    fresh.prefill([*IDS[:5], *b"somethi"])
    np.testing.assert_allclose(model.step([9]), fresh.step([9]), atol=1e-5)


def test_a_recurrent_rollback_evaluates_only_what_followed_the_saved_state(
    jamba: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(jamba)
    model.prefill(IDS[:20])
    model.step(IDS[20:25])
    evaluated = []
    real = llama_cpp.llama_decode
    monkeypatch.setattr(
        llama_cpp, "llama_decode", lambda c, b: evaluated.append(b.n_tokens) or real(c, b)
    )
    model.rollback(23)
    assert evaluated == [3]


def test_deep_rollback_beyond_a_sliding_window(gemma3: Path, opened: Opener) -> None:
    # llama.cpp keeps window + batch cells, rounded up to 256: after 400 tokens the first are gone.
    model = opened(gemma3, swa_full=False, n_batch=64)
    fresh = opened(gemma3, swa_full=False, n_batch=64)
    text = np.random.default_rng(5).integers(0, 256, 400).tolist()
    model.prefill(text)
    assert llama_cpp.llama_memory_seq_pos_min(model._memory, 0) > 0, "no cell was dropped"
    for kept in (390, 60):
        model.rollback(kept)
        fresh.rollback(0)
        fresh.prefill(text[:kept])
        np.testing.assert_allclose(model.step([7, 8]), fresh.step([7, 8]), atol=1e-4)
        model.rollback(kept)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_key_and_value_cache_types(pair: TinyPair, opened: Opener, kind: str) -> None:
    model = opened(pair.target, type_k=kind, type_v=kind, flash_attn=True)
    expected = tiny_gguf.forward(pair.target_weights, IDS)
    np.testing.assert_allclose(model.step(IDS), expected, atol={"f16": 0.05, "q8_0": 0.5}[kind])


def test_a_quantised_value_cache_without_flash_attention_is_explained(
    pair: TinyPair, opened: Opener
) -> None:
    with pytest.raises(EngineError, match=r"quantised type_v needs flash_attn=True"):
        opened(pair.target, type_v="q8_0", flash_attn=False)


def test_a_loaded_llama_or_pointer_can_be_borrowed(pair: TinyPair, opened: Opener) -> None:
    llama = llama_cpp.Llama(str(pair.target), n_ctx=256, n_threads=1, verbose=False)
    expected = tiny_gguf.forward(pair.target_weights, IDS)
    for source in (llama, llama.model):
        model = opened(source)
        np.testing.assert_allclose(model.step(IDS), expected, atol=1e-4)
        model.close()
    assert llama.create_completion("ab", max_tokens=2)["usage"]["completion_tokens"] == 2
    llama.close()


def test_something_else_than_a_model_is_refused(opened: Opener) -> None:
    with pytest.raises(ModelFileError, match=r"target=3\.5 is not a model; give the path"):
        opened(3.5)


def test_context_overflow(pair: TinyPair, opened: Opener) -> None:
    model = opened(pair.target, n_ctx=256)
    model.prefill([1] * 250)
    with pytest.raises(
        ContextOverflowError, match=r"250 \+ 7 tokens exceed n_ctx=256; raise n_ctx"
    ):
        model.step([1] * 7)
    assert model.length == 250
    assert model.step([1] * 6).shape == (6, model.n_vocab)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "ids is empty"),
        ([-1], r"ids holds -1\.\.-1; token ids of target lie in 0\.\.258"),
        ([0, 259], r"ids holds 0\.\.259"),
    ],
)
def test_bad_ids(pair: TinyPair, opened: Opener, ids: list[int], message: str) -> None:
    model = opened(pair.target)
    with pytest.raises(ValueError, match=message):
        model.step(ids)
    assert model.length == 0


@pytest.mark.parametrize("length", [-1, 4])
def test_bad_rollback(pair: TinyPair, opened: Opener, length: int) -> None:
    model = opened(pair.target)
    model.prefill([1, 2, 3])
    with pytest.raises(ValueError, match=f"length={length} must lie between 0 and the 3 tokens"):
        model.rollback(length)


def test_a_closed_model_says_so(pair: TinyPair, opened: Opener) -> None:
    model = opened(pair.target)
    model.close()
    model.close()
    for use in (
        lambda: model.step([1]),
        lambda: model.prefill([1]),
        lambda: model.rollback(0),
        lambda: model.length,
        lambda: model.vocabulary.tokenize("a"),
        lambda: model.vocabulary.piece(1),
        lambda: model.vocabulary.is_end(1),
    ):
        with pytest.raises(ValueError, match="is closed; open"):
            use()


def test_a_failed_evaluation_keeps_the_books_right(
    pair: TinyPair, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(pair.target)
    model.prefill(IDS[:10])
    with monkeypatch.context() as patch:
        patch.setattr(llama_cpp, "llama_decode", lambda context, batch: 1)
        with pytest.raises(
            EngineError, match=r"returned 1 for 3 tokens at position 10: there is no"
        ):
            model.step([1, 2, 3])
    assert model.tokens == IDS[:10]


CALLS = [
    "llama_decode",
    "llama_memory_clear",
    "llama_memory_seq_rm",
    "llama_state_seq_get_data_ext",
    "llama_state_seq_set_data_ext",
]


class Interrupter:
    """Raises KeyboardInterrupt around the n-th call of llama.cpp, before or after its work."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
        self.left = at
        for name in CALLS:
            patch.setattr(llama_cpp, name, self._wrap(getattr(llama_cpp, name), after))

    def _wrap(self, real: Callable[..., Any], after: bool) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not after:
                raise KeyboardInterrupt
            result = real(*args)
            if self.left == 0:
                raise KeyboardInterrupt
            return result

        return call


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("swa_full", [True, False])
def test_an_interrupted_model_stays_usable(
    path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch, after: bool, swa_full: bool
) -> None:
    model = opened(path, n_batch=64, swa_full=swa_full)
    fresh = opened(path, n_batch=64)
    text = np.random.default_rng(6).integers(0, 256, 330).tolist()
    expected = []
    for row in (fresh.step([*text[:60], 9]), fresh.step([3])):
        expected.append(row[-1])

    def work() -> None:
        model.rollback(0)
        model.prefill(text)
        model.rollback(320)
        model.step(text[320:])
        model.rollback(323)
        model.step([1])
        model.rollback(60)
        model.step([9])

    for at in range(1, 100):
        with monkeypatch.context() as patch:
            interrupter = Interrupter(patch, at, after=after)
            with contextlib.suppress(KeyboardInterrupt):
                work()
            if interrupter.left > 0:
                break
        kept = common_prefix(model.tokens, text[:60])
        model.rollback(kept)
        model.prefill([*text[kept:60], 9])
        np.testing.assert_allclose(model.step([3])[-1], expected[1], atol=1e-4)
    assert at > 10, "hardly any call was interrupted"
