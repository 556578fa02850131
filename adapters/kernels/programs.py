# mypy: ignore-errors
"""The Triton programs. Notation: q target, p draft, n the drafted token at the stop.

Kinds of weights, of which one becomes the law of the last token:
0 max(scale q - p, 0); 1 the same with the draft read as one-hot at n; 2 q without n; 3 q.
"""

from __future__ import annotations

import triton
import triton.language as tl

_INF = tl.constexpr(float("inf"))


@triton.jit
def _probability(stored, normaliser, LOGITS: tl.constexpr):
    """Stored entries as float64 probabilities."""
    wide = stored
    if stored.dtype != tl.float64:
        wide = stored.to(tl.float32).to(tl.float64)
    if LOGITS:
        wide = tl.exp(wide - normaliser)
    return wide


@triton.jit
def _stop(b, length, p_n_ptr, cap_ptr, coin_ptr, K, K_PAD: tl.constexpr):
    """The accept tests: the first position that is not accepted, or the draft's length."""
    k = tl.arange(0, K_PAD)
    drafted = k < length
    at = b * K + k
    p_n = tl.load(p_n_ptr + at, mask=drafted, other=1.0)
    cap = tl.load(cap_ptr + at, mask=drafted, other=0.0)
    coin = tl.load(coin_ptr + b * (K + 1) + k, mask=drafted, other=0.0)
    rejected = drafted & (coin * p_n >= cap)
    return tl.min(tl.where(rejected, k.to(tl.int64), length), axis=0)


@triton.jit
def _weights(q, p, ids, scale, floor, floor_id, HAS_FLOOR: tl.constexpr):
    """max(scale q - p, 0) on the tokens above the floor."""
    surplus = tl.where(scale == _INF, q, tl.where(scale == _INF, 1.0, scale) * q - p)
    weights = tl.where(surplus > 0, surplus, 0.0)
    if HAS_FLOOR:
        weights = tl.where((q > floor) | ((q == floor) & (ids <= floor_id)), weights, 0.0)
    return weights


@triton.jit
def _one_hot(ids, n):
    return tl.where(ids == n, 1.0, 0.0).to(tl.float64)


@triton.jit
def partial_sums(
    draft_ptr,
    target_ptr,
    draft_normaliser_ptr,
    target_normaliser_ptr,
    p_n_ptr,
    cap_ptr,
    scale_ptr,
    floor_ptr,
    floor_id_ptr,
    token_ptr,
    length_ptr,
    coin_ptr,
    sums_ptr,
    best_ptr,
    best_id_ptr,
    bad_ptr,
    stop_ptr,
    draft_b,
    draft_k,
    draft_v,
    target_b,
    target_k,
    target_v,
    K,
    V,
    HAS_DRAFT: tl.constexpr,
    HAS_FLOOR: tl.constexpr,
    LOGITS: tl.constexpr,
    K_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One block of one request's row pair at the stop: the four sums, its argmax, bad entries."""
    b = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1).to(tl.int64)
    length = tl.load(length_ptr + b)
    stop = _stop(b, length, p_n_ptr, cap_ptr, coin_ptr, K, K_PAD)
    tested = tl.maximum(tl.minimum(stop, K - 1), 0)
    at = b * K + tested
    ids = block * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    inside = ids < V
    stored = tl.load(
        target_ptr + b * target_b + stop * target_k + ids * target_v, mask=inside, other=0.0
    )
    normaliser = 0.0
    if LOGITS:
        normaliser = tl.load(target_normaliser_ptr + b * (K + 1) + stop)
    q = tl.where(inside, _probability(stored, normaliser, LOGITS), 0.0)
    score = _probability(stored, 0.0, False)
    usable = inside & (score < _INF) & (score > -_INF)
    if not LOGITS:
        usable = usable & (score >= 0)
    q_bad = tl.sum(tl.where((q >= 0) & (q < _INF), 0, 1), axis=0) > 0

    n = tl.load(token_ptr + at)
    scale = tl.load(scale_ptr + at)
    floor = 0.0
    floor_id = n
    if HAS_FLOOR:
        floor = tl.load(floor_ptr + at)
        floor_id = tl.load(floor_id_ptr + at)
    hot = _one_hot(ids, n)
    alone = tl.sum(_weights(q, hot, ids, scale, floor, floor_id, HAS_FLOOR), axis=0)
    residual = alone
    p_bad = q_bad & (stop < 0)
    if HAS_DRAFT:
        normaliser = 0.0
        if LOGITS:
            normaliser = tl.load(draft_normaliser_ptr + at)
        reads = ids < tl.where(stop < length, V, 0)
        stored = tl.load(
            draft_ptr + b * draft_b + tested * draft_k + ids * draft_v, mask=reads, other=0.0
        )
        p = tl.where(reads, _probability(stored, normaliser, LOGITS), 0.0)
        p_bad = tl.sum(tl.where((p >= 0) & (p < _INF), 0, 1), axis=0) > 0
        residual = tl.sum(_weights(q, p, ids, scale, floor, floor_id, HAS_FLOOR), axis=0)
    without = tl.sum(tl.where(ids == n, 0.0, q), axis=0)

    at = b * tl.num_programs(1) + block
    tl.store(sums_ptr + 4 * at, residual)
    tl.store(sums_ptr + 4 * at + 1, alone)
    tl.store(sums_ptr + 4 * at + 2, without)
    tl.store(sums_ptr + 4 * at + 3, tl.sum(q, axis=0))
    best = tl.max(tl.where(usable, score, -_INF), axis=0)
    tl.store(best_ptr + at, best)
    tl.store(best_id_ptr + at, tl.min(tl.where(usable & (score == best), ids, V), axis=0))
    tl.store(bad_ptr + at, tl.where(q_bad, 2, 0) + tl.where(p_bad, 1, 0))
    tl.store(stop_ptr + b, stop)


@triton.jit
def draw(
    draft_ptr,
    target_ptr,
    draft_normaliser_ptr,
    target_normaliser_ptr,
    scale_ptr,
    floor_ptr,
    floor_id_ptr,
    token_ptr,
    flags_ptr,
    length_ptr,
    draw_ptr,
    sums_ptr,
    best_ptr,
    best_id_ptr,
    bad_ptr,
    stop_ptr,
    last_ptr,
    q_last_ptr,
    status_ptr,
    draft_b,
    draft_k,
    draft_v,
    target_b,
    target_k,
    target_v,
    K,
    V,
    BLOCKS,
    HAS_DRAFT: tl.constexpr,
    HAS_FLOOR: tl.constexpr,
    LOGITS: tl.constexpr,
    BLOCKS_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The last token of one request: choose the kind of weights, the block, the token in it.

    Bits of `flags`: 1 read the draft as one-hot, 2 the token is outside the vocabulary.
    """
    b = tl.program_id(0).to(tl.int64)
    length = tl.load(length_ptr + b)
    stop = tl.load(stop_ptr + b)
    tested = tl.maximum(tl.minimum(stop, K - 1), 0)
    at = b * K + tested
    flags = tl.load(flags_ptr + at)
    unreduced = (stop >= length) | ((flags & 2) > 0)

    blocks = tl.arange(0, BLOCKS_PAD)
    known = blocks < BLOCKS
    of = b * BLOCKS + blocks
    residual = tl.load(sums_ptr + 4 * of, mask=known, other=0.0)
    alone = tl.load(sums_ptr + 4 * of + 1, mask=known, other=0.0)
    without = tl.load(sums_ptr + 4 * of + 2, mask=known, other=0.0)
    whole = tl.load(sums_ptr + 4 * of + 3, mask=known, other=0.0)
    bad = tl.load(bad_ptr + of, mask=known, other=0)
    p_bad = ((flags & 1) > 0) | (tl.max(bad & 1, axis=0) > 0)
    q_bad = (tl.max(bad, axis=0) > 1) | ~(tl.sum(whole, axis=0) > 0)

    kind = tl.where(p_bad, 1, 0)
    sums = tl.where(p_bad, alone, residual)
    empty = tl.sum(sums, axis=0) == 0
    kind = tl.where(empty, 2, kind)
    sums = tl.where(empty, without, sums)
    keep = (tl.sum(sums, axis=0) > 0) & (unreduced == 0)
    kind = tl.where(keep, kind, 3)
    sums = tl.where(keep, sums, whole)

    reached = tl.cumsum(sums, axis=0)
    bar = tl.load(draw_ptr + b * (K + 1) + stop) * tl.max(tl.where(known, reached, 0.0), axis=0)
    holds = known & (sums > 0)
    final = tl.max(tl.where(holds, blocks, 0), axis=0)
    chosen = tl.min(tl.where(holds & (reached > bar), blocks, final), axis=0)
    before = tl.sum(tl.where(blocks == chosen - 1, reached, 0.0), axis=0)

    ids = chosen.to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    inside = ids < V
    row = target_ptr + b * target_b + stop * target_k
    normaliser = 0.0
    if LOGITS:
        normaliser = tl.load(target_normaliser_ptr + b * (K + 1) + stop)
    stored = tl.load(row + ids * target_v, mask=inside, other=0.0)
    q = tl.where(inside, _probability(stored, normaliser, LOGITS), 0.0)
    n = tl.load(token_ptr + at)
    scale = tl.load(scale_ptr + at)
    floor = 0.0
    floor_id = n
    if HAS_FLOOR:
        floor = tl.load(floor_ptr + at)
        floor_id = tl.load(floor_id_ptr + at)
    p = _one_hot(ids, n)
    if HAS_DRAFT:
        draft_normaliser = 0.0
        if LOGITS:
            draft_normaliser = tl.load(draft_normaliser_ptr + at)
        reads = ids < tl.where(kind == 0, V, 0)
        stored = tl.load(
            draft_ptr + b * draft_b + tested * draft_k + ids * draft_v, mask=reads, other=0.0
        )
        p = tl.where(kind == 0, _probability(stored, draft_normaliser, LOGITS), p)
    weights = _weights(q, p, ids, scale, floor, floor_id, HAS_FLOOR)
    weights = tl.where(kind == 2, tl.where(ids == n, 0.0, q), weights)
    weights = tl.where(kind == 3, q, weights)
    weights = tl.where(inside, weights, 0.0)
    within = before + tl.cumsum(weights, axis=0)
    holds = weights > 0
    token = tl.max(tl.where(holds, ids, 0), axis=0)
    token = tl.min(tl.where(holds & (within > bar), ids, token), axis=0)

    best = tl.load(best_ptr + of, mask=known, other=-_INF)
    top = tl.max(best, axis=0)
    best_id = tl.load(best_id_ptr + of, mask=known, other=V)
    best_id = tl.min(tl.where(known & (best == top), best_id, V), axis=0)
    token = tl.where(q_bad, tl.where(best_id < V, best_id, 0), token)
    q_last = _probability(tl.load(row + token * target_v), normaliser, LOGITS)
    if LOGITS:
        # Of a row without a softmax the best finite logit counts as all.
        q_last = tl.where(q_bad & (best_id < V), 1.0, q_last)
    tl.store(last_ptr + b, token)
    tl.store(q_last_ptr + b, q_last)
    repaired = 0
    if HAS_DRAFT:
        repaired = tl.where(p_bad & (unreduced == 0), 1, 0)
    tl.store(status_ptr + b, tl.where(q_bad, 4, repaired).to(tl.int64))
