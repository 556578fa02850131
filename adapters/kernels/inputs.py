# mypy: ignore-errors
"""The Triton programs that prepare what `programs` takes: log-sum-exps and uniform numbers."""

from __future__ import annotations

import triton
import triton.language as tl

_INF = tl.constexpr(float("inf"))


@triton.jit
def partial_log_sum_exp(
    logits_ptr,
    used_ptr,
    peaks_ptr,
    sums_ptr,
    stride_b,
    stride_r,
    stride_v,
    R,
    V,
    BLOCK: tl.constexpr,
):
    """Of one block of one row: its maximum, and the sum of exponentials below it."""
    b = tl.program_id(0).to(tl.int64) // R
    r = tl.program_id(0).to(tl.int64) % R
    at = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    ids = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    inside = ids < tl.where(tl.load(used_ptr + b * R + r) > 0, V, 0)
    stored = tl.load(
        logits_ptr + b * stride_b + r * stride_r + ids * stride_v,
        mask=inside,
        other=-float("inf"),
    )
    if stored.dtype != tl.float64:
        stored = stored.to(tl.float32)
    peak = tl.max(stored, axis=0)
    shift = tl.where(peak == -_INF, 0.0, peak)
    terms = tl.exp(stored - shift)
    tl.store(peaks_ptr + at, peak.to(tl.float64))
    tl.store(sums_ptr + at, tl.sum(terms.to(tl.float64), axis=0))


@triton.jit
def philox_uniforms(seeds_ptr, steps_ptr, out_ptr, COUNT, total, BLOCK: tl.constexpr):
    """u = (x >> 11) * 2^-53 from Philox 4x32-10 with key seed and counter (step, k, stream)."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    inside = i < total
    b = i // (2 * COUNT)
    k = (i // 2) % COUNT
    seed = tl.load(seeds_ptr + b, mask=inside, other=0)
    step = tl.load(steps_ptr + b, mask=inside, other=0)
    low = (step & 0xFFFFFFFF).to(tl.uint32)
    high = ((step >> 32) & 0xFFFFFFFF).to(tl.uint32)
    w0, w1, _, _ = tl.philox(seed, low, high, k.to(tl.uint32), (1 + i % 2).to(tl.uint32))
    bits = (w1.to(tl.int64) << 21) | (w0.to(tl.int64) >> 11)
    tl.store(out_ptr + i, bits.to(tl.float64) * 1.1102230246251565e-16, mask=inside)
