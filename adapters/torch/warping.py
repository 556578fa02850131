"""Temperature, top-k, top-p and min-p on logits, with one set of parameters per request."""

from __future__ import annotations

import array_api_compat.torch as xp
import torch
from torch import Tensor

import cactus_rules as cr
from cactus_rules._validate import check_fits
from cactus_rules.warp import as_logits, check_options, filtered, one_hot_argmax, softmax

_OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def warp(
    logits: Tensor,
    *,
    temperature: Tensor | float = 1.0,
    top_k: Tensor | int = 0,
    top_p: Tensor | float = 1.0,
    min_p: Tensor | float = 0.0,
) -> Tensor:
    """Probabilities of the sampled token: `cactus_rules.warp` with options per request.

    Args:
        logits: `(B, ..., V)`; -inf excludes a token.
        temperature: a number or `(B,)`; 0, for some requests or all, is one-hot at the argmax.
        top_k, top_p, min_p: numbers or `(B,)`, as for `cactus_rules.warp`.

    Returns:
        Probabilities `(B, ..., V)`, in the dtype of `logits` (float32 for half types). Each row is
        what `cactus_rules.warp` makes of it with its request's options.

    Raises:
        ValueError: a number outside its range, a tensor that does not fit. The values of tensors
            are not looked at, since that would synchronise: there, too low counts as the lowest and
            too high as the highest.
    """
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    numbers = {name: value for name, value in given.items() if not isinstance(value, Tensor)}
    check_options(**{**_OFF, **numbers})  # type: ignore[arg-type]
    if len(numbers) == len(given):
        return cr.warp(logits, **numbers)  # type: ignore[arg-type,no-any-return]
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"logits must be a tensor (B, ..., V) where options are, got {type(logits).__name__}"
        )
    _, logits = as_logits(logits)
    for name, value in given.items():
        if isinstance(value, Tensor):
            check_fits(name, tuple(value.shape), tuple(logits.shape[:-1][:1]), "request")
    wide = logits if logits.dtype == torch.float64 else logits.float()
    heat = _column(temperature, wide, wide.dtype)
    greedy = heat <= 0
    probs: Tensor = softmax(xp, wide, torch.where(greedy, 1.0, heat).clamp(min=1e-30))
    if any(numbers.get(name) != off for name, off in _OFF.items() if name != "temperature"):
        k, mass, share = (_column(value, wide, torch.float64) for value in (top_k, top_p, min_p))
        # Ordered by logit: two of them may round to one probability.
        order = torch.argsort(wide, dim=-1, descending=True, stable=True)
        kept = filtered(
            xp, probs, order, torch.where(k > 0, k, wide.shape[-1]), mass, share.clamp(max=1)
        )
        probs = torch.where((k > 0) | (mass < 1) | (share > 0), kept, probs)
    return torch.where(greedy, one_hot_argmax(xp, wide), probs)


def _column(value: Tensor | float, like: Tensor, dtype: torch.dtype) -> Tensor:
    """An option `(B,)` or a number as `(B, 1, ..., 1)`."""
    if not isinstance(value, Tensor):
        return torch.full((), value, dtype=dtype, device=like.device)
    return value.to(dtype).reshape(-1, *(1,) * (like.ndim - 1))
