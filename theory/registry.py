"""All claims, in the order of the derivations."""

from __future__ import annotations

from cactus_rules.theory.claim import Claim
from cactus_rules.theory.claims import (
    block,
    clip,
    conditional,
    limits,
    other_rules,
    output_law,
    sequences,
    solver,
    taylor,
    telemetry,
    widths,
    worst_case,
)

_GROUPS = (
    conditional, solver, taylor, output_law, worst_case, clip, other_rules, telemetry, sequences,
    widths, block, limits,
)  # fmt: skip


def _order(claim: Claim) -> tuple[int, str]:
    digits = "".join(c for c in claim.id if c.isdigit())
    return int(digits), claim.id[len(digits) :]


CLAIMS: tuple[Claim, ...] = tuple(
    sorted((claim for group in _GROUPS for claim in group.CLAIMS), key=_order)
)


def markdown() -> str:
    """The table of `theory/README.md`: one row per claim, every column filled."""
    lines = [
        "| claim | exact statement | of which quantity | derivation | script | test | figure |",
        "|---|---|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        derivation, script = claim.derivation.split("/")[-1], claim.script.split("/")[-1]
        cells = (
            claim.id,
            claim.statement.replace("|", "\\|"),
            claim.quantity,
            f"[{derivation.split('-')[0]}]({claim.derivation})",
            f"[{script}]({claim.script})",
            f"`test_claim[{claim.id}]`",
            f"[{claim.figure}](../docs/figures/{claim.figure})",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
