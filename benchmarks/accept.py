"""What `accept` and the rules cost on one CPU core, and that the accept test does not depend on V.

    python benchmarks/accept.py

CPU time of this thread, so that waiting for a core does not count; the quickest of interleaved
repeats, since what else runs on the core's caches only ever adds. Ratios carry over best.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable

import numpy as np

import cactus_rules as cr

WIDTHS = (1_000, 32_000, 262_144)
REPEATS = 12


def row(rng: np.random.Generator, width: int) -> np.ndarray:
    weights = rng.exponential(size=width) ** 6
    return (weights / weights.sum()).astype(np.float32)


def seconds(calls: dict[tuple[str, int], Callable[[], object]]) -> dict[tuple[str, int], float]:
    """CPU seconds of each call at its quickest, measured in turns."""
    taken: dict[tuple[str, int], list[float]] = {key: [] for key in calls}
    for _ in range(REPEATS):
        for key, call in calls.items():
            count = 0
            start = time.thread_time()
            while time.thread_time() - start < 0.006:
                call()
                count += 1
            taken[key].append((time.thread_time() - start) / count)
    return {key: min(values) for key, values in taken.items()}


def main() -> None:
    rng = np.random.default_rng(0)
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    rules = {
        "lossless": cr.Lossless(),
        "cactus(0.1), exact": cr.Cactus(0.1),
        "cactus(0.1), taylor": cr.Cactus(0.1, solver="taylor"),
        "mentored(0.1)": cr.Mentored(0.1),
        "typical": cr.Typical(),
    }
    for width in WIDTHS:
        p, q = row(rng, width), row(rng, width)
        token = int(np.argmax(p))
        for name, rule in rules.items():
            calls[f"accept, {name}", width] = lambda p=p, q=q, t=token, r=rule: cr.accept(
                p, q, t, rule=r, policy="safe"
            ).decide(0.5)
        decided = cr.accept(p, q, token, 0.1, policy="safe")
        calls["residual", width] = decided.residual
        calls["audit, cactus(0.1)", width] = lambda p=p, q=q: cr.audit(p, q, cr.Cactus(0.1))
    taken = seconds(calls)
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, ",
        end="",
    )
    print(f"numpy {np.__version__}; float32 rows, policy='safe'; microseconds\n")
    print("| call | " + " | ".join(f"V = {w:,}" for w in WIDTHS) + " | largest / smallest V |")
    print("|---|" + "---|" * (len(WIDTHS) + 1))
    for name in dict.fromkeys(name for name, _ in taken):
        values = [taken[name, width] * 1e6 for width in WIDTHS]
        shown = " | ".join(f"{value:,.0f}" for value in values)
        print(f"| {name} | {shown} | {values[-1] / values[0]:.2f} |")


if __name__ == "__main__":
    main()
