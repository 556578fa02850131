"""From logits to the law that a token is drawn from, as one request of `generate` asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import cactus_rules as cr


@dataclass(frozen=True, slots=True)
class Laws:
    """The request's logits processors and warpers, then softmax, or one-hot where it is greedy.

    Applied to both models' rows, each with the true prefix of its position.
    """

    processors: Callable[[Tensor, Tensor], Tensor]
    greedy: bool

    def scores(self, text: Tensor, logits: Tensor) -> Tensor:
        """Processed logits `(n, V)`; the last row follows all of `text (1, L)`, and so on back."""
        first = text.shape[1] - len(logits) + 1
        rows = [
            self.processors(text[:, : first + i], row[None]) for i, row in enumerate(logits.clone())
        ]
        return torch.cat(rows)

    def law(self, scores: Tensor) -> Tensor:
        """Probabilities `(n, V)` of processed logits."""
        law: Tensor = cr.warp(scores, temperature=0.0 if self.greedy else 1.0)
        return law


def rows_of(tensor: Tensor) -> Any:
    """The tensor itself, or numpy's view of it on the CPU, where numpy costs less per operation."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor
