"""Batches of drafts on tensors, shared by the tests of the torch adapter and of its kernels."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import cactus_rules as cr

DELTAS = torch.tensor([0.0, 0.05, 0.3, 1.0], dtype=torch.float64)

RULES: tuple[cr.Rule, ...] = (
    cr.Lossless(),
    cr.SampleMatch(),
    cr.Cactus(0.1),
    cr.Cactus(DELTAS),
    cr.Cactus(0.4, solver="taylor"),
    cr.Mentored(0.1),
    cr.Mentored(DELTAS),
    cr.Band(0.7),
    cr.Lenience(1.5),
    cr.Ensemble(0.6),
    cr.ReducibleFuzzy(0.05),
    cr.Typical(),
    cr.Threshold(0.5, 0.8),
    cr.TopK(3),
    cr.Nucleus(0.7),
    cr.MinP(0.3),
    cr.RelaxedTopN(4, 0.1),
)
"""Every rule, some with one parameter per request."""


def label(rule: cr.Rule) -> str:
    """A short name for a test's id."""
    batched = any(isinstance(v, torch.Tensor) for v in vars(rule).values())
    return f"{rule.name}-{getattr(rule, 'solver', '')}" + ("-per-request" if batched else "")


@dataclass(frozen=True)
class Batch:
    """Four drafts of up to three tokens: full, ragged, empty, full."""

    draft: torch.Tensor
    target: torch.Tensor
    tokens: torch.Tensor
    seeds: torch.Tensor
    steps: torch.Tensor

    def rows(self, logits: bool, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Draft and target, as logits or probabilities of a dtype."""
        pair = (self.draft, self.target)
        if not logits:
            pair = tuple(torch.softmax(x.double(), -1) for x in pair)
        return pair[0].to(dtype), pair[1].to(dtype)

    def names(self) -> dict[str, torch.Tensor]:
        """The arguments that name the uniforms."""
        return {"seeds": self.seeds, "steps": self.steps}


def batch(width: int = 300, seed: int = 0) -> Batch:
    """Logits of drafts that are near their targets, so that tokens are accepted and rejected."""
    generator = torch.Generator().manual_seed(seed)
    draft = 2 * torch.randn(4, 3, width, generator=generator)
    target = 2 * torch.randn(4, 4, width, generator=generator)
    target[:, :3] = draft + 0.7 * torch.randn(4, 3, width, generator=generator)
    flat = torch.softmax(draft, -1).reshape(-1, width)
    tokens = torch.multinomial(flat, 1, generator=generator).reshape(4, 3)
    tokens[1, 2:] = -1
    tokens[2] = -1
    seeds = torch.tensor([3, -7, 2**62 + 1, 11]) + 1000 * seed
    return Batch(draft, target, tokens, seeds, torch.tensor([0, 5, 2**40, 1]))


def on_numpy(rule: cr.Rule) -> cr.Rule:
    """The same rule with numpy parameters."""
    return with_parameters(rule, lambda value: value.numpy())


def with_parameters(rule: cr.Rule, change: Any) -> cr.Rule:
    """A copy of a rule with its tensors changed."""
    changed = copy.copy(rule)
    for name, value in vars(rule).items():
        if isinstance(value, torch.Tensor):
            object.__setattr__(changed, name, change(value))
    return changed


def same(a: Any, b: Any, rtol: float = 0.0) -> None:
    """Assert that two verifications agree; log-probabilities and telemetry to `rtol`."""
    for name in ("token_ids", "num_accepted", "num_draft_tokens", "status"):
        x, y = (np.asarray(getattr(v, name)) for v in (a, b))
        assert (x == y).all(), f"{name}: {x} != {y}"
    for name in ("logprobs", "kl_spent", "tv_spent"):
        x, y = getattr(a, name), getattr(b, name)
        if x is None or y is None:
            assert x is y
            continue
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=rtol)
