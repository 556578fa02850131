"""Checks of single values: errors name the argument, the value and what is wanted."""

from __future__ import annotations

import numbers
import reprlib
from collections.abc import Sequence
from typing import Any

from cactus_rules._validate import is_integer

MAX_INT32 = 2**31 - 1
_SEEDS = range(-(2**63), 2**64)


def check_integer(name: str, value: Any, low: int, high: int = MAX_INT32, remedy: str = "") -> int:
    """The value as an int; ValueError unless it is an integer from `low` to `high`."""
    if not is_integer(value) or not low <= value <= high:
        bounds = f">= {low}" if is_integer(value) and value < low else f"from {low} to {high}"
        raise ValueError(f"{name}={reprlib.repr(value)} must be an integer {bounds}{remedy}")
    return int(value)


def check_number(name: str, value: Any) -> None:
    """ValueError unless the value is a number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name}={reprlib.repr(value)} must be a number")


def check_callable(name: str, value: Any) -> None:
    """ValueError unless the value can be called, or is None."""
    if value is not None and not callable(value):
        raise ValueError(
            f"{name}={reprlib.repr(value)} must be a function, or None to leave it out"
        )


def check_seed(value: Any, name: str = "seed") -> int:
    """The seed as an int; ValueError unless it is an integer of 64 bits."""
    return check_integer(name, value, _SEEDS[0], _SEEDS[-1])


def check_stop(stop: Any) -> tuple[str, ...]:
    """The stop strings; ValueError for anything but strings."""
    texts = (stop,) if isinstance(stop, str) else stop
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"stop={reprlib.repr(stop)} must be a string or a list of strings; leave it out if none"
        )
    return tuple(texts)


def check_token_ids(prompt: Any, name: str = "prompt") -> list[int]:
    """Token ids as ints; ValueError for anything but a sequence of integers."""
    ids = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    if isinstance(ids, (str, bytes, bytearray)) or not isinstance(ids, Sequence):
        raise ValueError(
            f"{name}={reprlib.repr(prompt)} must be text (str) or a list of token ids (int)"
        )
    for i, token in enumerate(ids):
        if not is_integer(token):
            raise ValueError(
                f"{name}[{i}]={reprlib.repr(token)} must be a token id (int); give text as one str"
            )
    return [int(token) for token in ids]
