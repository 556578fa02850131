"""What proposes tokens: nothing, or a draft model; and how many tokens are worth proposing.

`Model` is all that is asked of an inference engine, for the draft and for the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

import cactus_rules as cr

from .sampling import Distribution, Sampling, usable

Ids = TypeVar("Ids")
Law = TypeVar("Law")


class Model(Protocol):
    """One model with one sequence in its cache."""

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""

    @property
    def n_ctx(self) -> int:
        """Most tokens that the cache holds."""

    @property
    def length(self) -> int:
        """Number of tokens that the cache holds."""

    def prefill(self, ids: Sequence[int]) -> None:
        """Append `ids` to the cache."""

    def step(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Append `ids` to the cache; row i holds the logits of what follows `ids[i]`."""

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens of the cache."""


@dataclass(frozen=True, slots=True)
class Proposal(Generic[Ids, Law]):
    """Drafted tokens (K,) and the laws (K, V) that they were drawn from; None: one-hot."""

    token_ids: Ids
    probs: Law | None = None


ListProposal: TypeAlias = Proposal[NDArray[np.int64], Distribution]
"""What is proposed where a text is a list of token ids and laws are numpy's."""


class Draft(Protocol):
    """Whatever proposes tokens."""

    def propose(self, tokens: Sequence[int], count: int, step: int) -> ListProposal:
        """Propose at most `count` tokens to follow `tokens`; `step` numbers the target call."""

    def rollback(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""


class NoDraft:
    """Plain decoding: proposes nothing."""

    def propose(self, tokens: Sequence[int], count: int, step: int) -> ListProposal:
        """Propose no token."""
        return Proposal(np.empty(0, np.int64))

    def rollback(self, length: int) -> None:
        """Nothing to take back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDraft:
    """Drafts from a model, for one request.

    Attributes:
        model: the draft model.
        sampling: the request's options, applied to the draft's rows as to the target's.
        n_vocab: the target's vocabulary size; the draft's rows are cut or padded to it.
        seed: the request's seed.
        argmax: draft the most likely token (read as a one-hot draft) instead of drawing one.
    """

    model: Model
    sampling: Sampling
    n_vocab: int
    seed: int
    argmax: bool = False

    def propose(self, tokens: Sequence[int], count: int, step: int) -> ListProposal:
        """Draft up to `count` tokens, fewer where the draft's context ends."""
        text = list(tokens)
        count = min(count, self.model.n_ctx - len(text) + 1)
        if count <= 0:
            return NoDraft().propose(tokens, count, step)
        behind = text[self.model.length :]
        if len(behind) > 2:
            self.model.prefill(behind[:-1])
            del behind[:-1]
        rows: list[Distribution] = []
        for k in range(count):
            row = fit(self.model.step(behind)[-1:], self.n_vocab)
            row = self.sampling.adjust(row, text)
            if not usable(row, greedy=self.sampling.greedy)[0]:
                break  # No law to draw from; whether the target has one here is seen there.
            if self.argmax or self.sampling.greedy:
                token = int(row.argmax())
            else:
                rows.append(self.sampling.distribution(row[0]))
                u = cr.uniforms(self.seed, step, k, cr.Stream.DRAFT)
                token = int(cr.draw(rows[-1], u))
            text.append(token)
            behind = [token]
        ids = np.asarray(text[len(tokens) :], np.int64)
        return Proposal(ids, stack(rows) if rows else None)

    def rollback(self, length: int) -> None:
        """Keep at most `length` tokens in the draft's cache."""
        self.model.rollback(min(length, self.model.length))


@dataclass(slots=True)
class DraftLength:
    """How many tokens to draft next, from the acceptance seen in this request.

    A drafted token counts only if all drafted tokens before it are accepted. Another one is drafted
    while the estimated chance of that is at least `useful`. The estimate is the share of tested
    tokens that were accepted; a round weighs `decay` times as much as the round after it.

    The length is chosen before the draft is drawn, from earlier rounds alone. Every tested token
    therefore keeps the law that the rule gives it. With a lossy rule the length still matters for
    the text: the token after a draft that was accepted whole follows the target itself, and the
    length says where such tokens fall.

    Attributes:
        maximum: most tokens to draft, at least 1.
        adaptive: False drafts `maximum` tokens each time.
        useful: least chance at which a token is drafted.
        decay: weight of a round in relation to the next one.
    """

    maximum: int
    adaptive: bool = True
    useful: float = 0.25
    decay: float = 0.9
    _accepted: float = field(default=4.0, init=False)
    _tested: float = field(default=5.0, init=False)

    def next(self) -> int:
        """Length of the next draft, 1 to `maximum`."""
        rate = self._accepted / self._tested
        if not self.adaptive or rate >= 1:
            return self.maximum
        if rate <= self.useful:
            return 1
        return min(self.maximum, 1 + int(math.log(self.useful) / math.log(rate)))

    def update(self, num_accepted: int, num_draft_tokens: int) -> None:
        """Learn from a round in which `num_accepted` of `num_draft_tokens` were accepted."""
        tested = min(num_accepted + 1, num_draft_tokens)
        self._accepted = self.decay * self._accepted + num_accepted
        self._tested = self.decay * self._tested + tested


def fit(rows: NDArray[np.float32], n_vocab: int) -> NDArray[np.float32]:
    """Cut rows of logits to the first `n_vocab` tokens, or pad them with impossible ones."""
    lacking = n_vocab - rows.shape[-1]
    if lacking <= 0:
        return rows[..., :n_vocab]
    pad = np.full((*rows.shape[:-1], lacking), -np.inf, rows.dtype)
    return np.concatenate([rows, pad], axis=-1)


def stack(rows: Sequence[Distribution]) -> Distribution:
    """Put distributions (V,), or candidate lists (C,) of any lengths, below each other."""
    lists = [row for row in rows if isinstance(row, cr.Sparse)]
    if not lists:
        return np.stack([row for row in rows if not isinstance(row, cr.Sparse)])
    width = max(len(row.ids) for row in lists)
    return cr.Sparse(
        np.stack([_widen(row.ids, width, -1) for row in lists]),
        np.stack([_widen(row.probs, width, 0) for row in lists]),
    )


def _widen(array: NDArray[Any], width: int, value: int) -> NDArray[Any]:
    return np.pad(array, (0, width - len(array)), constant_values=value)
