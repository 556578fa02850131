"""Rows of logits that are read as probabilities, without a softmax of the whole batch."""

from __future__ import annotations

import array_api_compat.torch as xp
import torch
from torch import Tensor

from cactus_rules._arrays import Kernels, Rows, possible
from cactus_rules._walk import row_at


class LogitRows(Rows):
    """Rows `(..., R, V)` of logits as rows of probabilities, ``exp(logit - log-sum-exp)``.

    One log-sum-exp per row is computed once; after that two numbers are gathered for a drafted
    token, and only rows that are asked for become probabilities. Float64, whatever the dtype of the
    logits. A row with a NaN, with +inf, or with nothing but -inf is a bad row: its probabilities
    are NaN where the logit is not finite, and rise with the logits elsewhere.
    """

    def __init__(
        self,
        logits: Tensor,
        normaliser: Tensor | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        """`normaliser (..., R)`: the log-sum-exps where they are known, float64."""
        self.stored = logits
        self.normaliser = log_sum_exp(logits) if normaliser is None else normaliser
        self.kernels = kernels

    def gather(self, index: Tensor) -> Tensor:
        """Probabilities of the tokens `index (..., R)`."""
        logit = torch.take_along_dim(self.stored, index[..., None], -1)[..., 0]
        return torch.exp(logit.double() - self.normaliser)

    def row_at(self, k: Tensor) -> Tensor:
        """Probabilities `(..., V)` of the rows `k (...)`, one for each request."""
        normaliser = torch.take_along_dim(self.normaliser, k[..., None], -1)[..., 0]
        return _probabilities(row_at(xp, self.stored, k), normaliser)

    def whole(self) -> Tensor:
        """Probabilities of all rows: what a rule that reads rows costs."""
        return _probabilities(self.stored, self.normaliser)

    def is_measure(self) -> Tensor:
        """Whether a row has a softmax, `(..., R)`."""
        return torch.isfinite(self.normaliser)

    def first(self, count: int) -> LogitRows:
        """The first `count` rows of each request."""
        return LogitRows(self.stored[..., :count, :], self.normaliser[..., :count], self.kernels)


def softmax(logits: Tensor) -> Tensor:
    """Float64 probabilities of logits `(..., V)`, as `LogitRows` computes them."""
    return _probabilities(logits, log_sum_exp(logits))


def log_sum_exp(logits: Tensor) -> Tensor:
    """log sum exp over the last axis of `(..., R, V)` or `(V,)`, float64 `(..., R)`.

    Exponentials in float32 (float64 for float64 logits), their sum in float64; one row of each
    request at a time, so that no copy of the batch is made. NaN where a row has no finite value.
    """
    if logits.ndim < 2:
        return _log_sum_exp(logits)
    rows = [_log_sum_exp(row) for row in logits.unbind(-2)]
    shape = logits.shape[:-1]
    return torch.stack(rows, -1) if rows else logits.new_zeros(shape, dtype=torch.float64)


def _log_sum_exp(row: Tensor) -> Tensor:
    wide = row if row.dtype == torch.float64 else row.float()
    top = wide.amax(-1, keepdim=True)
    return top[..., 0].double() + (wide - top).exp_().sum(-1, dtype=torch.float64).log()


def _probabilities(rows: Tensor, normaliser: Tensor) -> Tensor:
    probabilities = (rows.double() - normaliser[..., None]).exp_()
    bad = ~torch.isfinite(normaliser)[..., None]
    if not possible(xp, bad):
        return probabilities
    usable = torch.isfinite(rows)
    top = torch.where(usable, rows, -torch.inf).amax(-1, keepdim=True)
    order = torch.where(usable, (rows - top).double().exp(), torch.nan)
    return torch.where(bad, order, probabilities)
