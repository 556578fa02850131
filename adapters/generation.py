"""One generation as its user sees it: a stream of text pieces and, at any time, the whole of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import cactus_rules as cr

from .errors import EngineError
from .speculation import FinishReason, Round
from .text import TextStream


class Codec(Protocol):
    """What is needed to turn token ids into text."""

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes that `token` adds to the text."""

    def is_end(self, token: int) -> bool:
        """Whether `token` ends a generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A generation, complete or so far.

    Attributes:
        text: the text, without the stop string that ended it.
        token_ids: the tokens, up to and with the one that ended the generation.
        logprobs: log-probability of each token under the target's distribution after the sampling
            options.
        finish_reason: "stop" at an end token or stop string, "length" at max_tokens or the end of
            the context, "error" where the engine failed, None while the generation runs or if it
            was broken off.
        metrics: counts of the drafts and their acceptance.
        seed: the seed that repeats this generation.
        num_prompt_tokens: length of the prompt.
        num_cached_tokens: how many of these were in the target's cache already.
    """

    text: str
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason | None
    metrics: cr.Metrics
    seed: int
    num_prompt_tokens: int
    num_cached_tokens: int


class Generation(Iterator[str]):
    """Iterates over pieces of text; `completion` is everything so far."""

    def __init__(
        self,
        rounds: Iterator[Round],
        codec: Codec,
        *,
        stop: Sequence[str],
        metrics: cr.Metrics,
        seed: int,
        num_prompt_tokens: int,
        num_cached_tokens: int,
    ) -> None:
        """Read `rounds` on demand and turn their tokens into text with `codec`."""
        self._rounds = rounds
        self._codec = codec
        self._stream = TextStream(stop)
        self._metrics = metrics
        self._seed = seed
        self._num_prompt_tokens = num_prompt_tokens
        self._num_cached_tokens = num_cached_tokens
        self._pieces: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._finish_reason: FinishReason | None = None

    def __next__(self) -> str:
        """Return the next piece of text, never an empty one."""
        while self._finish_reason is None:
            try:
                committed = next(self._rounds)
            except EngineError:
                self._finish_reason = "error"
                self._pieces.append(self._stream.finish())
                raise
            if piece := self._take(committed):
                self._pieces.append(piece)
                return piece
        raise StopIteration

    def run(self) -> Completion:
        """Generate to the end."""
        for _ in self:
            pass
        return self.completion

    @property
    def completion(self) -> Completion:
        """The generation so far."""
        return Completion(
            text="".join(self._pieces),
            token_ids=list(self._token_ids),
            logprobs=list(self._logprobs),
            finish_reason=self._finish_reason,
            metrics=self._metrics,
            seed=self._seed,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
        )

    def _take(self, committed: Round) -> str:
        shown = ""
        for token, logprob in zip(committed.token_ids, committed.logprobs, strict=True):
            self._token_ids.append(token)
            self._logprobs.append(logprob)
            if not self._codec.is_end(token):
                shown += self._stream.push(self._codec.piece(token))
            if self._stream.stopped:
                self._finish_reason = "stop"
                return shown
        if committed.finish_reason is not None:
            self._finish_reason = committed.finish_reason
            shown += self._stream.finish()
            if self._stream.stopped:
                self._finish_reason = "stop"
        return shown
