"""Sample and match: draw from the target, keep the draft if it is the same token."""

from __future__ import annotations

from dataclasses import dataclass

from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule


@dataclass(frozen=True)
class SampleMatch(Rule):
    """Accept with probability q_n, whatever the draft thought; on rejection draw from q without n.

    In law this is "draw t from q; accept n iff t = n, else emit t", the test of llama.cpp and
    mlx-lm. It keeps the target's law exactly and accepts least of all lossless rules: sum p_n q_n.
    With a one-hot draft it is `Lossless`.
    """

    name = "sample-match"
    fixed_law = False
    ignores_draft = True
    metered = True

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = q_n, scale = 1, with p read as one-hot at n."""
        return Numbers(at.q_n, 1.0)

    @property
    def guarantee(self) -> Guarantee:
        """The output law is the target's."""
        return Guarantee("output", "every divergence", 0.0)
