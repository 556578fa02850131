"""Every claim of the theory table, on a fixed small set of instances."""

from __future__ import annotations

import pytest

from cactus_rules.theory.claim import Claim
from cactus_rules.theory.registry import CLAIMS
from cactus_rules.theory.verify import check


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claim(claim: Claim) -> None:
    result = check(claim, seed=20260, seconds=0.0)
    assert result.ok, f"{claim.statement}\n{result.detail}"
    assert result.instances > 0
