"""`cactus-rules theory`: re-verify every claim on fresh random instances."""

from __future__ import annotations

import argparse
from typing import Any


def register(commands: Any) -> None:
    """Add the command; its options are those of `cactus_rules.theory.verify`."""
    parser = commands.add_parser(
        "theory",
        help="re-verify every claim about the rules on fresh random instances",
        description="Checks every claim of theory/README.md against an independent oracle.",
        add_help=False,
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Hand over to the verifier."""
    from cactus_rules.theory import verify

    return int(verify.main(arguments.rest))
