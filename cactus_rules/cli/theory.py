"""`cactus-rules theory`: re-verify every claim on fresh random instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def register(commands: Any) -> None:
    """Add the command; its options are those of `cactus_rules.theory.verify`."""
    commands.add_parser(
        "theory",
        help="re-verify every claim about the rules on fresh random instances",
        add_help=False,
    )


def run(words: Sequence[str]) -> int:
    """Hand over to the verifier."""
    from cactus_rules.theory import verify

    return int(verify.main(words))
