"""Instances on which a long run of the verifier once caught the core: rare, so they are kept."""

from __future__ import annotations

import numpy as np
import pytest

import cactus_rules as cr
from cactus_rules.theory import oracles

# The search for the clip's ends took its first tiny step for the answer and stayed lossless.
STAYED_LOSSLESS = [
    (
        cr.Mentored(0.0017483595954495678, "chi2"),
        [0.148421947176569, 2.7961871736099492e-06, 0.14253112294213469, 0.045114198939018454,
         0.6639299347551043],
        [0.0011918929543798782, 0.02130178933264816, 0.12362267009982944, 0.12846197521178424,
         0.7254216724013584],
    ),
    (
        cr.Mentored(0.0010084268416676945, "tv"),
        [0.11330940895770393, 0.11215884308043743, 0.22790641946202275, 0.11426265328185249,
         0.11691054533712908, 0.31545212988085436],
        [1 / 9, 1 / 9, 2 / 9, 1 / 9, 1 / 9, 3 / 9],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "p", "q"), STAYED_LOSSLESS, ids=["chi2", "tv"])
def test_mentored_uses_its_budget(rule: cr.Mentored, p: list[float], q: list[float]) -> None:
    name = cr.divergences.get(rule.divergence).name
    spent = oracles.divergence(name, cr.output_law(p, q, rule), np.array(q))
    assert rule.delta * (1 - 1e-9) <= spent <= rule.delta * (1 + 1e-12)


def test_band_uses_its_width() -> None:
    p = [7.74409531e-04, 7.51506436e-03, 7.74426519e-05, 5.74378725e-02, 7.63667274e-02,
         7.11988009e-01, 1.45840475e-01]  # fmt: skip
    q = [0.0, 0.43405271, 0.0, 0.43408638, 0.0, 0.13186091, 0.0]
    p, q = (np.array(row) / sum(row) for row in (p, q))
    width = 0.8799247012023571
    out = cr.output_law(p, q, cr.Band(width))
    kept = out[q > 0] / q[q > 0]
    assert np.log(kept.max() / kept.min()) == pytest.approx(width, abs=1e-9)
    assert out == pytest.approx(oracles.band_law(p, q, width), abs=1e-9)
