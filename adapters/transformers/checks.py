"""What is refused, before any model works: messages name the argument, its value and the remedy."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

from ..draft_options import MAX_SIZE_DIFFERENCE
from ..errors import UnsupportedError, VocabularyMismatchError

MODES = ("sample", "greedy_search")
STATEFUL_PROCESSORS = (
    "SynthIDTextWatermarkLogitsProcessor",
    "UnbatchedClassifierFreeGuidanceLogitsProcessor",
)


def vocabulary_size(model: Any) -> int:
    """Number of token ids of a model."""
    return int(model.config.get_text_config(decoder=True).vocab_size)


def check_model(model: Any, argument: str) -> None:
    """Raise `UnsupportedError` for models that do not write left to right into a KV cache."""
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise UnsupportedError(
            f"{argument}: {name} is an encoder-decoder model; only decoder-only models are "
            "supported"
        )
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise UnsupportedError(
            f"{argument}: {name} has no past_key_values; only models with attention caches are "
            "supported"
        )


def check_vocabularies(target: Any, draft: Any) -> None:
    """Raise `VocabularyMismatchError` for sizes that padding does not explain."""
    sizes = vocabulary_size(target), vocabulary_size(draft)
    if abs(sizes[0] - sizes[1]) > MAX_SIZE_DIFFERENCE:
        raise VocabularyMismatchError(
            f"draft_model: its vocabulary has {sizes[1]} tokens, the model's {sizes[0]}; use a "
            'draft model with the same tokenizer, or draft_model="ngram"'
        )


def check_request(text: Tensor, config: Any, processors: Any, inputs: dict[str, Any]) -> None:
    """Raise `UnsupportedError` for arguments of `generate` that are not supported."""
    mode = str(config.get_generation_mode().value)
    if mode not in MODES:
        raise UnsupportedError(
            f"generation mode {mode!r} is not supported; use sampling (do_sample=True) or greedy "
            "decoding, with num_beams=1"
        )
    if len(text) != 1:
        raise UnsupportedError(
            f"input_ids has {len(text)} sequences (batch size times num_return_sequences); only 1 "
            "is supported: call generate once for each"
        )
    if text.shape[1] == 0 or inputs.get("inputs_embeds") is not None:
        raise UnsupportedError(
            "inputs_embeds is not supported: drafts and logits processors need input_ids"
        )
    for name in ("output_attentions", "output_hidden_states"):
        if getattr(config, name):
            raise UnsupportedError(f"{name}=True is not supported; leave it out")
    for processor in processors:
        if (name := type(processor).__name__) in STATEFUL_PROCESSORS:
            raise UnsupportedError(
                f"logits processor {name} keeps a state from call to call, which the tokens of a "
                "rejected draft would spoil; leave guidance_scale and SynthID watermarking out"
            )


def check_cached_text(text: Tensor, cached: int, inputs: dict[str, Any]) -> None:
    """Raise `UnsupportedError` unless `input_ids` holds the whole text and more than the cache."""
    lengths = {
        name: inputs[name].shape[-1]
        for name in ("attention_mask", "position_ids")
        if inputs.get(name) is not None
    }
    if cached >= text.shape[1] or any(length != text.shape[1] for length in lengths.values()):
        raise UnsupportedError(
            f"past_key_values holds {cached} tokens and input_ids has {text.shape[1]} {lengths}; "
            "give the whole text in input_ids, the cached part included, and at least one token "
            "more"
        )
