"""One Triton kernel family for all acceptance rules, which takes a rule's `cap` and `scale`.

The core computes a rule's numbers; the kernels do what touches the vocabulary:

* `clip_within_budget`: the two numbers of `Mentored` for a budget in KL, by a search that reads
  each row pair of the draft a few times.
* `decide`: the accept tests, the stop at the first rejection, and the draw of the last token from
  max(scale q - p, 0). One pass over one row pair per request, split over program instances, and a
  second look at the one block that holds the token.
* `log_sum_exp`: of the rows that a draft uses, so that logits need no softmax copy.
* `uniforms`: Philox 4x32-10, bit for bit the numbers of `cactus_rules.uniforms`.

`cactus_rules.adapters.torch.verify` uses them where they can run. Sums are in float64. Blocks
depend on the vocabulary alone, so that a request gets the same token in any batch.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import array_api_compat.torch as xp
import torch
from torch import Tensor

from cactus_rules._arrays import Rows
from cactus_rules._walk import Last, row_at
from cactus_rules.divergences import KL, Divergence

__all__ = ["FUSED", "Fused", "ProbabilityRows", "log_sum_exp", "unavailable", "uniforms"]


def unavailable(rows: Tensor) -> str | None:
    """Why the kernels cannot run on these rows, or None where they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    if rows.ndim != 3:
        return f"the kernels take rows (B, K+1, V), not {tuple(rows.shape)}"
    from cactus_rules.adapters.kernels import launch

    if not rows.is_cuda and not launch.INTERPRETED:
        return f"the rows are on {rows.device.type} (set TRITON_INTERPRET=1 to try the kernels)"
    return None


class Fused:
    """The kernels in the place of the core's passes over rows: see `cactus_rules._arrays`."""

    def decide(self, draft: Any, target: Any, at: Any, length: Tensor, u: Tensor) -> Last:
        """The walk's accept tests and last draw."""
        from cactus_rules.adapters.kernels import launch

        return launch.decide(draft, target, at, length, u)

    def clip_within_budget(
        self, draft: Any, target: Any, divergence: Divergence, delta: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """The two ends of `Mentored`'s clip, for a budget in KL."""
        from cactus_rules.adapters.kernels import launch

        if not isinstance(divergence, KL):
            return None
        return launch.clip_within_budget(draft, target, delta)


FUSED = Fused()


def log_sum_exp(logits: Tensor, used: Tensor) -> Tensor:
    """log sum exp of the rows `(B, R, V)` where `used (B, R)`, float64 `(B, R)`; NaN elsewhere."""
    from cactus_rules.adapters.kernels import launch

    return launch.log_sum_exp(logits, used)


def uniforms(seeds: Tensor, steps: Tensor, count: int) -> Tensor:
    """Coins and draws `(B, count, 2)` for int64 `seeds` and `steps (B,)`, float64 in [0, 1)."""
    from cactus_rules.adapters.kernels import launch

    return launch.uniforms(seeds, steps, count)


class ProbabilityRows(Rows):
    """Rows `(B, R, V)` of probabilities on which `decide` takes the walk's place."""

    def __init__(self, probabilities: Tensor) -> None:
        """Rows of any float dtype and any strides."""
        self.stored, self.kernels = probabilities, FUSED

    def gather(self, index: Tensor) -> Tensor:
        """Probabilities of the tokens `index (B, R)`."""
        picked: Tensor = torch.take_along_dim(self.stored, index[..., None], -1)
        return picked[..., 0].double()

    def row_at(self, k: Tensor) -> Tensor:
        """The rows `(B, V)` of one position `k (B,)` per request."""
        row: Tensor = row_at(xp, self.stored, k)
        return row

    def whole(self) -> Tensor:
        """All rows, float64."""
        rows: Tensor = self.stored
        return rows.double()

    def is_measure(self) -> Tensor:
        """Whether all entries of a row are finite and >= 0, `(B, R)`."""
        low, high = torch.aminmax(self.stored, dim=-1)
        return (low >= 0) & (high < torch.inf)

    def first(self, count: int) -> ProbabilityRows:
        """The first `count` rows of each request."""
        return ProbabilityRows(self.stored[..., :count, :])
