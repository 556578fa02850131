"""Numbers and names as the command line writes them: checks that name the flag, and its errors."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)

_FLAGS = {
    "target": "--target",
    "draft": "--draft",
    "stop": "--stop",
    "n_ctx": "--ctx",
    "n_threads": "--threads",
    "n_gpu_layers": "--gpu-layers",
    "num_draft_tokens": "--num-draft-tokens",
    "max_tokens": "--max-tokens",
    "path": "--gpu-backend",
    "prompt": "--prompt",
    "seed": "--seed",
}
"""Arguments of the Python calls that errors may name, and their flags."""


def in_flags(text: str) -> str:
    """An error's text with flags in the place of Python's arguments."""
    for name, flag in _FLAGS.items():
        text = re.sub(rf"\b{name}=", f"{flag} ", text)
        # A name that is a word too stands for the argument only where a text begins with it.
        text = re.sub(rf"\b{name}\b" if "_" in name else rf"^{name}(?=:)", flag, text)
    return text


def integer(low: int, high: int | None = None) -> Callable[[str], int]:
    """Type of an option that takes an integer >= low, and <= high where there is one."""
    if high is None:
        return _checked(int, f"an integer >= {low}", lambda value: value >= low)
    wanted = f"an integer from {low} to {high}"
    return _checked(int, wanted, lambda value: low <= value <= high)


def number(wanted: str, holds: Callable[[float], bool]) -> Callable[[str], float]:
    """Type of an option that takes a finite number for which `holds`, which is `wanted`."""
    return _checked(float, wanted, lambda value: math.isfinite(value) and holds(value))


def text(value: str) -> str:
    """Type of an option that takes a text that is not empty."""
    if not value:
        raise argparse.ArgumentTypeError("must be a text that is not empty")
    return value


def _checked(
    kind: Callable[[str], Number], wanted: str, holds: Callable[[Number], bool]
) -> Callable[[str], Number]:
    def read(value: str) -> Number:
        try:
            number = kind(value)
            fine = holds(number)
        except ValueError:
            fine = False
        if not fine:
            raise argparse.ArgumentTypeError(f"must be {wanted}, got {value}")
        return number

    return read
