"""Launching the Triton programs: shapes, strides, scratch space."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

from cactus_rules._clip import rounding
from cactus_rules._positions import Positions, Status
from cactus_rules._walk import Last
from cactus_rules.adapters.kernels import clip, inputs, programs
from cactus_rules.adapters.torch.logits import LogitRows

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Whether the programs were made for Triton's interpreter, which takes tensors on the CPU."""

_BLOCK = 2048
_PASSES = 24
"""Pairs of ends that a search may try; a row that has arrived is not read again."""
_FLOAT, _INT = torch.float64, torch.int64


def decide(draft: Any, target: Any, at: Positions, length: Tensor, u: Tensor) -> Last:
    """Accept tests, stop and last token for rows `(B, K+1, V)`; the fields of `at` are `(B, K)`."""
    q = target.stored
    batch, rows, width = q.shape
    k = rows - 1
    logits = isinstance(target, LogitRows)
    p = None if draft is None or k == 0 else getattr(draft, "stored", draft)
    blocks = triton.cdiv(width, _BLOCK)
    place = {"device": q.device}

    def each(value: Any, dtype: torch.dtype = _FLOAT) -> Tensor:
        """A number for every position, or one unread number where nothing is drafted."""
        if not isinstance(value, Tensor):
            value = torch.full((), value, dtype=dtype, device=q.device)
        number: Tensor = value.to(dtype) if k else torch.zeros(1, dtype=dtype, device=q.device)
        return number.expand((batch, k) if k else (1,)).contiguous()

    numbers = at.numbers
    floored = numbers.floor is not None
    outside = (at.status & int(Status.TOKEN_OUTSIDE)).to(_INT)
    flags = each(outside + at.one_hot.to(_INT) * (p is not None), _INT)
    scale, token, cap, p_n = (
        each(numbers.scale),
        each(at.token, _INT),
        each(numbers.cap),
        each(at.p_n),
    )
    floor = each(numbers.floor) if floored else scale
    floor_id = each(numbers.floor_id, _INT) if floored else token
    coin, draw = u[..., 0].contiguous(), u[..., 1].contiguous()
    sums = torch.empty((batch, blocks, 4), dtype=_FLOAT, **place)
    best = torch.empty((batch, blocks), dtype=_FLOAT, **place)
    best_id = torch.empty((batch, blocks), dtype=_INT, **place)
    bad = torch.empty((batch, blocks), dtype=torch.int32, **place)
    stop, last, status = (torch.empty(batch, dtype=_INT, **place) for _ in range(3))
    q_last = torch.empty(batch, dtype=_FLOAT, **place)
    q_normaliser = target.normaliser.contiguous() if logits else sums
    p_normaliser = draft.normaliser.contiguous() if logits and p is not None else sums
    length = length.contiguous()
    strides = (*((0, 0, 0) if p is None else p.stride()), *q.stride())
    shape = {"HAS_DRAFT": p is not None, "HAS_FLOOR": floored, "LOGITS": logits, "BLOCK": _BLOCK}
    options = {"num_warps": 8, **shape, **_rounded()}
    p = q if p is None else p
    with _on(q):
        programs.partial_sums[(batch, blocks)](
            p, q, p_normaliser, q_normaliser, p_n, cap, scale, floor, floor_id, token, length,
            coin, sums, best, best_id, bad, stop, *strides, k, width,
            K_PAD=triton.next_power_of_2(max(k, 1)), **options,
        )  # fmt: skip
        programs.draw[(batch,)](
            p, q, p_normaliser, q_normaliser, scale, floor, floor_id, token, flags, length,
            draw, sums, best, best_id, bad, stop, last, q_last, status, *strides, k, width, blocks,
            BLOCKS_PAD=triton.next_power_of_2(blocks), **options,
        )  # fmt: skip
    return Last(stop, last, q_last, status)


def clip_within_budget(draft: Any, target: Any, delta: Tensor) -> tuple[Tensor, Tensor]:
    """(a, b) of the clip in a KL budget `delta` for rows `(B, K, V)`, two tensors `(B, K)`."""
    state = search(draft, target, delta)
    scale = state[..., clip.P_TOTAL.value] / state[..., clip.Q_TOTAL.value]
    return state[..., clip.BEST_A.value] * scale, state[..., clip.BEST_B.value] * scale


def search(draft: Any, target: Any, delta: Tensor) -> Tensor:
    """The search behind it: what it keeps, `(B, K, clip.STATE)`, after its last pass."""
    p, q = getattr(draft, "stored", draft), target.stored
    batch, k, width = q.shape
    pairs, blocks = batch * k, triton.cdiv(width, _BLOCK)
    delta = delta.to(_FLOAT).expand(batch, k).contiguous()
    logits = isinstance(target, LogitRows)
    normalisers = [(rows.normaliser if logits else delta).contiguous() for rows in (draft, target)]
    state = torch.zeros((batch, k, clip.STATE.value), dtype=_FLOAT, device=q.device)
    sums = torch.empty((pairs, blocks, clip.SUMS.value), dtype=_FLOAT, device=q.device)
    if pairs:
        with _on(q):
            for kind in (clip.TOTALS.value, clip.ONE.value, *(clip.PAIR.value,) * _PASSES):
                clip.sums[(pairs, blocks)](
                    p, q, *normalisers, state, sums, *p.stride(), *q.stride(), k, width,
                    PASS=kind, LOGITS=logits, BLOCK=_BLOCK, num_warps=16, **_rounded(),
                )  # fmt: skip
                clip.step[(pairs,)](
                    state, sums, delta, rounding(width), blocks,
                    PASS=kind, BLOCKS_PAD=triton.next_power_of_2(blocks), num_warps=1, **_rounded(),
                )  # fmt: skip
    return state


def log_sum_exp(logits: Tensor, used: Tensor) -> Tensor:
    """log sum exp over the last axis of `(B, R, V)`; rows that are not `used (B, R)` are unread."""
    batch, rows, width = logits.shape
    blocks = triton.cdiv(width, _BLOCK)
    peaks, sums = (
        torch.empty((batch, rows, blocks), dtype=_FLOAT, device=logits.device) for _ in range(2)
    )
    if batch * rows:
        with _on(logits):
            inputs.partial_log_sum_exp[(batch * rows, blocks)](
                logits, used.to(torch.int32).contiguous(), peaks, sums, *logits.stride(),
                rows, width, BLOCK=_BLOCK, num_warps=8, **_rounded(),
            )  # fmt: skip
    top = peaks.amax(-1, keepdim=True)
    return top[..., 0] + (sums * (peaks - top).exp()).sum(-1).log()


def uniforms(seeds: Tensor, steps: Tensor, count: int) -> Tensor:
    """Coins and draws `(B, count, 2)` of the requests' target calls."""
    seeds, steps = (value.to(_INT).contiguous() for value in (seeds, steps))
    out = torch.empty((len(seeds), count, 2), dtype=_FLOAT, device=seeds.device)
    with _on(out):
        inputs.philox_uniforms[(triton.cdiv(out.numel(), 256),)](
            seeds, steps, out, count, out.numel(), BLOCK=256, **_rounded()
        )
    return out


def _rounded() -> dict[str, Any]:
    """Every product is rounded, as in plain torch; torch.compile knows no such option."""
    return {} if torch.compiler.is_compiling() else {"enable_fp_fusion": False}


def _on(rows: Tensor) -> AbstractContextManager[Any]:
    return torch.cuda.device(rows.device) if rows.is_cuda else nullcontext()
