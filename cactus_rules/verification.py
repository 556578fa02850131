"""`verify`: a whole draft against the target's rows, batched, in one call."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cactus_rules import _validate
from cactus_rules._arrays import (
    Array,
    Namespace,
    asarray,
    float64,
    gather,
    is_kind,
    is_numpy,
    numpy_namespace,
    quiet,
)
from cactus_rules._block import block_walk
from cactus_rules._walk import Walk, arange, before, telemetry, token_walk
from cactus_rules.random import Stream
from cactus_rules.random import uniforms as philox_uniforms
from cactus_rules.rules import Rule
from cactus_rules.rules.base import check_rule
from cactus_rules.sparse import Sparse, align, emptied


@dataclass(frozen=True)
class Verification:
    """What `verify` returns. Leading axes `(...)` are the requests; `v[i]` is one of them."""

    token_ids: Array
    """int64 `(..., K+1)`: the accepted tokens, then the recovered or bonus token, then -1."""
    num_accepted: Array
    """int64 `(...)`: accepted draft tokens, without the recovered or bonus token."""
    num_draft_tokens: Array
    """int64 `(...)`: drafted tokens, those before the first -1."""
    logprobs: Array
    """float64 `(..., K+1)`: log of the target row at each emitted token; NaN where padded."""
    status: Array
    """int64 `(..., K+1)`: `Status` bits, what the safe policy repaired at each visited position."""
    kl_spent: Array | None
    """float64 `(...)`: sum over emitted tokens of log+(min(p, cap)/q). Its mean per emitted token
    bounds KL(output law || target) in expectation. None for rules without that property, and for
    the block walk."""
    tv_spent: Array | None
    """float64 `(...)`: sum over tested tokens of min(1, cap/p) - min(1, q/p). Its mean per tested
    token estimates TV(output law, target). None as `kl_spent`."""

    def __getitem__(self, request: Any) -> Verification:
        """One request (or a slice of them) of a batch."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        at = (*request, ...) if isinstance(request, tuple) else (request, ...)
        return Verification(**{k: None if v is None else v[at] for k, v in fields.items()})


def verify(
    draft_probs: Array | Sparse | None,
    target_probs: Array | Sparse,
    draft_token_ids: Array,
    rule: Rule,
    *,
    uniforms: Array | None = None,
    rng: np.random.Generator | None = None,
    seeds: Array | None = None,
    steps: Array | None = None,
    policy: str | None = None,
    walk: Literal["token", "block"] = "token",
) -> Verification:
    """Accept a prefix of each draft, and emit one more token: recovered after a rejection or bonus.

    Args:
        draft_probs: `(..., K, V)`, the laws that the drafted tokens were really drawn from, after
            all sampling filters (p); or None for one-hot drafts (n-gram, argmax). Arrays of any
            library; nested lists of floats count as numpy arrays.
        target_probs: `(..., K+1, V)`, the target's laws at the same positions and one more (q).
        draft_token_ids: integers `(..., K)`; -1 pads a shorter draft. Rows past the first -1 are
            never read. K = 0 draws the bonus token.
        rule: an acceptance rule; its parameters may be arrays `(...)`, one value per request.
        uniforms: `(..., K+1, 2)` in [0, 1): [k, 0] is the coin of position k, [k, 1] the draw from
            its residual; the bonus token of a draft of length L uses [L, 1].
        rng: draws the uniforms.
        seeds, steps: integers `(...)`: a request and its target call, which name the uniforms (see
            `cactus_rules.uniforms`): the same request gets the same tokens in any slot or batch.
        policy: "strict" (default for numpy and `Sparse`) raises ValueError for bad rows and ids;
            "safe" (default for other arrays) repairs them and says so in `status`. It never emits a
            token outside the vocabulary, or one with target probability 0 from a sane row.
        walk: "token" tests token after token. "block" (block verification [1]) tests prefixes by
            their joint likelihood ratio: the emitted tokens, continued by the rule's law, have the
            same law, and it accepts at least as many. For rules whose law does not depend on the
            drafted token; reads all rows; no `kl_spent` and `tv_spent`.

    Returns:
        A `Verification`.

    Raises:
        ValueError: shapes that do not fit, not exactly one source of randomness, and bad data under
            "strict".

    [1] arXiv 2403.10444 (Sun et al.), Algorithm 2.
    """
    check_rule(rule)
    if walk not in ("token", "block"):
        raise ValueError(f"walk must be 'token' or 'block', got {walk!r}")
    if walk == "block" and draft_probs is not None and not rule.fixed_law:
        raise ValueError(
            "walk='block' needs a rule whose law does not depend on the drafted token, such as "
            f"Lossless or Mentored, not {type(rule).__name__}: use walk='token'"
        )
    ids, given = None, draft_token_ids
    if isinstance(target_probs, Sparse) or isinstance(draft_probs, Sparse):
        given = _validate.as_array(numpy_namespace, given, None, "draft_token_ids")
        draft_probs, target_probs, draft_token_ids, ids = _aligned(draft_probs, target_probs, given)
    xp, draft_probs, target_probs = _validate.as_rows(
        draft_probs, target_probs, ("draft_probs", "target_probs")
    )
    tokens = _validate.as_array(xp, draft_token_ids, target_probs, "draft_token_ids")
    _check_shapes(xp, draft_probs, target_probs, tokens)
    rule.check_shapes(tuple(tokens.shape[:-1]), tuple(tokens.shape), "request")
    tokens = xp.astype(tokens, xp.int64)
    policy = _validate.check_policy(policy, "strict" if is_numpy(xp) else "safe")
    u = _uniforms(xp, tokens, target_probs, uniforms, rng, seeds, steps, policy)
    length = xp.sum(xp.astype(before(xp, tokens == -1), xp.int64), axis=-1)
    if policy == "strict":
        named = tokens if ids is None else np.asarray(given)
        _check_data(xp, draft_probs, target_probs, tokens, length, named, ids)
    elif ids is not None:
        target_probs = emptied(target_probs)
    draft = None if rule.ignores_draft else draft_probs
    with quiet(xp):
        take = token_walk if walk == "token" else block_walk
        walked = take(xp, rule.aligned(), draft, target_probs, tokens, length, u)
        return _finish(xp, rule.metered and walk == "token", walked, ids)


def _finish(xp: Namespace, metered: bool, walk: Walk, ids: np.ndarray | None) -> Verification:
    """Log-probabilities, telemetry, and ids for candidate lists."""
    emitted = walk.token_ids >= 0
    logprobs = xp.where(emitted, xp.log(walk.q_emitted), np.nan + 0 * walk.q_emitted)
    kl_spent, tv_spent = telemetry(xp, walk) if metered else (None, None)
    token_ids = walk.token_ids
    if ids is not None:
        named = np.take_along_axis(ids, np.maximum(token_ids, 0)[..., None], axis=-1)[..., 0]
        token_ids = np.where(emitted, named, -1)
    return Verification(
        token_ids, walk.num_accepted, walk.length, logprobs, walk.status, kl_spent, tv_spent
    )


def _uniforms(
    xp: Namespace,
    tokens: Array,
    like: Array,
    uniforms: Array | None,
    rng: np.random.Generator | None,
    seeds: Array | None,
    steps: Array | None,
    policy: str,
) -> Array:
    """The uniforms `(..., K+1, 2)` from whichever source was given."""
    shape = (*tokens.shape[:-1], tokens.shape[-1] + 1, 2)
    if (uniforms is not None) + (rng is not None) + (seeds is not None) != 1:
        raise ValueError("give exactly one of uniforms=, rng=, or seeds= with steps=")
    if (seeds is None) != (steps is None):
        raise ValueError(
            "seeds and steps go together: a request's seed and its target call's number"
        )
    if uniforms is not None:
        given = _validate.as_array(xp, uniforms, like, "uniforms")
        if tuple(given.shape) != shape:
            raise ValueError(
                f"uniforms must have shape (..., K+1, 2) = {shape}, got {tuple(given.shape)}"
            )
        if policy == "strict":
            _validate.check_uniforms(xp, given)
        return float64(xp, given)
    if rng is not None:
        _validate.check_generator(rng)
        return asarray(xp, rng.random(shape), like)
    k = arange(xp, tokens.shape[-1] + 1, tokens)
    seed, step = (
        _column(xp, value, like, shape[:-2], name)
        for name, value in (("seeds", seeds), ("steps", steps))
    )
    return xp.stack(
        [philox_uniforms(seed, step, k, s) for s in (Stream.COIN, Stream.DRAW)], axis=-1
    )


def _column(xp: Namespace, value: Any, like: Array, batch: tuple[int, ...], name: str) -> Array:
    """Integers `(...)` as `(..., 1)`, to meet the positions."""
    if isinstance(value, int) and value >= 2**63:
        value -= 2**64
    array = _validate.as_array(xp, value, like, name)
    if not is_kind(xp, array, "integral"):
        raise ValueError(f"{name} must hold integers, got dtype {array.dtype}: one per request")
    _validate.check_fits(name, tuple(array.shape), batch, "request")
    return xp.broadcast_to(array, batch)[..., None]


def _check_shapes(xp: Namespace, draft: Array | None, target: Array, tokens: Array) -> None:
    if not is_kind(xp, tokens, "integral") or tokens.ndim == 0:
        raise ValueError(
            f"draft_token_ids must be integers (..., K), got {tokens.dtype} {tuple(tokens.shape)}"
        )
    *batch, k = tokens.shape
    if target.ndim < 2 or tuple(target.shape[:-1]) != (*batch, k + 1):
        raise ValueError(
            f"target_probs {tuple(target.shape)} must be (..., K+1, V) = {(*batch, k + 1)} + (V,) "
            f"for draft_token_ids {tuple(tokens.shape)}: one row per drafted token and one more"
        )
    if draft is not None and tuple(draft.shape) != (*batch, k, target.shape[-1]):
        raise ValueError(
            f"draft_probs {tuple(draft.shape)} must be (..., K, V) = "
            f"{(*batch, k, target.shape[-1])}: pad the smaller vocabulary with zeros"
        )
    for name, rows in (("draft_probs", draft), ("target_probs", target)):
        if rows is not None and not is_kind(xp, rows, "real floating"):
            raise ValueError(f"{name} must hold floats (probabilities), got dtype {rows.dtype}")


def _check_data(
    xp: Namespace,
    draft: Array | None,
    target: Array,
    tokens: Array,
    length: Array,
    named: Array,
    ids: np.ndarray | None,
) -> None:
    """Strict checks; `named` are the tokens as given, `ids` the columns of candidate lists."""
    k = tokens.shape[-1]
    used = arange(xp, k, tokens) < length[..., None]
    used_rows = arange(xp, k + 1, tokens) <= length[..., None]
    width = target.shape[-1] if ids is None else None
    _validate.check_tokens(xp, named, width, used, "draft_token_ids")
    _validate.check_rows(xp, target, "target_probs", used_rows, ids)
    if draft is not None and k > 0:
        _validate.check_rows(xp, draft, "draft_probs", used, ids)
        index = xp.where(used, tokens, xp.zeros_like(tokens))
        _validate.check_drafted(xp, gather(xp, draft, index), named, used, "draft_probs")


def _aligned(
    draft: Array | Sparse | None, target: Array | Sparse, tokens: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray]:
    """Candidate lists as dense rows over their common ids, and the drafted tokens as columns."""
    if not isinstance(target, Sparse) or not (draft is None or isinstance(draft, Sparse)):
        raise ValueError(
            "draft_probs and target_probs must both be Sparse or both dense: use Sparse.from_dense"
        )
    if target.shape[:-1] != (*tokens.shape[:-1], tokens.shape[-1] + 1):
        raise ValueError(
            f"target_probs {target.shape} must be (..., K+1, C) for draft_token_ids {tokens.shape}"
        )
    if draft is not None:
        if draft.shape[:-1] != tokens.shape:
            raise ValueError(
                f"draft_probs {draft.shape} must be (..., K, C) for draft_token_ids {tokens.shape}"
            )
        empty = (*tokens.shape[:-1], 1, draft.shape[-1])
        draft = Sparse(
            np.concatenate([draft.ids, np.full(empty, -1)], axis=-2),
            np.concatenate([draft.probs, np.zeros(empty, draft.probs.dtype)], axis=-2),
        )
    none = np.full((*tokens.shape[:-1], 1), -1)
    ids, p, q, columns = align(draft, target, np.concatenate([tokens, none], axis=-1))
    columns = np.where(tokens < -1, ids.shape[-1], columns[..., :-1])
    return None if p is None else p[..., :-1, :], q, columns, ids
