"""Command-line options of acceptance rules, read off the rules' own records."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from cactus_rules.rules import REGISTRY, Rule


def fields(rule: type[Rule]) -> tuple[dataclasses.Field[Any], ...]:
    """The parameters of a rule."""
    return dataclasses.fields(rule)  # type: ignore[arg-type]


def add_rule_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add --rule, --param for any parameter of it, and --delta."""
    group = parser.add_argument_group(
        "acceptance rule", "`cactus-rules rules` says what each rule promises and takes"
    )
    group.add_argument(
        "--rule", choices=sorted(REGISTRY), default=default, help=f"default: {default}"
    )
    owned = (
        f"{name}: {', '.join(field.name for field in fields(rule))}"
        for name, rule in REGISTRY.items()
        if fields(rule)
    )
    group.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the rule, for example --rule top-k --param k=5; may be repeated. "
        + "; ".join(owned),
    )
    group.add_argument("--delta", metavar="X", help="the budget: short for --param delta=X")


def read_rule(arguments: argparse.Namespace) -> Rule:
    """The rule that the options name.

    Raises:
        ValueError: a parameter is missing, given twice, out of its range, or one that the rule does
            not have.
    """
    given: dict[str, str] = {}
    for name, value in _pairs(arguments.param, arguments.delta):
        if name in given:
            raise ValueError(f"--param {name}= is given twice: leave one out (--delta is one too)")
        given[name] = value
    return make_rule(arguments.rule, given)


def _pairs(parameters: Iterable[str], delta: str | None) -> Iterator[tuple[str, str]]:
    for text in parameters:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ValueError(f"--param {text}: write NAME=VALUE, for example --param k=5")
        yield name, value
    if delta is not None:
        yield "delta", delta


def make_rule(name: str, given: dict[str, str]) -> Rule:
    """A rule from its name and its parameters as text; see `read_rule`."""
    rule = REGISTRY[name]
    own = {field.name: field for field in fields(rule)}
    for parameter in given:
        if parameter not in own:
            has = ", ".join(own) or "no parameters"
            raise ValueError(
                f"{_typed(parameter)} is not a parameter of --rule {name}, which has {has}"
            )
    for parameter, field in own.items():
        if field.default is dataclasses.MISSING and parameter not in given:
            example = _typed(parameter, field.metadata["example"])
            raise ValueError(
                f"--rule {name} needs {_typed(parameter)}: {field.metadata['help']}, "
                f"for example {example}"
            )
    try:
        return rule(**{parameter: _value(text) for parameter, text in given.items()})
    except ValueError as error:
        flags = " ".join(_typed(parameter, text) for parameter, text in given.items())
        text = str(error).removeprefix(f"{rule.__name__}: ")
        raise ValueError(f"--rule {name} {flags}: {text}") from None


def _typed(parameter: str, value: Any = "") -> str:
    """How a parameter is given on the command line."""
    if parameter == "delta":
        return f"--delta {value}".rstrip()
    return f"--param {parameter}={value}"


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
