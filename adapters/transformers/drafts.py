"""What proposes tokens: a draft model, or the text itself."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

import cactus_rules as cr

from ..drafts import Proposal
from ..ngram import NgramDraft
from .cached_model import CachedModel
from .checks import vocabulary_size
from .laws import Laws, rows_of
from .library import transformers


@dataclass(frozen=True, slots=True)
class TextDraft:
    """Prompt lookup: tokens that followed the same few tokens earlier in the text."""

    ngram: NgramDraft

    def propose(self, text: Tensor, count: int, step: int) -> Proposal[Tensor, Tensor]:
        """Propose what followed an earlier copy of the end of the text, if there is one."""
        found = self.ngram.propose(text[0].tolist(), count, step) if count > 0 else None
        ids = found.token_ids if found else ()
        return Proposal(torch.as_tensor(ids, dtype=text.dtype, device=text.device))

    def rollback(self, length: int) -> None:
        """Nothing to take back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDraft:
    """Drafts from a model, for one request.

    Attributes:
        model: the draft model.
        laws: the request's processors and warpers, applied to the draft's rows as to the target's.
        n_vocab: the target's vocabulary size; the draft's rows are cut or padded to it.
        seed: the request's seed.
        argmax: draft the most likely token, read as one-hot, instead of drawing one.
        end_ids: tokens that end a text, after which nothing is drafted.
    """

    model: CachedModel
    laws: Laws
    n_vocab: int
    seed: int
    argmax: bool
    end_ids: Collection[int] = field(default_factory=frozenset)

    def propose(self, text: Tensor, count: int, step: int) -> Proposal[Tensor, Tensor]:
        """Draft up to `count` tokens, fewer where the text or the draft's positions end."""
        start, rows = text.shape[1], []
        for k in range(min(count, self._max_length - start + 1)):
            known = text.clamp(max=vocabulary_size(self.model.model) - 1)
            logits = fit(self.model.logits(known, 1), self.n_vocab)
            scores = self.laws.scores(text, logits)
            peak = float(scores.max())
            if math.isnan(peak) or peak == -math.inf or (peak == math.inf and not self.argmax):
                break  # No law; or the processors allow only tokens that the draft does not have.
            if self.argmax:
                token = int(scores[0].argmax())
            else:
                rows.append(self.laws.law(scores))
                u = cr.uniforms(self.seed, step, k, cr.Stream.DRAFT)
                token = cr.draw(rows_of(rows[-1][0]), u)
            text = torch.cat([text, text.new_tensor([[token]])], dim=1)
            if token in self.end_ids:
                break
        return Proposal(text[0, start:], torch.cat(rows) if rows else None)

    def rollback(self, length: int) -> None:
        """Keep at most `length` tokens in the draft's cache."""
        self.model.rollback(length)

    @property
    def _max_length(self) -> int:
        config = self.model.model.config.get_text_config(decoder=True)
        return int(getattr(config, "max_position_embeddings", None) or 2**62)


Draft: TypeAlias = TextDraft | ModelDraft
"""Whatever proposes tokens to follow a text `(1, L)`: calls as in `adapters.drafts.Draft`."""


def open_model(model: Any, target_inputs: dict[str, Any]) -> CachedModel:
    """A draft model with an empty cache, with the padding of the target's text."""
    accepted = inspect.signature(model.forward).parameters
    inputs: dict[str, Any] = {
        "past_key_values": transformers.DynamicCache(
            config=model.config.get_text_config(decoder=True)
        ),
        "use_cache": True,
    }
    if "logits_to_keep" in accepted:
        inputs["logits_to_keep"] = 1
    for name in ("attention_mask", "position_ids"):
        value = target_inputs.get(name)
        if name in accepted and value is not None and value.ndim == 2:
            inputs[name] = value
    return CachedModel(model, inputs, argument="draft_model")


def fit(logits: Tensor, n_vocab: int) -> Tensor:
    """Cut rows of logits to the first `n_vocab` tokens, or pad them with impossible ones."""
    lacking = n_vocab - logits.shape[-1]
    return functional.pad(logits, (0, lacking), value=-math.inf) if lacking else logits
