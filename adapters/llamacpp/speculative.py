"""`SpeculativeLlama`: a GGUF target, a draft, and any acceptance rule of `cactus_rules`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack

import cactus_rules as cr

from ..draft_options import NUM_DRAFT_TOKENS, DraftSampling, check_draft_options
from ..drafts import Draft, ModelDraft, NoDraft
from ..errors import UnsupportedError
from ..generation import Completion, Generation
from ..ngram import NgramDraft
from ..request import Request, RequestOptions, read_request
from ..speculation import Round, Speculation
from ..values import check_seed, check_token_ids
from .chat import Messages, chat_prompt
from .model import LlamaModel, common_prefix
from .options import LoadOptions, ModelOptions
from .quantize import requantize
from .vocabulary import check_compatible
from .weights import Weights

_REQUANTIZE = "requantize:"


class SpeculativeLlama:
    """Generates text with a GGUF target, a draft, and an acceptance rule.

    Example:
        >>> llama = SpeculativeLlama("big.gguf", "small.gguf", rule=cr.Mentored(0.1))
        >>> for piece in llama.generate("Once upon a time", max_tokens=64):
        ...     print(piece, end="", flush=True)

    One request runs at a time; starting another one ends it. After Ctrl-C the object is usable.
    """

    def __init__(
        self,
        target: Any,
        draft: Any = None,
        *,
        rule: cr.Rule | None = None,
        num_draft_tokens: int = NUM_DRAFT_TOKENS,
        adaptive: bool = True,
        draft_sampling: DraftSampling = "sample",
        draft_tree: Any = None,
        seed: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        **load: Unpack[LoadOptions],
    ) -> None:
        """Load both models and compare their vocabularies.

        Args:
            target: path of a GGUF file, an open `llama_cpp.Llama`, or a llama.cpp model pointer.
            draft: the same, or "ngram" (looked up in the text; an `NgramDraft` sets its sizes),
                "requantize:Q2_K" (made from the target; any llama.cpp type), or None for plain
                decoding.
            rule: the acceptance rule; default `Lossless()`. llama.cpp's own test is
                `SampleMatch()` with `draft_sampling="greedy"`.
            num_draft_tokens: most tokens drafted for one target call.
            adaptive: adapt the draft length to the acceptance seen; False drafts the maximum.
            draft_sampling: "sample" draws drafts as the request's options say; "greedy" takes the
                most likely token, which the rule then reads as a one-hot draft.
            draft_tree: not supported yet.
            seed: default seed; each prompt gets numbers of its own from it. None: a fresh one.
            cache_dir: where requantised drafts are kept.
            **load: options of `ModelOptions`, for both models.
        """
        if draft_tree is not None:
            raise UnsupportedError(
                f"draft_tree={draft_tree!r}: tree drafts are not supported yet; leave it out"
            )
        self.rule: cr.Rule = cr.Lossless() if rule is None else rule
        check_draft_options(self.rule, num_draft_tokens, draft_sampling, adaptive)
        self.num_draft_tokens = num_draft_tokens
        self.adaptive = adaptive
        self.draft_sampling: DraftSampling = draft_sampling
        self.seed = None if seed is None else check_seed(seed)
        options = ModelOptions(**load)
        self.target = LlamaModel(target, options)
        self.draft: LlamaModel | NgramDraft | None = None
        if isinstance(draft, NgramDraft) or draft == "ngram":
            self.draft = NgramDraft() if isinstance(draft, str) else draft
        elif draft is not None:
            self.draft = self._open_draft(draft, options, cache_dir)
        self._current = 0

    def generate(
        self, prompt: str | Sequence[int], **options: Unpack[RequestOptions]
    ) -> Generation:
        """Stream the continuation of `prompt` (text or token ids) as pieces of text.

        The caches are emptied first, so that equal requests give equal results whatever ran
        before.
        """
        return self._start(self._encode(prompt), False, options)

    def complete(
        self, prompt: str | Sequence[int], **options: Unpack[RequestOptions]
    ) -> Completion:
        """Continue `prompt` to the end, and return text, tokens, log-probabilities and metrics."""
        return self.generate(prompt, **options).run()

    def chat_stream(self, messages: Messages, **options: Unpack[RequestOptions]) -> Generation:
        """Stream the answer to `messages`, formatted with the target's own chat template.

        What the caches hold of the conversation is not evaluated again. (Logits then come from
        batches of another shape, so the last digits may differ from those of a fresh start.)
        """
        return self._start(chat_prompt(self.target.weights, messages), True, options)

    def chat(self, messages: Messages, **options: Unpack[RequestOptions]) -> Completion:
        """Answer `messages` to the end; see `chat_stream`."""
        return self.chat_stream(messages, **options).run()

    def close(self) -> None:
        """Free both models; borrowed ones stay loaded."""
        self._current += 1
        for model in (self.draft, self.target):
            if isinstance(model, LlamaModel):
                model.close()
                model.weights.close()

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Free both models."""
        self.close()

    def _open_draft(
        self, draft: Any, options: ModelOptions, cache_dir: str | os.PathLike[str] | None
    ) -> LlamaModel:
        if isinstance(draft, str) and draft.startswith(_REQUANTIZE):
            source = self.target.weights.path
            if source is None:
                raise ValueError(f"draft={draft!r} needs the target's file; give target as a path")
            draft = requantize(
                source,
                draft.removeprefix(_REQUANTIZE),
                cache_dir=cache_dir,
                n_threads=options.n_threads,
            )
        weights = Weights(draft, options, argument="draft")
        check_compatible(self.target.vocabulary, weights.vocabulary)
        n_ctx = min(self.target.n_ctx, weights.n_ctx_train)
        return LlamaModel(weights, replace(options, n_ctx=n_ctx), argument="draft")

    def _encode(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            return self.target.vocabulary.tokenize(prompt)
        return check_token_ids(prompt)

    def _start(self, prompt: list[int], reuse: bool, options: RequestOptions) -> Generation:
        request = read_request(
            prompt,
            n_vocab=self.target.n_vocab,
            n_ctx=self.target.n_ctx,
            default_rule=self.rule,
            default_seed=self.seed,
            **options,
        )
        cached = 0
        for model in (self.draft, self.target):
            if isinstance(model, LlamaModel):
                cached = common_prefix(model.tokens, prompt[:-1]) if reuse else 0
                model.rollback(cached)
        speculation = Speculation(
            target=self.target,
            draft=self._draft_for(request),
            rule=request.rule,
            sampling=request.sampling,
            seed=request.seed,
            num_draft_tokens=self.num_draft_tokens,
            adaptive=self.adaptive,
            observe=request.observe,
        )
        rounds = speculation.run(prompt, request.max_tokens, self.target.vocabulary.is_end)
        self._current += 1
        return Generation(
            self._guarded(rounds, self._current),
            self.target.vocabulary,
            stop=request.stop,
            metrics=speculation.metrics,
            seed=request.seed,
            num_prompt_tokens=len(prompt),
            num_cached_tokens=cached,
        )

    def _guarded(self, rounds: Iterator[Round], request: int) -> Iterator[Round]:
        """Pass `rounds` on while `request` is the current one."""
        while True:
            if request != self._current:
                raise RuntimeError(
                    "this generation has ended: the SpeculativeLlama was closed or has started "
                    "another request; use one object per concurrent generation"
                )
            try:
                committed = next(rounds)
            except StopIteration:
                return
            yield committed

    def _draft_for(self, request: Request) -> Draft:
        if self.draft is None:
            return NoDraft()
        if isinstance(self.draft, NgramDraft):
            return self.draft
        return ModelDraft(
            model=self.draft,
            sampling=request.sampling,
            n_vocab=self.target.n_vocab,
            seed=request.seed,
            argmax=self.draft_sampling == "greedy",
        )
