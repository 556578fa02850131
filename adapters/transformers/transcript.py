"""What a request has generated so far, and what `generate` reports about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(slots=True, kw_only=True)
class Transcript:
    """The text of one request, told token by token to stopping criteria and streamer.

    Attributes:
        ids: the text `(1, L)`.
        stopping_criteria: asked after every token, as in plain decoding.
        streamer: gets every token, and the end; or None.
        keep_scores: keep the processed logits of every new token.
        keep_logits: keep the raw logits of every new token.
        finished: whether a stopping criterion holds.
    """

    ids: Tensor
    stopping_criteria: Any
    streamer: Any
    keep_scores: bool
    keep_logits: bool
    finished: bool = False
    scores: tuple[Tensor, ...] = ()
    logits: tuple[Tensor, ...] = ()
    logprobs: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Number of tokens, prompt included."""
        return self.ids.shape[1]

    def append(self, token: int, logprob: float, scores: Tensor, logits: Tensor) -> None:
        """Commit a token, with its log-probability and its rows `(V,)`."""
        new = self.ids.new_tensor([[token]])
        self.ids = torch.cat([self.ids, new], dim=1)
        self.logprobs.append(logprob)
        if self.keep_scores:
            self.scores += (scores[None],)
        if self.keep_logits:
            self.logits += (logits[None],)
        told = self.scores if self.keep_scores else None
        self.finished = bool(self.stopping_criteria(self.ids, told).all())
        if self.streamer is not None:
            self.streamer.put(new[0].cpu())
