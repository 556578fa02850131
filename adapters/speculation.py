"""The speculative loop, for any engine: draft, evaluate, verify, take back what was rejected.

Everything here sees token ids and rows of logits only. An engine joins by giving two objects with
the calls of `Model`. Between two rounds both caches lack the last committed token: the target
evaluates it together with the drafted tokens, so that K drafts cost one call and give K + 1 rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import cactus_rules as cr

from .drafts import Draft, DraftLength, ListProposal, Model, NoDraft
from .errors import EngineError
from .sampling import Distribution, Sampling, usable

FinishReason = Literal["stop", "length", "error"]
Observer = Callable[[Distribution | None, Distribution, cr.Verification], object]
"""Called after every target call: the draft's laws (None: one-hot), the target's, the result."""


@dataclass(frozen=True, slots=True)
class Round:
    """The tokens that one target call committed, their log-probabilities, and whether it ended."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason | None


@dataclass(slots=True, kw_only=True)
class Speculation:
    """One request: a rule, sampling options and a seed on a target and a draft.

    Attributes:
        target: the target model; its cache must hold a prefix of the prompt.
        draft: what proposes tokens.
        rule: the acceptance rule.
        sampling: options applied to both models' rows.
        seed: with the number of the target call and the position, names every random number used.
        num_draft_tokens: most tokens drafted for one target call.
        adaptive: adapt the draft length to the acceptance seen.
        observe: called after every target call, for audits of real rows.
        metrics: counts of this request.
    """

    target: Model
    draft: Draft
    rule: cr.Rule
    sampling: Sampling
    seed: int
    num_draft_tokens: int
    adaptive: bool = True
    observe: Observer | None = None
    metrics: cr.Metrics = field(default_factory=cr.Metrics)

    def run(
        self, prompt: Sequence[int], max_tokens: int | None, is_end: Callable[[int], bool]
    ) -> Iterator[Round]:
        """Continue `prompt` by at most `max_tokens` tokens, to a token that `is_end`, or n_ctx.

        Raises:
            EngineError: a row of the target is no law; all tokens before it have been yielded.
        """
        tokens = list(prompt)
        if missing := tokens[self.target.length : -1]:
            self.target.prefill(missing)
        end = self.target.n_ctx + 1
        if max_tokens is not None:
            end = min(end, len(tokens) + max_tokens)
        length = DraftLength(self.num_draft_tokens, self.adaptive)
        for step in itertools.count():
            count = min(length.next(), end - len(tokens) - 1)
            draft: Draft = self.draft if count > 0 else NoDraft()
            proposal = draft.propose(tokens, count, step)
            ids, logprobs, accepted, broken = self._verify(tokens, proposal, step)
            if len(proposal.token_ids):
                length.update(accepted, len(proposal.token_ids))
            ended = next((i for i, token in enumerate(ids) if is_end(token)), None)
            if ended is not None:
                ids, logprobs = ids[: ended + 1], logprobs[: ended + 1]
                broken = None
            tokens += ids
            self.target.rollback(len(tokens) - 1)
            self.draft.rollback(len(tokens) - 1)
            reason: FinishReason | None = None
            if ended is not None:
                reason = "stop"
            elif len(tokens) >= end:
                reason = "length"
            if ids:
                yield Round(ids, logprobs, reason)
            if broken is not None:
                raise EngineError(broken)
            if reason is not None:
                return

    def _verify(
        self, tokens: list[int], proposal: ListProposal, step: int
    ) -> tuple[list[int], list[float], int, str | None]:
        """Evaluate and verify a proposal.

        Returns the tokens to commit, their log-probabilities, the number of accepted ones, and what
        is wrong with the target's row after the tokens, if it is no law.
        """
        drafted = proposal.token_ids.tolist()
        rows = self.target.step([tokens[-1], *drafted])
        rows = self.sampling.adjust(rows, tokens + drafted)
        target = self.sampling.distribution(rows)
        result = cr.verify(
            proposal.probs,
            target,
            proposal.token_ids,
            self.rule,
            seeds=self.seed,
            steps=step,
            policy="safe",
        )
        self.metrics.add(result)
        if self.observe is not None:
            self.observe(proposal.probs, target, result)
        accepted = int(result.num_accepted)
        emitted, broken = slice(0, accepted + 1), None
        # A filter may hide a bad row from the verifier, so the logits are looked at too.
        bad = (np.asarray(result.status) & int(cr.Status.TARGET_REPAIRED)) > 0
        bad = (bad | ~usable(rows, greedy=self.sampling.greedy))[emitted]
        if bad.any():
            at = int(bad.argmax())
            emitted, broken = slice(0, at), _complaint(rows[at], len(tokens) + at)
        ids, logprobs = result.token_ids[emitted].tolist(), result.logprobs[emitted].tolist()
        return ids, logprobs, accepted, broken


def _complaint(row: NDArray[np.float32], position: int) -> str:
    if np.isnan(row).any():
        what = "holds NaN"
    elif not np.isfinite(row).any():
        what = "has no finite entry, so that every token is excluded"
    else:
        what = "makes no law"
    return (
        f"target: its row of logits for position {position} of the text (prompt included) {what}; "
        "look at logits_processor and logit_bias, and without them at the model itself. What was "
        "generated before is in the `completion` of the Generation that generate() returns"
    )
