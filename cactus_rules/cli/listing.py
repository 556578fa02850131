"""`cactus-rules rules`: all rules, their parameters and guarantees."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
import textwrap
from typing import Any

from cactus_rules.cli.rule_options import fields
from cactus_rules.rules import REGISTRY, Rule

_READS = {
    "pair": "two numbers, p_n and q_n",
    "target": "the target's row",
    "rows": "both rows",
}

_LEGEND = """\
p, q: the draft's and the target's law; n: the drafted token; u: a uniform number.
S: the set of tokens that are accepted; after a rejection a token of it is drawn from q.
output law: the law of the tokens that are emitted, over drafts and coins.
surrogate law: what would be emitted if this one token were always the draft.
kl, js, tv, ...: a divergence of the first law from the second, in nats where it has a unit.
max-divergence(a, b): the logarithm of the largest a/b of any token; no KL is larger.

generate --rule NAME takes each parameter as --param NAME=VALUE; --delta X is --param delta=X."""


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
        print(f"    guarantee  {rule['guarantee']}")
        print("".join(f"    [{i}]        {text}\n" for i, text in rule["references"].items()))
    print(_LEGEND)
    return 0


def describe(rule: type[Rule]) -> dict[str, Any]:
    """Name, parameters (defaults or examples), summary, cost, guarantee, sources of a rule."""
    shown = {
        field.name: field.metadata["example"]
        if field.default is dataclasses.MISSING
        else field.default
        for field in fields(rule)
    }
    text = inspect.getdoc(rule) or ""
    references = dict(re.findall(r"^\[(\d)\] (.*)$", text, re.MULTILINE))
    return {
        "name": rule.name,
        "parameters": shown,
        "summary": text.split("\n\n")[0].replace("\n", " "),
        "reads": _READS[rule.reads] + (", p ignored" if rule.ignores_draft else ""),
        "guarantee": str(rule(**shown).guarantee),
        "references": references,
    }
