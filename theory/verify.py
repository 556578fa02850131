"""Check every claim again on fresh random instances: the command ``cactus-rules theory``."""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Sequence
from typing import TextIO

import numpy as np

from cactus_rules.cli.theory import options
from cactus_rules.theory.claim import Claim, Result
from cactus_rules.theory.registry import CLAIMS

Outcome = tuple[Claim, Result, float]


def check(claim: Claim, seed: int, seconds: float) -> Result:
    """One claim, on instances that depend on `seed` and the claim's id only.

    It tries the claim's least number of instances, and more until `seconds` have passed; an
    exception from the code under test is a failed claim.
    """
    rng = np.random.default_rng([seed, zlib.crc32(claim.id.encode())])
    try:
        return claim.check(rng, time.monotonic() + seconds)
    except Exception as error:  # the code under test may do anything
        return Result(0, float("-inf"), False, f"{type(error).__name__}: {error}")


def run(
    seed: int = 0,
    budget: float = 60.0,
    only: Sequence[str] = (),
    progress: TextIO | None = None,
) -> list[Outcome]:
    """Check all claims (or those in `only`) in `budget` seconds; 0 for the least instances."""
    claims = [c for c in CLAIMS if not only or c.id in only]
    outcomes: list[Outcome] = []
    started = time.monotonic()
    for index, claim in enumerate(claims):
        _bar(progress, index, len(claims), claim.id)
        left = max(budget - (time.monotonic() - started), 0.0)
        begun = time.monotonic()
        result = check(claim, seed, left / (len(claims) - index))
        outcomes.append((claim, result, time.monotonic() - begun))
    _bar(progress, len(claims), len(claims), "")
    return outcomes


def _bar(stream: TextIO | None, done: int, total: int, label: str) -> None:
    if stream is None or not stream.isatty():
        return
    filled = 30 * done // max(total, 1)
    stream.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {done}/{total} {label:<6}")
    if done == total:
        stream.write("\r" + " " * 60 + "\r")
    stream.flush()


def table(outcomes: Sequence[Outcome]) -> str:
    """Claim, quantity, instances, worst margin, verdict; failures with their detail below."""
    head = ("claim", "quantity", "instances", "worst margin", "seconds")
    lines = ["{:<6}{:<14}{:>9}{:>14}{:>9}  verdict".format(*head)]
    for claim, result, seconds in outcomes:
        verdict = "holds" if result.ok else "FAILS"
        lines.append(
            f"{claim.id:<6}{claim.quantity:<14}{result.instances:>9}{result.margin:>14.2e}"
            f"{seconds:>9.1f}  {verdict}"
        )
    failed = [(claim, result) for claim, result, _ in outcomes if not result.ok]
    for claim, result in failed:
        lines += ["", f"{claim.id} FAILS: {claim.statement}", f"    {result.detail}"]
    total = sum(result.instances for _, result, _ in outcomes)
    kept = len(outcomes) - len(failed)
    lines += ["", f"{kept} of {len(outcomes)} claims hold on {total} instances."]
    return "\n".join(lines)


def as_json(outcomes: Sequence[Outcome], seed: int) -> str:
    """The same as a JSON object."""
    rows = [
        {
            "claim": claim.id,
            "quantity": claim.quantity,
            "statement": claim.statement,
            "instances": result.instances,
            "worst_margin": result.margin if np.isfinite(result.margin) else None,
            "holds": result.ok,
            "detail": result.detail,
            "seconds": round(seconds, 3),
        }
        for claim, result, seconds in outcomes
    ]
    holds = all(row["holds"] for row in rows)
    return json.dumps({"seed": seed, "holds": holds, "claims": rows}, indent=2)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``cactus-rules theory``; returns the exit code, 1 if a claim fails."""
    parser = options()
    args = parser.parse_args(argv)
    unknown = sorted(set(args.claims) - {c.id for c in CLAIMS})
    if unknown:
        parser.error(f"no such claim: {', '.join(unknown)}; --list prints them")
    if args.list:
        print("\n".join(f"{c.id:<5} [{c.quantity}] {c.statement}" for c in CLAIMS))
        return 0
    outcomes = run(args.seed, 0.0 if args.quick else args.budget, args.claims, sys.stderr)
    print(as_json(outcomes, args.seed) if args.json else table(outcomes))
    return 0 if all(result.ok for _, result, _ in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
