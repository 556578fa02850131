"""`generate(custom_generate=speculative(...))` on tiny models, piece by piece."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import tiny_transformers as tiny
import torch
import transformers as tf

import cactus_rules as cr
from cactus_rules.adapters.draft_options import NUM_DRAFT_TOKENS
from cactus_rules.adapters.errors import (
    EngineError,
    MissingEngineError,
    UnsupportedError,
    VocabularyMismatchError,
)
from cactus_rules.adapters.transformers import NgramDraft, SpeculativeOutput, library, speculative

PROMPT = torch.tensor([[1, 2, 3, 4]])
TARGET = tiny.llama()
DRAFT = tiny.noisy(TARGET)
VARIED = {"no_repeat_ngram_size": 2}
"""Greedy text of random models repeats itself; this processor, which reads the prefix, stops it."""


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def generate(model: Any = TARGET, ids: torch.Tensor = PROMPT, **options: Any) -> Any:
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 16} | options
    if options.get("do_sample"):
        options = {"top_k": 0} | options
    return model.generate(ids, **options)


def run(model: Any = TARGET, **options: Any) -> Any:
    """Sampled with a seed, all tokens of interest on the returned object."""
    options = {"do_sample": True, "return_dict_in_generate": True, "seed": 5} | options
    options = {"custom_generate": speculative(draft_model=DRAFT)} | options
    return generate(model, **options)


class Recorder:
    """Everything that `verify` was given, and its answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, torch.Tensor, cr.Verification]] = []

    def __call__(self, p: Any, q: torch.Tensor, result: cr.Verification) -> None:
        self.calls.append((p, q, result))


# Greedy decoding


@pytest.mark.parametrize("draft", ["model", "ngram", "itself"])
def test_greedy_equals_plain_greedy(draft: str) -> None:
    fast = speculative(draft_model={"model": DRAFT, "itself": TARGET}.get(draft, draft))
    options = {"do_sample": False, "max_new_tokens": 30} | ({} if draft == "ngram" else VARIED)
    expected = generate(**options)
    got = generate(custom_generate=fast, **options)
    assert got.tolist() == expected.tolist()
    assert fast.metrics.num_accepted_tokens > 0
    assert fast.metrics.num_emitted_tokens == 30


def test_greedy_ignores_a_lossy_rule_and_the_generator() -> None:
    state = torch.get_rng_state()
    fast = speculative(draft_model=DRAFT, rule=cr.Cactus(1.0))
    got = generate(do_sample=False, custom_generate=fast, **VARIED)
    assert got.tolist() == generate(do_sample=False, **VARIED).tolist()
    assert torch.equal(torch.get_rng_state(), state)


def test_itself_as_the_draft_is_accepted_whole() -> None:
    fast = speculative(draft_model=TARGET, num_draft_tokens=4)
    out = run(custom_generate=fast, max_new_tokens=21)
    assert out.metrics.draft_acceptance_rate == 1
    assert out.metrics.num_target_calls == 5  # the prompt, then four times 4 drafted and a bonus


# Caches: rows given to `verify` against a forward pass without a cache

MODELS = {
    "llama": tiny.llama,
    "sliding window": tiny.mistral,
    "one sliding window": tiny.gemma3,
    "convolution": tiny.lfm2,
}


WARPED = {"repetition_penalty": 1.3, "temperature": 0.8, "top_k": 5}
PROCESSORS = (
    tf.RepetitionPenaltyLogitsProcessor(1.3),
    tf.TemperatureLogitsWarper(0.8),
    tf.TopKLogitsWarper(5),
)


def check_rows(model: Any, draft: Any, out: Any, recorder: Recorder) -> int:
    """Compare all rows with fresh ones at their true prefixes, and repeat all draws."""
    text, start, drafted_tokens = out.sequences, PROMPT.shape[1], 0
    for step, (p, q, result) in enumerate(recorder.calls):
        count, accepted = int(result.num_draft_tokens), int(result.num_accepted)
        drafted = [
            cr.draw(row.numpy(), cr.uniforms(out.seed, step, k, cr.Stream.DRAFT))
            for k, row in enumerate(p if p is not None else ())
        ]
        assert len(drafted) == count
        assert result.token_ids[:accepted].tolist() == drafted[:accepted]
        candidate = torch.cat([text[:, :start], torch.tensor([drafted], dtype=torch.long)], dim=1)
        fresh = tiny.laws(model, candidate, PROCESSORS)[start - 1 :]
        np.testing.assert_allclose(q.numpy(), fresh, atol=2e-6)
        if count:
            fresh = tiny.laws(draft, candidate, PROCESSORS)[start - 1 : -1]
            np.testing.assert_allclose(p.numpy(), fresh, atol=2e-6)
        start += accepted + 1
        drafted_tokens += count
    assert start >= text.shape[1]
    return drafted_tokens


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_those_of_the_true_prefix(name: str) -> None:
    model = MODELS[name]()
    draft, recorder = tiny.noisy(model, 0.2), Recorder()
    fast = speculative(draft_model=draft, num_draft_tokens=4, adaptive=False, observe=recorder)
    out = run(model, custom_generate=fast, max_new_tokens=40, **WARPED)
    assert check_rows(model, draft, out, recorder) > 30
    assert 0.3 < out.metrics.draft_acceptance_rate < 1


@pytest.mark.parametrize("name", MODELS)
def test_greedy_equals_plain_greedy_with_every_cache(name: str) -> None:
    model = MODELS[name]()
    fast = speculative(draft_model=tiny.noisy(model, 0.2))
    options = VARIED | {"do_sample": False, "max_new_tokens": 24}
    got = generate(model, custom_generate=fast, **options)
    assert got.tolist() == generate(model, **options).tolist()
    assert 0 < fast.metrics.num_accepted_tokens < fast.metrics.num_draft_tokens


@pytest.mark.parametrize("name", ["llama", "one sliding window"])
def test_a_returned_cache_can_be_continued(name: str) -> None:
    model = MODELS[name]()
    fast = speculative(draft_model=tiny.noisy(model, 0.2))
    options = VARIED | {"do_sample": False, "max_new_tokens": 12}
    first = generate(model, return_dict_in_generate=True, custom_generate=fast, **options)
    cache = first.past_key_values
    assert cache.get_seq_length() == first.sequences.shape[1] - 1
    assert not any(getattr(layer, "record_past", False) for layer in cache.layers)
    longer = torch.cat([first.sequences, torch.tensor([[2, 6]])], dim=1)
    expected = generate(model, longer, **options)
    got = generate(model, longer, past_key_values=cache, custom_generate=fast, **options)
    assert got.tolist() == expected.tolist()


def test_padding_on_the_left_is_masked_for_both_models() -> None:
    padded = torch.tensor([[0, 0, 1, 2, 3, 4]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    options = VARIED | {"do_sample": False, "attention_mask": mask}
    recorder = Recorder()
    fast = speculative(draft_model=TARGET, observe=recorder)
    got = generate(ids=padded, custom_generate=fast, **options)
    assert got.tolist() == generate(ids=padded, **options).tolist()
    assert fast.metrics.draft_acceptance_rate == 1
    run(ids=padded, attention_mask=mask, custom_generate=fast)
    for p, q, _ in recorder.calls:
        if p is not None:
            np.testing.assert_allclose(p.numpy(), q.numpy()[:-1], atol=2e-6)


def test_a_prompt_is_evaluated_in_chunks() -> None:
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 0, 1, 3]])
    lengths: list[int] = []
    hook = TARGET.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    options = VARIED | {"do_sample": False, "prefill_chunk_size": 4}
    got = generate(ids=ids, custom_generate=speculative(draft_model="ngram"), **options)
    hook.remove()
    assert lengths[:3] == [4, 4, 1]
    assert got.tolist() == generate(ids=ids, do_sample=False, **VARIED).tolist()


def test_a_draft_stops_where_its_positions_end() -> None:
    draft, recorder = tiny.gpt2(positions=16), Recorder()
    fast = speculative(draft_model=draft, observe=recorder, adaptive=False)
    out = run(custom_generate=fast, max_new_tokens=24)
    assert out.sequences.shape[1] == 28
    lengths = [int(result.num_draft_tokens) for _, _, result in recorder.calls]
    assert lengths[1] == NUM_DRAFT_TOKENS
    assert lengths[-1] == 0


@pytest.mark.parametrize("size", [5, 9])
def test_vocabularies_may_differ_by_padding(size: int) -> None:
    recorder = Recorder()
    fast = speculative(draft_model=tiny.llama(vocab_size=size), observe=recorder)
    out = run(custom_generate=fast, max_new_tokens=30)
    assert out.sequences.max() < tiny.VOCAB
    assert all(p is None or p.shape[1] == tiny.VOCAB for p, _, _ in recorder.calls)
    assert out.metrics.num_accepted_tokens > 0


# Ends


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 16])
def test_max_new_tokens_is_exact(count: int) -> None:
    out = run(max_new_tokens=count, custom_generate=speculative(draft_model=TARGET))
    assert out.sequences.shape[1] == PROMPT.shape[1] + count
    assert out.logprobs.shape == (1, count)
    assert (out.metrics.num_draft_tokens > 0) == (count >= 3)


def committed_inside_a_run(tokens: list[int], recorder: Recorder) -> int:
    """A new token's index, the first of its kind, that is accepted with drafts after it."""
    at = 0
    for _, _, result in recorder.calls:
        for k in range(int(result.num_accepted) + 1):
            if k + 1 < int(result.num_accepted) and tokens[at + k] not in tokens[: at + k]:
                return at + k
        at += int(result.num_accepted) + 1
    raise AssertionError("no such token: choose another seed")


@pytest.mark.parametrize("how", ["eos", "criterion"])
def test_an_end_inside_an_accepted_run(how: str) -> None:
    recorder = Recorder()
    fast = speculative(draft_model=TARGET, num_draft_tokens=4, adaptive=False, observe=recorder)
    whole = run(custom_generate=fast).sequences[0].tolist()
    at = committed_inside_a_run(whole[4:], recorder)
    end = whole[4 + at]
    lengths: list[int] = []

    def criterion(ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        lengths.append(ids.shape[1])
        return ids[:, -1] == end

    if how == "eos":
        out = run(custom_generate=fast, eos_token_id=[end], pad_token_id=0)
    else:
        out = run(custom_generate=fast, stopping_criteria=tf.StoppingCriteriaList([criterion]))
        assert lengths == list(range(5, 6 + at))
    assert out.sequences[0].tolist() == whole[: 5 + at]
    assert out.past_key_values.get_seq_length() == 4 + at


def test_nothing_is_drafted_after_an_end_token() -> None:
    recorder = Recorder()
    fast = speculative(draft_model=TARGET, num_draft_tokens=8, adaptive=False, observe=recorder)
    out = run(custom_generate=fast, eos_token_id=3, pad_token_id=0, max_new_tokens=60)
    assert out.sequences[0, -1] == 3
    assert out.metrics.num_emitted_tokens - out.sequences.shape[1] + 4 <= 1  # the bonus token


class Streamer:
    def __init__(self) -> None:
        self.pieces: list[list[int]] = []
        self.ends = 0

    def put(self, value: torch.Tensor) -> None:
        assert not self.ends
        self.pieces.append(value.ravel().tolist())

    def end(self) -> None:
        self.ends += 1


def test_a_streamer_gets_the_prompt_every_token_and_the_end() -> None:
    streamer = Streamer()
    out = run(streamer=streamer)
    assert streamer.pieces[0] == PROMPT[0].tolist()
    assert [[token] for token in out.sequences[0, 4:].tolist()] == streamer.pieces[1:]
    assert streamer.ends == 1


# What is returned


def test_scores_logits_and_logprobs_are_those_of_plain_decoding() -> None:
    out = run(output_scores=True, output_logits=True, **WARPED)
    new = out.sequences[0, 4:]
    expected = tiny.laws(TARGET, out.sequences, PROCESSORS)[3:-1]
    raw = tiny.laws(TARGET, out.sequences)[3:-1]
    assert {row.shape for row in out.scores + out.logits} == {(1, tiny.VOCAB)}
    np.testing.assert_allclose(torch.cat(out.scores).softmax(-1), expected, atol=1e-6)
    np.testing.assert_allclose(torch.cat(out.logits).softmax(-1), raw, atol=1e-6)
    np.testing.assert_allclose(
        out.logprobs[0], np.log(expected[np.arange(len(new)), new]), atol=1e-5
    )


def test_the_returned_object_carries_metrics_and_seed() -> None:
    fast = speculative(draft_model=DRAFT, rule=cr.Mentored(0.1))
    out = run(custom_generate=fast)
    assert isinstance(out, SpeculativeOutput)
    assert isinstance(out, tf.generation.GenerateDecoderOnlyOutput)
    assert out.metrics is fast.metrics
    assert out.metrics.num_emitted_tokens >= 16
    assert 0 <= out.metrics.kl_spent < 1
    assert out.seed == 5
    ids = run(custom_generate=fast, return_dict_in_generate=False)
    assert torch.equal(ids, out.sequences)
    assert fast.metrics is not out.metrics
    assert fast.metrics.as_dict() == out.metrics.as_dict()
    assert run(do_sample=False, seed=None).seed is None


def test_adaptive_drafts_are_shorter_where_little_is_accepted() -> None:
    stranger = tiny.noisy(TARGET, 3.0)
    drafted = {}
    for adaptive in (True, False):
        fast = speculative(draft_model=stranger, num_draft_tokens=8, adaptive=adaptive)
        drafted[adaptive] = run(custom_generate=fast, max_new_tokens=40).metrics.num_draft_tokens
    assert drafted[True] < 0.7 * drafted[False]


def test_ngram_drafts_come_from_the_text() -> None:
    recorder = Recorder()
    fast = speculative(draft_model=NgramDraft(longest=2), observe=recorder)
    out = run(custom_generate=fast, max_new_tokens=40)
    assert out.metrics.num_accepted_tokens > 0
    assert all(p is None for p, _, _ in recorder.calls)


# Seeds


def test_seeds_repeat_a_generation() -> None:
    fast = speculative(draft_model=DRAFT, seed=7)
    first, second = (run(custom_generate=fast, seed=None).sequences for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(first, run(seed=7).sequences)
    assert not torch.equal(first, run(custom_generate=fast, seed=8).sequences)


def test_without_a_seed_the_torch_generator_decides() -> None:
    texts = []
    for _ in range(2):
        torch.manual_seed(3)
        texts.append([run(seed=None) for _ in range(2)])
    (a, b), (c, d) = texts
    assert torch.equal(a.sequences, c.sequences)
    assert torch.equal(b.sequences, d.sequences)
    assert not torch.equal(a.sequences, b.sequences)
    assert torch.equal(a.sequences, run(seed=a.seed).sequences)


def test_greedy_drafts_are_read_as_one_hot() -> None:
    recorder = Recorder()
    fast = speculative(draft_model=DRAFT, draft_sampling="greedy", observe=recorder)
    run(custom_generate=fast)
    assert all(p is None for p, _, _ in recorder.calls)
    assert fast.metrics.num_draft_tokens > 0


@pytest.mark.parametrize("rule", [cr.Lossless(), cr.Cactus(0.2), cr.Mentored(0.2)], ids=repr)
def test_rows_on_a_device_give_the_same_tokens(
    rule: cr.Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows stay torch tensors on a GPU; here the same path runs on the CPU."""
    fast = speculative(draft_model=DRAFT, rule=rule)
    expected = run(custom_generate=fast)
    for name in ("drafts", "decoding"):
        module = f"cactus_rules.adapters.transformers.{name}.rows_of"
        monkeypatch.setattr(module, lambda tensor: tensor)
    got = run(custom_generate=fast)
    assert torch.equal(got.sequences, expected.sequences)
    torch.testing.assert_close(got.logprobs, expected.logprobs, rtol=1e-9, atol=0)


# Errors


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_return_sequences": 2}, "input_ids has 2 sequences"),
        ({"num_beams": 2, "do_sample": False}, "generation mode 'beam_search' is not supported"),
        ({"cache_implementation": "static"}, "its cache is StaticCache"),
        ({"use_cache": False}, "its cache is NoneType"),
        ({"output_attentions": True}, "output_attentions=True is not supported"),
        ({"guidance_scale": 1.5}, "UnbatchedClassifierFreeGuidanceLogitsProcessor keeps a state"),
        ({"prompt_lookup_num_tokens": 3}, "generation mode 'assisted_generation'"),
    ],
    ids=str,
)
def test_unsupported_requests(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        run(**options)


def test_more_than_one_sequence_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="call generate once for each"):
        run(ids=PROMPT.repeat(3, 1))


def test_embeddings_and_partial_texts_are_refused() -> None:
    embeds = TARGET.get_input_embeddings()(PROMPT)
    with pytest.raises(UnsupportedError, match="inputs_embeds is not supported"):
        TARGET.generate(
            inputs_embeds=embeds.detach(),
            max_new_tokens=4,
            custom_generate=speculative(draft_model="ngram"),
        )
    cache = generate(do_sample=False, return_dict_in_generate=True).past_key_values
    rest = torch.tensor([[5, 6]])
    mask = torch.ones(1, cache.get_seq_length() + 2, dtype=torch.long)
    with pytest.raises(UnsupportedError, match="give the whole text in input_ids"):
        run(ids=rest, past_key_values=cache, attention_mask=mask)


def test_other_kinds_of_models_are_refused() -> None:
    t5 = tf.T5ForConditionalGeneration(
        tf.T5Config(
            vocab_size=tiny.VOCAB, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2,
            decoder_start_token_id=0, eos_token_id=None, pad_token_id=0,
        )
    )  # fmt: skip
    mamba = tf.MambaForCausalLM(
        tf.MambaConfig(vocab_size=tiny.VOCAB, hidden_size=8, num_hidden_layers=1, state_size=4)
    )
    for model, text in ((t5, "encoder-decoder"), (mamba, "has no past_key_values")):
        with pytest.raises(UnsupportedError, match=f"^model: .*{text}"):
            run(model)
        with pytest.raises(UnsupportedError, match=f"^draft_model: .*{text}"):
            run(custom_generate=speculative(draft_model=model))


def test_a_recurrent_state_is_refused() -> None:
    config = tf.FalconH1Config(
        **tiny.SIZES | {"num_hidden_layers": 1},
        mamba_d_ssm=16, mamba_n_heads=2, mamba_d_head=8, mamba_d_state=4, mamba_n_groups=1,
    )  # fmt: skip
    hybrid = tf.FalconH1ForCausalLM(config).eval()
    with pytest.raises(UnsupportedError, match="FalconH1ForCausalLM keeps a recurrent state"):
        run(hybrid)
    with pytest.raises(UnsupportedError, match=r"^draft_model: .* keeps a recurrent state"):
        run(custom_generate=speculative(draft_model=hybrid))


def test_another_vocabulary_is_refused() -> None:
    with pytest.raises(VocabularyMismatchError, match="its vocabulary has 200 tokens, the model's"):
        run(custom_generate=speculative(draft_model=tiny.llama(vocab_size=200)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"draft_model": "gpt2"}, "draft_model='gpt2' must be a transformers model that is loaded"),
        ({"draft_model": None}, "draft_model=None must be"),
        ({"rule": "cactus"}, "rule must be a rule such as Lossless.*, got 'cactus'"),
        ({"num_draft_tokens": 0}, "num_draft_tokens=0 must be an integer >= 1"),
        ({"draft_sampling": "beam"}, "draft_sampling='beam' must be 'sample' or 'greedy'"),
    ],
    ids=str,
)
def test_arguments_are_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        speculative(**{"draft_model": DRAFT} | options)


@pytest.mark.parametrize("do_sample", [True, False])
@pytest.mark.parametrize("draft", ["ngram", DRAFT], ids=["ngram", "model"])
@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
def test_scores_that_are_no_law_are_an_error(do_sample: bool, draft: Any, value: float) -> None:
    class Told:
        def __init__(self) -> None:
            self.ids: list[int] = []

        def put(self, ids: torch.Tensor) -> None:
            self.ids += ids.flatten().tolist()

        def end(self) -> None:
            raise AssertionError("the text did not end")

    class Spoil(tf.LogitsProcessor):
        def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return torch.full_like(scores, value) if ids.shape[1] > 6 else scores

    told = Told()
    with pytest.raises(EngineError, match=r"scores for position 7 of the text .* hold NaN, or"):
        run(
            do_sample=do_sample,
            streamer=told,
            logits_processor=tf.LogitsProcessorList([Spoil()]),
            custom_generate=speculative(draft_model=draft),
        )
    assert len(told.ids) == 7, "the tokens before it were not told"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adaptive": 1}, "adaptive=1 must be True or False"),
        ({"seed": 2.5}, r"seed=2\.5 must be an integer"),
        ({"observe": 3}, "observe=3 must be a function"),
    ],
    ids=str,
)
def test_options_of_another_kind_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        speculative(**{"draft_model": "ngram"} | options)


# The library itself


def test_the_installed_library_has_all_that_is_used() -> None:
    assert library.missing(tf) == []
    assert not [name for name in library.NAMES if "._" in name]


def test_another_library_is_refused_by_what_it_lacks_or_its_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = SimpleNamespace(**{name: getattr(tf, name) for name in library.NAMES if "." not in name})
    old.cache_utils = SimpleNamespace(Cache=SimpleNamespace(crop=1, get_seq_length=1))
    old.generation = SimpleNamespace(
        GenerateDecoderOnlyOutput=1,
        GenerationConfig=SimpleNamespace(get_generation_mode=1),
        GenerationMixin=SimpleNamespace(
            generate=lambda custom_generate: None,
            prepare_inputs_for_generation=lambda next_sequence_length: None,
        ),
    )
    old.__version__ = "5.20.0.dev0"
    monkeypatch.setitem(sys.modules, "old_transformers", old)
    with pytest.raises(MissingEngineError) as caught:
        library.load_library("old_transformers")
    text = str(caught.value)
    assert "old_transformers 5.20.0.dev0 lacks cache_utils.Cache.activate_past_recording, " in text
    assert (
        "cache_utils.Cache.is_croppable, generation.GenerationMixin.generate(streamer=), " in text
    )
    assert "(is_first_iteration=); the adapter is written for transformers 5.18 and 5.19" in text
    old.__version__ = "5.17.0"
    with pytest.raises(MissingEngineError, match=r"5\.17\.0 is too old; .* 5\.18 and 5\.19"):
        library.load_library("old_transformers")


def test_without_the_library_the_hint_is_shown() -> None:
    with pytest.raises(MissingEngineError, match="no_such_library cannot be imported") as caught:
        library.load_library("no_such_library")
    assert "pip install '.[transformers]' in the project's folder" in str(caught.value)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    import cactus_rules.adapters.transformers\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.startswith("MissingEngineError transformers cannot be imported (import of t")
