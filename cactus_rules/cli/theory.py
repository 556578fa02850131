"""`cactus-rules theory`: re-verify every claim on fresh random instances."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from cactus_rules.cli.flags import integer, number


def register(commands: Any) -> None:
    """Add the command; its options are those of `options`."""
    commands.add_parser(
        "theory",
        help="re-verify every claim about the rules on fresh random instances",
        add_help=False,
    )


def options() -> argparse.ArgumentParser:
    """The command's options; they can be shown without mpmath, which the checks need."""
    parser = argparse.ArgumentParser(
        prog="cactus-rules theory",
        description="Checks every claim about the rules again, on fresh random instances, and "
        "prints the worst margin of each. Exit code 1 if a claim fails. Needs the theory extra "
        "(mpmath): pip install '.[theory]' in the project's folder.",
    )
    parser.add_argument(
        "--seed", type=integer(0), default=0, metavar="N", help="of the random instances; default 0"
    )
    parser.add_argument(
        "--budget",
        type=number("a number of seconds >= 0", lambda x: x >= 0),
        default=60.0,
        metavar="SECONDS",
        help="for all claims together; default 60",
    )
    parser.add_argument(
        "--quick", action="store_true", help="the least number of instances, under a minute"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument("--list", action="store_true", help="print the claims and stop")
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="ids, e.g. 5f; all if left out")
    return parser


def run(words: Sequence[str]) -> int:
    """Read the options, which includes --help, and hand over to the verifier."""
    options().parse_args(words)
    from cactus_rules.theory import verify

    return int(verify.main(words))
