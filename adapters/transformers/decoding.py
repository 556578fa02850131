"""`speculative(...)`: a decoding loop for `model.generate(custom_generate=...)`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import cactus_rules as cr

from ..draft_options import NUM_DRAFT_TOKENS, DraftSampling, check_draft_options
from ..drafts import DraftLength
from ..errors import EngineError
from ..ngram import NgramDraft
from ..values import check_callable, check_seed
from .cached_model import CachedModel
from .checks import (
    check_cached_text,
    check_model,
    check_request,
    check_vocabularies,
    vocabulary_size,
)
from .drafts import Draft, ModelDraft, TextDraft, open_model
from .laws import Laws, rows_of
from .library import streamer_of_generate, transformers
from .transcript import Transcript

Observer = Callable[[Tensor | None, Tensor, cr.Verification], object]
"""Called after every target call: draft laws (K, V) (None: one-hot), target laws, the result."""


@dataclass
class SpeculativeOutput(transformers.generation.GenerateDecoderOnlyOutput):  # type: ignore[misc]
    """What `generate` returns with `return_dict_in_generate=True`: the usual fields and these.

    Attributes:
        logprobs: log-probability of each new token under the target's law, float64 `(1, n)`.
        metrics: counts of the drafts and their acceptance.
        seed: the seed that repeats this generation; None where it was greedy.
    """

    logprobs: Tensor | None = None
    metrics: cr.Metrics | None = None
    seed: int | None = None


@dataclass(kw_only=True)
class Speculative:
    """Speculative decoding with an acceptance rule, for one sequence.

    Example:
        >>> fast = speculative(draft_model=small, rule=cr.Mentored(0.1))
        >>> big.generate(**inputs, max_new_tokens=100, do_sample=True, custom_generate=fast)
        >>> fast.metrics.mean_acceptance_length

    Attributes:
        draft_model: a transformers model with the same tokenizer, or "ngram" (looked up in the
            text; an `NgramDraft` sets its sizes).
        rule: the acceptance rule; default `Lossless()`.
        num_draft_tokens: most tokens drafted for one target call.
        adaptive: adapt the draft length to the acceptance seen; False drafts the maximum.
        draft_sampling: "sample" draws drafts as the request asks; "greedy" takes the most likely
            token, which the rule then reads as a one-hot draft.
        seed: repeats a generation. Default: drawn from torch's generator, so that
            `torch.manual_seed` repeats it; `generate(..., seed=...)` goes before both.
        observe: called after every target call, for audits of real rows.
        metrics: counts of the latest request.

    Raises:
        ValueError: an argument outside its range; when it is called, see `adapters.errors`.
    """

    draft_model: Any
    rule: cr.Rule = field(default_factory=cr.Lossless)
    num_draft_tokens: int = NUM_DRAFT_TOKENS
    adaptive: bool = True
    draft_sampling: DraftSampling = "sample"
    seed: int | None = None
    observe: Observer | None = None
    metrics: cr.Metrics = field(default_factory=cr.Metrics, init=False)

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.draft_model == "ngram":
            self.draft_model = NgramDraft()
        if not isinstance(self.draft_model, (NgramDraft, transformers.PreTrainedModel)):
            raise ValueError(
                f"draft_model={self.draft_model!r} must be a transformers model that is loaded, "
                "'ngram' or an NgramDraft"
            )
        check_draft_options(self.rule, self.num_draft_tokens, self.draft_sampling, self.adaptive)
        check_callable("observe", self.observe)
        if self.seed is not None:
            check_seed(self.seed)

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        seed: int | None = None,
        **model_kwargs: Any,
    ) -> Any:
        """Continue `input_ids (1, L)`; called by `generate` with what it has prepared."""
        check_model(model, "model")
        check_request(input_ids, generation_config, logits_processor, model_kwargs)
        config = generation_config
        target = CachedModel(
            model, model_kwargs, argument="model", chunk_size=config.prefill_chunk_size
        )
        check_cached_text(input_ids, target.length, model_kwargs)
        seed = self.seed if seed is None else check_seed(seed)
        if seed is None:
            seed = int(torch.randint(2**63 - 1, (), device="cpu")) if config.do_sample else 0
        laws = Laws(logits_processor, greedy=not config.do_sample)
        transcript = Transcript(
            ids=input_ids,
            stopping_criteria=stopping_criteria,
            streamer=streamer_of_generate(),
            keep_scores=bool(config.return_dict_in_generate and config.output_scores),
            keep_logits=bool(config.return_dict_in_generate and config.output_logits),
        )
        draft = self._open_draft(model, model_kwargs, laws, config, seed)
        self._run(transcript, target, draft, laws, seed, config.max_length)
        if transcript.streamer is not None:
            transcript.streamer.end()
        if not config.return_dict_in_generate:
            return transcript.ids
        return SpeculativeOutput(
            sequences=transcript.ids,
            scores=transcript.scores if transcript.keep_scores else None,
            logits=transcript.logits if transcript.keep_logits else None,
            past_key_values=target.cache,
            logprobs=torch.tensor([transcript.logprobs], dtype=torch.float64),
            metrics=self.metrics,
            seed=seed if config.do_sample else None,
        )

    def _open_draft(
        self, model: Any, inputs: dict[str, Any], laws: Laws, config: Any, seed: int
    ) -> Draft:
        if isinstance(self.draft_model, NgramDraft):
            return TextDraft(self.draft_model)
        check_model(self.draft_model, "draft_model")
        check_vocabularies(model, self.draft_model)
        end = config.eos_token_id
        return ModelDraft(
            model=open_model(self.draft_model, inputs),
            laws=laws,
            n_vocab=vocabulary_size(model),
            seed=seed,
            argmax=laws.greedy or self.draft_sampling == "greedy",
            end_ids=() if end is None else [end] if isinstance(end, int) else end,
        )

    def _run(
        self,
        text: Transcript,
        target: CachedModel,
        draft: Draft,
        laws: Laws,
        seed: int,
        max_length: int,
    ) -> None:
        """Draft, evaluate, verify, take back what was rejected; the prompt has no draft."""
        self.metrics = cr.Metrics()
        length = DraftLength(self.num_draft_tokens, self.adaptive)
        for step in itertools.count():
            count = min(length.next(), max_length - text.length - 1) if step else 0
            proposal = draft.propose(text.ids, count, step)
            drafted = proposal.token_ids
            candidate = torch.cat([text.ids, drafted[None]], dim=1)
            logits = target.logits(candidate, len(drafted) + 1)
            scores = laws.scores(candidate, logits)
            result = self._verify(proposal.probs, laws.law(scores), drafted, seed, step)
            accepted = int(result.num_accepted)
            lawful = _lawful(result.status, scores[: accepted + 1], greedy=laws.greedy)
            if len(drafted):
                length.update(accepted, len(drafted))
            token_ids, logprobs = result.token_ids.tolist(), result.logprobs.tolist()
            for k in range(accepted + 1):
                if not lawful[k]:
                    raise EngineError(
                        f"the model's scores for position {text.length} of the text (prompt "
                        "included) are no law: they hold NaN, or every token is excluded; look at "
                        "the model's dtype and at the logits processors"
                    )
                text.append(token_ids[k], logprobs[k], scores[k], logits[k])
                if text.finished:
                    break
            target.rollback(text.length - 1)
            draft.rollback(text.length - 1)
            if text.finished:
                target.stop_recording()
                return

    def _verify(
        self, p: Tensor | None, q: Tensor, drafted: Tensor, seed: int, step: int
    ) -> cr.Verification:
        result = cr.verify(
            None if p is None else rows_of(p),
            rows_of(q),
            rows_of(drafted),
            self.rule,
            seeds=seed,
            steps=step,
            policy="safe",
        )
        self.metrics.add(result)
        if self.observe is not None:
            self.observe(p, q, result)
        return result


def _lawful(status: Any, scores: Tensor, *, greedy: bool) -> list[bool]:
    """Which of the rows of processed logits are a law."""
    peak = scores.amax(dim=-1)
    bad = torch.isnan(peak) | (peak == -torch.inf)
    if not greedy:  # Greedy rows reach the verifier as one-hot ones, whatever the scores are.
        repaired = torch.as_tensor(status)[: len(scores)] & int(cr.Status.TARGET_REPAIRED)
        bad |= repaired.to(bad.device) > 0
    return [not flag for flag in bad.tolist()]


speculative = Speculative
"""Reads as what it does: ``generate(..., custom_generate=speculative(draft_model=...))``."""
