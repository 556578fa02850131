"""The recorded SmolLM2 rows, spread out again to one entry per token, and sampling filters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]
FILE = Path(__file__).with_name("smollm2_rows.npz")
DRAFTS = ("Q2_K", "Q3_K_M")


def recorded(draft: str, most: int | None = None) -> list[tuple[Row, Row]]:
    """(draft row, target row) at temperature 1, up to `most` positions spread over the texts."""
    data = np.load(FILE)
    ends = np.cumsum(data[f"{draft}_length"])
    order = np.arange(len(ends))
    if most is not None:
        order = order[np.linspace(0, len(order) - 1, most).astype(int)]
    pairs = []
    for index in order:
        cells = slice(int(ends[index - 1]) if index else 0, int(ends[index]))
        count = data[f"{draft}_count"][cells]
        sides = []
        for side in ("log_p", "log_q"):
            weights = np.exp(data[f"{draft}_{side}"][cells].astype(np.float64))
            spread = np.repeat(weights, count)
            sides.append(spread / spread.sum())
        pairs.append((sides[0], sides[1]))
    return pairs


def filtered(row: Row, temperature: float, top_k: int, top_p: float) -> Row:
    """Temperature, then top-k, then top-p (the shortest prefix that reaches it), normalised."""
    law: Row = row ** (1 / temperature)
    law = law / law.sum()
    order = np.argsort(-law, kind="stable")[:top_k]
    kept = law[order] / law[order].sum()
    kept = kept[: int(np.searchsorted(np.cumsum(kept), top_p)) + 1]
    out: Row = np.zeros_like(law)
    out[order[: len(kept)]] = kept / kept.sum()
    return out


def paper_setting(pair: tuple[Row, Row]) -> tuple[Row, Row]:
    """T = .6, top-k 20, top-p .95 on both rows, restricted to the tokens that either keeps."""
    p, q = (filtered(row, 0.6, 20, 0.95) for row in pair)
    used = (p > 0) | (q > 0)
    draft: Row = p[used]
    target: Row = q[used]
    return draft, target
