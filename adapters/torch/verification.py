"""`verify` on tensors: the core's verification, with logits and kernels where they apply."""

from __future__ import annotations

from typing import Any, Literal

import array_api_compat.torch as xp
import torch
from torch import Tensor

import cactus_rules as cr
from cactus_rules._arrays import Rows
from cactus_rules._validate import as_array, check_fits
from cactus_rules.adapters import kernels
from cactus_rules.adapters.torch.logits import LogitRows
from cactus_rules.rules.base import check_rule


def verify(
    draft: Tensor | None,
    target: Tensor,
    draft_token_ids: Tensor,
    rule: cr.Rule,
    *,
    logits: bool = False,
    uniforms: Tensor | None = None,
    seeds: Tensor | None = None,
    steps: Tensor | None = None,
    policy: str | None = None,
    walk: Literal["token", "block"] = "token",
    kernel: bool | None = None,
) -> cr.Verification:
    """Accept a prefix of each draft and emit one more token: `cactus_rules.verify` for tensors.

    Nothing is read back to the host and no shape depends on data, unless `policy="strict"` asks
    for it. Rules that read two numbers gather two numbers per drafted token; then one row pair
    per request is read.

    Args:
        draft: `(B, K, V)`, what the drafted tokens were really drawn from, after all sampling
            filters (p); None for one-hot drafts. float16, bfloat16, float32 or float64, any
            strides. Errors of the core name it and `target` as its own arguments, draft_probs and
            target_probs. Swapping the two raises no error by itself.
        target: `(B, K+1, V)`, the target's rows at the same positions and one more (q).
        draft_token_ids: integers `(B, K)`; -1 pads a shorter draft.
        rule: an acceptance rule; its parameters may be tensors `(B,)`, one value per request, on
            the device of the rows. A rule checks its parameters once, when it is made: make it
            outside of a compiled or captured region, and change a tensor in place if need be.
        logits: whether `draft` and `target` hold logits (after all sampling filters, with -inf for
            what they exclude); they are normalised in float64, see `LogitRows`.
        uniforms: float64 `(B, K+1, 2)` in [0, 1), as for `cactus_rules.verify`.
        seeds, steps: instead of `uniforms`: int64 `(B,)`, a request and the number of its target
            call. The same request gets the same tokens in any slot of any batch. There is no
            `rng`: a numpy generator draws on the host, and a torch one would give a request other
            numbers in another slot. For ``torch.rand(B, K + 1, 2, ...)`` use `uniforms`.
        policy: "safe" (the default) repairs bad rows and ids and says so in `status`, on the
            device. "strict" checks everything, which synchronises, and raises ValueError.
        walk: "token", or "block" for block verification, which reads all rows.
        kernel: True for the Triton kernels, False for plain torch, None for the kernels where they
            can run: rows on a GPU, Triton installed, walk="token".

    Returns:
        A `cactus_rules.Verification` of tensors on the device of the rows.

    Raises:
        ValueError: rows that are no tensors, shapes that do not fit, not exactly one of `uniforms`
            and `seeds`, bad data under "strict"; kernel=True with policy="strict" or walk="block".
        RuntimeError: kernel=True where the kernels cannot run.
    """
    check_rule(rule)
    _check_rows(draft, target)
    draft_token_ids = as_array(xp, draft_token_ids, target, "draft_token_ids")
    if kernel is not None and not isinstance(kernel, bool):
        raise ValueError(f"kernel must be True, False or None, got {kernel!r}")
    if (uniforms is None) == (seeds is None):
        raise ValueError("give either uniforms=, or seeds= with steps=, exactly one of them")
    fusable = walk == "token" and policy != "strict"
    if kernel and not fusable:
        plain = f"walk={walk!r}" if walk != "token" else f"policy={policy!r}"
        raise ValueError(f"kernel=True: there is no kernel for {plain}; leave kernel or that out")
    if policy == "strict" and logits:
        draft = None if draft is None else _checked_softmax(draft, "draft")
        target, logits = _checked_softmax(target, "target"), False
    fused = fusable and _use_kernel(kernel, target)
    if fused and seeds is not None and steps is not None:
        seed, step = _per_request("seeds", seeds, target), _per_request("steps", steps, target)
        uniforms = kernels.uniforms(seed, step, target.shape[-2])
        seeds = steps = None
    p, q = _rows(None if rule.ignores_draft else draft, target, draft_token_ids, logits, fused)
    return cr.verify(
        p,
        q,
        draft_token_ids,
        rule,
        uniforms=uniforms,
        seeds=seeds,
        steps=steps,
        policy=policy,
        walk=walk,
    )


def _check_rows(draft: Any, target: Any) -> None:
    if not isinstance(target, Tensor):
        name, wanted, rows = "target", "(B, K+1, V)", target
    elif not (draft is None or isinstance(draft, Tensor)):
        name, wanted, rows = "draft", "(B, K, V), or None for one-hot drafts", draft
    else:
        return
    raise ValueError(
        f"{name} must be a tensor {wanted}, got {type(rows).__name__}: cactus_rules.verify takes "
        "other arrays and Sparse"
    )


def _per_request(name: str, value: Tensor | int, target: Tensor) -> Tensor:
    """Integers `(B,)`: the kernels read one for each request."""
    tensor = torch.as_tensor(value, device=target.device)
    check_fits(name, tuple(tensor.shape), tuple(target.shape[:-2]), "request")
    return tensor.expand(target.shape[:-2])


def _use_kernel(asked: bool | None, target: Tensor) -> bool:
    if asked is None:
        return target.is_cuda and target.ndim == 3 and kernels.unavailable(target) is None
    if asked and (reason := kernels.unavailable(target)) is not None:
        raise RuntimeError(f"kernel=True, but {reason}: use kernel=None or False")
    return asked


def _rows(
    draft: Tensor | None, target: Tensor, tokens: Tensor, logits: bool, fused: bool
) -> tuple[Any, Tensor | Rows]:
    """The rows as the core reads them."""
    if not fused:
        if not logits:
            return draft, target
        return None if draft is None else LogitRows(draft), LogitRows(target)
    if not logits:
        p = None if draft is None else kernels.ProbabilityRows(draft)
        return p, kernels.ProbabilityRows(target)
    length = torch.cumprod((tokens != -1).long(), -1).sum(-1, keepdim=True)
    count = torch.arange(target.shape[-2], device=target.device)
    q = LogitRows(target, kernels.log_sum_exp(target, count <= length), kernels.FUSED)
    if draft is None:
        return None, q
    used = count[: draft.shape[-2]] < length
    return LogitRows(draft, kernels.log_sum_exp(draft, used)), q


def _checked_softmax(logits: Tensor, name: str) -> Tensor:
    """Float64 probabilities; ValueError where the logits have no softmax."""
    bad = torch.isnan(logits) | (logits == torch.inf)
    bad |= (logits == -torch.inf).all(-1, keepdim=True)
    if bool(bad.any()):
        at = bad.nonzero()[0].tolist()
        raise ValueError(
            f"{name}{at} is {logits[tuple(at)].item()}: logits must be finite, or -inf for tokens "
            "that are excluded, with one finite value per row; policy='safe' repairs bad rows"
        )
    return torch.softmax(logits.double(), -1)
