"""Command-line options of acceptance rules, read off the rules' own records."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from cactus_rules.rules import REGISTRY, Rule


def fields(rule: type[Rule]) -> tuple[dataclasses.Field[Any], ...]:
    """The parameters of a rule."""
    return dataclasses.fields(rule)  # type: ignore[arg-type]


def add_rule_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add --rule and one option for every parameter that any rule has."""
    group = parser.add_argument_group(
        "acceptance rule", "see `cactus-rules rules` for what each rule promises"
    )
    group.add_argument(
        "--rule", choices=sorted(REGISTRY), default=default, help=f"default: {default}"
    )
    owners: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for name, rule in REGISTRY.items():
        for field in fields(rule):
            owners.setdefault(field.name, []).append(name)
            texts.setdefault(field.name, field.metadata["help"])
    for parameter, names in owners.items():
        text = f"{texts[parameter]} ({', '.join(names)})"
        group.add_argument(f"--{parameter}", metavar="X", help=text, default=None)


def read_rule(arguments: argparse.Namespace) -> Rule:
    """The rule that the options name.

    Raises:
        ValueError: a parameter is missing, or is one that the rule does not have.
    """
    return make_rule(
        arguments.rule,
        {
            field.name: getattr(arguments, field.name)
            for rule in REGISTRY.values()
            for field in fields(rule)
            if getattr(arguments, field.name) is not None
        },
    )


def make_rule(name: str, given: dict[str, str]) -> Rule:
    """A rule from its name and its parameters as text; see `read_rule`."""
    rule = REGISTRY[name]
    own = {field.name: field for field in fields(rule)}
    for parameter in given:
        if parameter not in own:
            has = ", ".join(f"--{p}" for p in own) or "no parameters"
            raise ValueError(f"--{parameter} is not a parameter of --rule {name}, which has {has}")
    for parameter, field in own.items():
        if field.default is dataclasses.MISSING and parameter not in given:
            example = field.metadata["example"]
            raise ValueError(
                f"--rule {name} needs --{parameter}: {field.metadata['help']}, "
                f"for example --{parameter} {example}"
            )
    return rule(**{parameter: _value(text) for parameter, text in given.items()})


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
