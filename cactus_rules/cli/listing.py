"""`cactus-rules rules`: all rules, their parameters and guarantees."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import textwrap
from typing import Any

from cactus_rules.cli.rule_options import fields
from cactus_rules.rules import REGISTRY, Rule

_READS = {
    "pair": "two numbers, p_n and q_n",
    "target": "the target's row",
    "rows": "both rows",
}


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "rules",
        help="list the acceptance rules and what each promises",
        description="Every acceptance rule with its parameters, cost and guarantee. A guarantee on "
        "the output law is about what is emitted; one on the surrogate law is about "
        "the law that would be emitted if this one token were always the draft.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the list."""
    described = [describe(rule) for rule in REGISTRY.values()]
    if arguments.json:
        print(json.dumps(described, indent=2))
        return 0
    for rule in described:
        shown = ", ".join(f"{k}={v}" for k, v in rule["parameters"].items())
        print(f"{rule['name']}({shown})")
        print(textwrap.fill(rule["summary"], 96, initial_indent="    ", subsequent_indent="    "))
        print(f"    reads      {rule['reads']}")
        print(f"    guarantee  {rule['guarantee']}\n")
    return 0


def describe(rule: type[Rule]) -> dict[str, Any]:
    """Name, parameters (defaults or examples), summary, cost and guarantee of a rule."""
    shown = {
        field.name: field.metadata["example"]
        if field.default is dataclasses.MISSING
        else field.default
        for field in fields(rule)
    }
    summary = (inspect.getdoc(rule) or "").split("\n\n")[0].replace("\n", " ")
    return {
        "name": rule.name,
        "parameters": shown,
        "summary": summary,
        "reads": _READS[rule.reads] + (", p ignored" if rule.ignores_draft else ""),
        "guarantee": str(rule(**shown).guarantee),
    }
