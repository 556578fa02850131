"""What `verify` is compared with, in plain torch: two shapes of code that engines use.

Every function takes probabilities `draft (B, K, V)` and `target (B, K+1, V)`, and drafted tokens
`(B, K)`, and returns tokens `(B, K+1)` padded with -1. Laws are right; none repairs bad rows.
"""

from __future__ import annotations

import torch
from torch import Tensor


def batch(shape: tuple[int, int, int], device: str, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Float32 logits of drafts near their targets, and tokens drawn from the drafts."""
    b, k, v = shape
    generator = torch.Generator(device).manual_seed(seed)
    draft = 3 * torch.randn(b, k, v, device=device, generator=generator)
    target = 3 * torch.randn(b, k + 1, v, device=device, generator=generator)
    target[:, :k] = draft + 0.7 * target[:, :k] / 3
    noise = torch.empty_like(draft).exponential_(generator=generator)
    tokens = (torch.softmax(draft, -1) / noise).argmax(-1)
    return draft, target, tokens


def full_vocabulary(draft: Tensor, target: Tensor, tokens: Tensor, delta: float = 0.5) -> Tensor:
    """Cactus as first published: the surrogate h, and the residual of h, at every position."""
    index = tokens[..., None]
    q = target[:, :-1]
    q_n, p_n = q.gather(-1, index), draft.gather(-1, index)
    cap = (q_n + torch.sqrt(2 * delta * q_n * (1 - q_n))).clamp(max=1)
    surrogate = q * ((1 - cap) / (1 - q_n).clamp(min=1e-10))
    surrogate.scatter_(-1, index, cap)
    kept = torch.rand_like(p_n) < surrogate.gather(-1, index) / p_n
    residual = (surrogate - draft).clamp(min=0)
    residual = residual / residual.sum(-1, keepdim=True).clamp(min=1e-10)
    noise = torch.empty_like(residual).exponential_()
    return _emit(tokens, kept[..., 0], (residual / noise).argmax(-1), _bonus(target))


def all_residuals(draft: Tensor, target: Tensor, tokens: Tensor) -> Tensor:
    """Speculative sampling as vLLM's torch path lays it out.

    The residual of every position against one row of noise per request.
    """
    index = tokens[..., None]
    q = target[:, :-1]
    kept = torch.rand_like(index, dtype=torch.float32) * draft.gather(-1, index) <= q.gather(
        -1, index
    )
    noise = torch.empty_like(target[:, :1]).exponential_()
    recovered = ((q - draft).clamp(min=0) / noise).argmax(-1)
    return _emit(tokens, kept[..., 0], recovered, _bonus(target))


def _bonus(target: Tensor) -> Tensor:
    last = target[:, -1]
    return (last / torch.empty_like(last).exponential_()).argmax(-1)


def _emit(tokens: Tensor, kept: Tensor, recovered: Tensor, bonus: Tensor) -> Tensor:
    stop = torch.cumprod(kept.long(), -1).sum(-1, keepdim=True)
    last = torch.cat([recovered, bonus[:, None]], -1)
    position = torch.arange(last.shape[-1], device=tokens.device)
    padded = torch.nn.functional.pad(tokens, (0, 1), value=-1)
    emitted = torch.where(position < stop, padded, -1)
    return torch.where(position == stop, last.gather(-1, stop), emitted)
