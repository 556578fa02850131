"""`check_proposal`: were logged draft tokens drawn from the logged draft probabilities?"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from cactus_rules._arrays import Array, namespace, to_numpy
from cactus_rules._validate import check_rows, check_tokens
from cactus_rules.testing.report import Finding, Report

ARGMAX = "the tokens are the argmax: pass draft_probs=None (one-hot), not the softmax"
TRUNCATED = "drawn after a top-k or top-p filter that the logged probabilities do not have"
SHARPER = "drawn at a lower temperature than that of the logged probabilities"
FLATTER = "drawn at a higher temperature than that of the logged probabilities"
IMPOSSIBLE = "tokens with logged probability 0: the rows belong to other positions or other filters"


def check_proposal(
    tokens: Array, draft_probs: Array, *, error_level: float = 1e-3, seed: int = 0
) -> Report:
    """Test logged tokens `(N,)` against logged draft rows `(N, V)`; one row for each token.

    Three tests share `error_level` (the probability of blaming honest logs): the rank of each token
    by probability, its log-probability, and its place in the row, each against what draws from that
    very row would give. Rows may differ from each other.

    Returns:
        A `Report`; a mismatch means that rules which read draft probabilities cannot keep their
        promise on such drafts.

    Raises:
        ValueError: shapes that do not fit, an empty log, rows that are no laws, ids outside them.
    """
    ids, rows = to_numpy(tokens).astype(np.int64), to_numpy(draft_probs)
    if rows.ndim != 2 or ids.shape != rows.shape[:1]:
        raise ValueError(
            f"tokens {ids.shape} must be (N,) and draft_probs {rows.shape} (N, V): one row a token"
        )
    method = f"{len(ids)} tokens, family-wise error level {error_level:g}"
    if len(ids) == 0:
        raise ValueError("tokens is empty: log some drafted tokens with their rows first")
    xp, every = namespace(rows), np.ones(len(ids), bool)
    check_tokens(xp, ids, rows.shape[-1], every, "tokens")
    check_rows(xp, rows, "draft_probs", dtype="float32")
    rows = rows / rows.sum(axis=-1, keepdims=True)
    p_n = rows[np.arange(len(ids)), ids]
    if np.any(p_n <= 0):
        count = int(np.count_nonzero(p_n <= 0))
        found = Finding("log", "tokens with probability 0", str(count), "0", IMPOSSIBLE)
        return Report((found,), 1, method)
    rng = np.random.default_rng(seed)
    order = np.argsort(-rows, axis=-1, kind="stable")
    ranks = np.argmax(order == ids[:, None], axis=-1)
    by_rank = np.take_along_axis(rows, order, axis=-1)
    level = error_level / 3
    findings = []
    for what, places, laws in (("rank", ranks, by_rank), ("place", ids, rows)):
        p_value = _uniformity(places, laws, rng)
        if p_value < level:
            text = _diagnose(ranks, by_rank, p_n, rows)
            found = Finding("log", f"{what} of the tokens", f"p = {p_value:.2g}", "uniform", text)
            findings.append(found)
    z, p_value = _log_probability(p_n, rows)
    if p_value < level:
        text = _diagnose(ranks, by_rank, p_n, rows)
        findings.append(Finding("log", "mean log-probability", f"z = {z:.1f}", "z = 0", text))
    return Report(tuple(findings), 3, method)


def _uniformity(places: np.ndarray, laws: np.ndarray, rng: np.random.Generator) -> float:
    """P-value of the randomised probability integral transform being uniform."""
    upper = np.take_along_axis(np.cumsum(laws, axis=-1), places[:, None], axis=-1)[:, 0]
    own = np.take_along_axis(laws, places[:, None], axis=-1)[:, 0]
    return float(stats.kstest(upper - own * rng.random(len(places)), "uniform").pvalue)


def _log_probability(p_n: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
    """Z-score and p-value of the sum of log p against its mean and variance under the rows."""
    logs = np.log(np.where(rows > 0, rows, 1.0))
    mean = np.sum(rows * logs, axis=-1)
    variance = np.sum(rows * logs**2, axis=-1) - mean**2
    spread = math.sqrt(float(np.sum(variance)))
    if spread == 0:
        return 0.0, 1.0
    z = float(np.sum(np.log(p_n) - mean)) / spread
    return z, float(2 * stats.norm.sf(abs(z)))


def _diagnose(ranks: np.ndarray, by_rank: np.ndarray, p_n: np.ndarray, rows: np.ndarray) -> str:
    if np.all(ranks == 0):
        return ARGMAX
    beyond = np.sum(by_rank[:, int(ranks.max()) + 1 :], axis=-1)
    # No token beyond the largest rank seen, where honest draws would have left one almost surely.
    if np.sum(np.log1p(-np.minimum(beyond, 1 - 1e-12))) < math.log(1e-6):
        return TRUNCATED
    return SHARPER if _log_probability(p_n, rows)[0] > 0 else FLATTER
