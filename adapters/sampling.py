"""The sampling options of one request, and the rows of probabilities that they make of logits.

The same options are applied to the draft's and to the target's rows, each with the true prefix of
its position: the tokens so far and the drafted tokens before it. What comes out is the distribution
that tokens are really drawn from, which is what an acceptance rule must be given.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

import cactus_rules as cr
from cactus_rules._validate import is_integer
from cactus_rules.warp import check_options

from .values import check_callable, check_integer, check_number

_NUMBERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)

LogitsProcessor = Callable[[NDArray[np.int64], NDArray[np.float32]], Any]
Distribution = NDArray[np.floating[Any]] | cr.Sparse


class SamplingOptions(TypedDict, total=False):
    """Keyword arguments that make a `Sampling`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    penalty_last_n: int
    logit_bias: Mapping[int, float]
    logits_processor: LogitsProcessor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a token is drawn from logits.

    Order of application: logit bias, penalties, logits processor, temperature, top-k, top-p, min-p.

    Attributes:
        temperature: divides the logits; 0 takes the most likely token.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of tokens with at least this mass; 1 keeps all.
        min_p: keep tokens with at least this fraction of the largest probability; 0 keeps all.
        repetition_penalty: divides positive and multiplies negative logits of tokens seen before.
        frequency_penalty: subtracted from a logit once per earlier occurrence of its token.
        presence_penalty: subtracted from a logit if its token occurred before.
        penalty_last_n: how many of the last tokens (prompt included) the penalties look at; -1 for
            all, 0 for none.
        logit_bias: added to the logits of these token ids; -inf forbids a token.
        logits_processor: called with (prefix ids, row of logits); returns the row to use.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logits_processor: LogitsProcessor | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for name in _NUMBERS:
            check_number(name, getattr(self, name))
        check_integer("penalty_last_n", self.penalty_last_n, -1, remedy=" (-1 looks at all tokens)")
        check_callable("logits_processor", self.logits_processor)
        if not isinstance(self.logit_bias, Mapping):
            raise ValueError(
                f"logit_bias={reprlib.repr(self.logit_bias)} must map token ids to numbers, for "
                "example {13: -5.0}"
            )
        check_options(self.temperature, self.top_k, self.top_p, self.min_p)
        penalty = self.repetition_penalty
        _require("repetition_penalty", penalty, 0 < penalty < math.inf, "finite, > 0 (1 is off)")
        for name in ("frequency_penalty", "presence_penalty"):
            value = getattr(self, name)
            _require(name, value, math.isfinite(value), "finite (0 is off)")
        for token, bias in self.logit_bias.items():
            name = f"logit_bias[{token!r}]"
            check_number(name, bias)
            if not is_integer(token):
                raise ValueError(f"{name}={bias!r}: {token!r} must be a token id (int)")
            _require(name, bias, bias < math.inf and token >= 0, "finite or -inf, for an id >= 0")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0

    def check_vocabulary(self, n_vocab: int) -> None:
        """Raise `ValueError` if an option names a token id of `n_vocab` or more."""
        for token, bias in self.logit_bias.items():
            name = f"logit_bias[{token}]"
            _require(name, bias, token < n_vocab, f"for a token id below {n_vocab}")

    def adjust(self, rows: NDArray[np.float32], text: Sequence[int]) -> NDArray[np.float32]:
        """Apply bias, penalties and processor to rows of logits (n, V).

        The last row follows all of `text`, the one before it all but the last token, and so on.
        """
        if not (self.logit_bias or self._penalises or self.logits_processor):
            return rows
        first = len(text) - len(rows) + 1
        return np.stack([self._adjust(row, text[: first + i]) for i, row in enumerate(rows)])

    def _adjust(self, logits: NDArray[np.float32], prefix: Sequence[int]) -> NDArray[np.float32]:
        row = logits.copy()
        if self.logit_bias:
            ids = np.fromiter(self.logit_bias.keys(), np.intp)
            row[ids] += np.fromiter(self.logit_bias.values(), row.dtype)
        if self._penalises:
            self._penalise(row, prefix)
        if self.logits_processor is not None:
            row = np.asarray(self.logits_processor(np.asarray(prefix, np.int64), row), row.dtype)
            if row.shape != logits.shape:
                raise ValueError(
                    f"logits_processor returned shape {row.shape} for a row of {logits.shape}; "
                    "it must return the row that it was given, changed"
                )
        return row

    def distribution(self, logits: NDArray[np.float32]) -> Distribution:
        """Probabilities of adjusted logits (..., V): a candidate list where a filter is on."""
        if self.greedy or self.top_k > 0 or self.top_p < 1 or self.min_p > 0:
            make: Callable[..., Distribution] = cr.candidates
        else:
            make = cr.warp
        return make(
            logits,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
        )

    @property
    def _penalises(self) -> bool:
        return self.penalty_last_n != 0 and (
            self.repetition_penalty != 1
            or self.frequency_penalty != 0
            or self.presence_penalty != 0
        )

    def _penalise(self, row: NDArray[np.float32], prefix: Sequence[int]) -> None:
        window = prefix if self.penalty_last_n < 0 else prefix[-self.penalty_last_n :]
        ids, counts = np.unique(np.asarray(window, np.intp), return_counts=True)
        seen, scale = row[ids], self.repetition_penalty
        seen = np.where(seen > 0, seen / scale, seen * scale)
        row[ids] = seen - counts * self.frequency_penalty - self.presence_penalty


def usable(rows: NDArray[np.floating[Any]], *, greedy: bool) -> NDArray[np.bool_]:
    """Which rows of logits `(n, V)` make a law: no NaN, one finite entry; +inf only if `greedy`."""
    peak = np.asarray(rows.max(axis=-1))
    unusable: NDArray[np.bool_] = np.isnan(peak) | (peak == -np.inf)
    if not greedy:
        unusable |= peak == np.inf
    return np.logical_not(unusable)


def _require(name: str, value: object, holds: bool, requirement: str) -> None:
    if not holds:
        raise ValueError(f"{name}={value!r} must be {requirement}")
