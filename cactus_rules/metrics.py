"""What speculative decoding did, in vLLM's fields, and how far the output may have moved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cactus_rules._positions import Status
from cactus_rules.verification import Verification


@dataclass
class Metrics:
    """Running counts over verifications, of one request or of a whole run.

    The draft acceptance rate leaves the bonus token out, the mean acceptance length counts it, as
    in vLLM.
    """

    num_drafts: int = field(default=0, init=False)
    """Verifications with at least one drafted token."""
    num_draft_tokens: int = field(default=0, init=False)
    num_accepted_tokens: int = field(default=0, init=False)
    num_emitted_tokens: int = field(default=0, init=False)
    num_target_calls: int = field(default=0, init=False)
    one_hot_fallbacks: int = field(default=0, init=False)
    """Draft rows that the safe policy had to read as one-hot."""
    targets_repaired: int = field(default=0, init=False)
    """Target rows that the safe policy had to repair, among those that were looked at."""
    acceptance_histogram: list[int] = field(default_factory=list, init=False)
    """Entry k: drafts of which exactly k tokens were accepted."""
    _num_tested: int = field(default=0, init=False)
    _kl_sum: float | None = field(default=0.0, init=False)
    _tv_sum: float | None = field(default=0.0, init=False)

    def add(self, verification: Verification) -> None:
        """Count one verification, of one request or of a batch.

        Raises:
            ValueError: what `verify` has not returned.
        """
        if not isinstance(verification, Verification):
            raise ValueError(
                "verification must be what verify(...) returned, got "
                f"{type(verification).__name__}: `accept` decides on single tokens, not on drafts"
            )
        length = np.atleast_1d(_host(verification.num_draft_tokens)).ravel()
        accepted = np.atleast_1d(_host(verification.num_accepted)).ravel()
        drafts = length > 0
        self.num_target_calls += len(length)
        self.num_drafts += int(drafts.sum())
        self.num_draft_tokens += int(length.sum())
        self.num_accepted_tokens += int(accepted.sum())
        self.num_emitted_tokens += int((accepted + 1).sum())
        self._num_tested += int(np.minimum(accepted + 1, length).sum())
        for k in accepted[drafts]:
            missing = int(k) + 1 - len(self.acceptance_histogram)
            self.acceptance_histogram.extend([0] * missing)
            self.acceptance_histogram[int(k)] += 1
        status = _host(verification.status)
        self.one_hot_fallbacks += int(np.count_nonzero(status & int(Status.DRAFT_REPAIRED)))
        self.targets_repaired += int(np.count_nonzero(status & int(Status.TARGET_REPAIRED)))
        self._kl_sum = _plus(self._kl_sum, verification.kl_spent)
        self._tv_sum = _plus(self._tv_sum, verification.tv_spent)

    @property
    def num_accepted_tokens_per_pos(self) -> list[int]:
        """Entry k: drafts whose token at position k was accepted."""
        counts = np.cumsum(self.acceptance_histogram[::-1])[::-1]
        return [int(count) for count in counts[1:]]

    @property
    def mean_acceptance_length(self) -> float:
        """1 + accepted tokens per draft: tokens per target call, bonus token included."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0

    @property
    def draft_acceptance_rate(self) -> float:
        """Accepted over drafted tokens; NaN before the first draft."""
        if not self.num_draft_tokens:
            return float("nan")
        return self.num_accepted_tokens / self.num_draft_tokens

    @property
    def tested_acceptance_rate(self) -> float:
        """Accepted over tested tokens; NaN before the first draft.

        Tokens behind a rejection are drafted but not tested. This is the acceptance probability of
        `cactus_rules.cost`.
        """
        return self.num_accepted_tokens / self._num_tested if self._num_tested else float("nan")

    @property
    def kl_spent(self) -> float | None:
        """Mean per emitted token of log+(min(p, cap)/q), in nats.

        In expectation it bounds the mean of KL(output law || target) over the positions from above.
        None if a rule without that property took part.
        """
        return _mean(self._kl_sum, self.num_emitted_tokens)

    @property
    def tv_spent(self) -> float | None:
        """Mean per tested token of min(1, cap/p) - min(1, q/p): an estimate of TV(output, target).

        None if a rule without that property took part.
        """
        return _mean(self._tv_sum, self._num_tested)

    def as_dict(self) -> dict[str, Any]:
        """All figures, ready for JSON."""
        names = (
            "num_drafts",
            "num_draft_tokens",
            "num_accepted_tokens",
            "num_accepted_tokens_per_pos",
            "num_emitted_tokens",
            "num_target_calls",
            "mean_acceptance_length",
            "draft_acceptance_rate",
            "tested_acceptance_rate",
            "acceptance_histogram",
            "kl_spent",
            "tv_spent",
            "one_hot_fallbacks",
            "targets_repaired",
        )
        values = {name: getattr(self, name) for name in names}
        return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in values.items()}


def _host(array: Any) -> np.ndarray:
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def _plus(total: float | None, added: Any) -> float | None:
    return None if total is None or added is None else total + float(_host(added).sum())


def _mean(total: float | None, count: int) -> float | None:
    return None if total is None else total / max(count, 1)
