"""What a rule is: a small frozen record that computes two numbers, `cap` and `scale`.

For a drafted token n with draft probability p_n and target probability q_n, every rule is

    accept n            iff   u * p_n < cap
    otherwise draw from       max(scale * q - p, 0), normalised

where a set rule's draw is on the tokens with q > floor, or with q = floor and an id <= floor_id.
To add a rule: write one file with one frozen dataclass here, and add a line to `rules.REGISTRY`.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from cactus_rules import _validate
from cactus_rules._arrays import Array, Namespace, asarray, float64, has_axes, is_kind, namespace


@dataclass(frozen=True)
class Guarantee:
    """What a rule promises, and about which law.

    `law` is "output" (the law of the emitted token, over drafted tokens and coins), "surrogate"
    (the law that the rule would emit if this one token were always the draft) or None (no promise).
    `divergence` names it, as D(law, target); `bound` is its value (nats where it has a unit);
    `condition` says when it holds, in words.
    """

    law: Literal["output", "surrogate"] | None
    divergence: str | None = None
    bound: Any = None
    condition: str = ""

    def __str__(self) -> str:
        """The promise on one line."""
        if self.law is None:
            return "none" + (f" ({self.condition})" if self.condition else "")
        bound = self.bound
        if has_axes(bound):
            bound = "per request"
        elif bound is not None:
            bound = f"{float(bound):.6g}"
        name = "max-divergence" if self.divergence == "max" else self.divergence
        text = f"{name}({self.law} law, target) <= {bound}"
        return text + (f" ({self.condition})" if self.condition else "")


@dataclass(frozen=True, slots=True)
class Numbers:
    """A rule's answer for one drafted token, elementwise over positions.

    `floor` and `floor_id` restrict the draw after a rejection to the tokens with q > floor, or with
    q = floor and an id up to floor_id (ties go to the lower id); None draws from the whole row.
    """

    cap: Array
    scale: Array | float
    floor: Array | None = None
    floor_id: Array | None = None


class Drafted:
    """Drafted tokens as a rule sees them: two numbers each, and the rows only if it asks.

    `p_n`, `q_n` (float64) and `token` (integers) have the shape of the positions. `draft` and
    `target` are float64 rows whose leading axes broadcast against it. A one-hot draft (an n-gram,
    an argmax) has p_n = 1 and no draft row: `one_hot` is True. `rows` are both rows as they were
    given.
    """

    __slots__ = ("one_hot", "p_n", "q_n", "rows", "token", "xp")

    def __init__(
        self,
        xp: Namespace,
        p_n: Array,
        q_n: Array,
        token: Array,
        draft: Array | None,
        target: Array,
    ) -> None:
        """`draft=None` means one-hot."""
        self.xp, self.p_n, self.q_n, self.token = xp, p_n, q_n, token
        self.rows = draft, target
        self.one_hot = draft is None

    @property
    def draft(self) -> Array:
        """The draft rows, `(..., V)`."""
        if self.one_hot:
            raise RuntimeError("a one-hot draft has no row: a rule must look at `one_hot` first")
        return float64(self.xp, self.rows[0])

    @property
    def target(self) -> Array:
        """The target rows, `(..., V)`."""
        return float64(self.xp, self.rows[1])


class Rule(ABC):
    """Base of all acceptance rules. Subclasses are frozen dataclasses; see the module's text.

    Parameters may be arrays, one entry per request, wherever a call has several requests.
    """

    name: ClassVar[str]
    reads: ClassVar[Literal["pair", "target", "rows"]] = "pair"
    """What `numbers` touches: only p_n and q_n, the target's row, or both rows."""
    ignores_draft: ClassVar[bool] = False
    """Whether the draft's probabilities are read as one-hot at the drafted token."""
    fixed_law: ClassVar[bool] = True
    """Whether the law that is emitted at a position does not depend on the drafted token."""
    metered: ClassVar[bool] = False
    """Whether log+(min(p, cap)/q) over emitted tokens bounds KL(output law || target)."""

    @abstractmethod
    def numbers(self, at: Drafted) -> Numbers:
        """The two numbers for every drafted token of `at`."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What is promised, and about which law."""

    def check_shapes(
        self, requests: tuple[int, ...], positions: tuple[int, ...], each: str
    ) -> None:
        """ValueError unless every array parameter has one value per request.

        Args:
            requests: the shape that parameters must broadcast to.
            positions: the drafted tokens' shape: `requests`, in `verify` with K at its end.
            each: what a request is called in the error's text.
        """
        for name, value in vars(self).items():
            if has_axes(value):
                name = f"{type(self).__name__}: {name}"
                _validate.check_fits(name, tuple(value.shape), requests, each)

    def placed(self, xp: Namespace, like: Array) -> Self:
        """The same rule with numpy parameters as arrays of `xp`, on the device of `like`."""
        arrays = {
            field.name: asarray(xp, value, like)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if isinstance(value := getattr(self, field.name), (np.ndarray, np.generic))
        }
        return self._with(arrays)

    def aligned(self) -> Self:
        """The same rule with a trailing axis on array parameters, to broadcast over positions."""
        arrays = {
            field.name: value[..., None]
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if has_axes(value := getattr(self, field.name))
        }
        return self._with(arrays)

    def _with(self, arrays: dict[str, Array]) -> Self:
        """A copy with these parameters, unchecked: a check would look at values on a device."""
        if not arrays:
            return self
        changed = copy.copy(self)
        for name, value in arrays.items():
            object.__setattr__(changed, name, value)
        return changed


def check_rule(rule: object) -> Rule:
    """ValueError unless it is an instance of a rule."""
    if isinstance(rule, Rule):
        return rule
    raise ValueError(f"rule must be a rule such as Lossless() or Mentored(0.1), got {rule!r}")


def about(text: str, example: Any = None) -> dict[str, Any]:
    """Field metadata: what a parameter means, for people, and a value to show a rule with."""
    return {"help": text, "example": example}


def parameter(
    rule: Rule, name: str, low: float = -math.inf, high: float = math.inf, remedy: str = ""
) -> None:
    """Check a numeric parameter of a frozen record: a number or an array within [low, high].

    Raises:
        ValueError: naming the rule, the parameter, its value and the remedy.
    """
    value = _listed(rule, name, np.float64)
    if not _within(value, low, high):
        limits = f">= {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        raise ValueError(
            f"{type(rule).__name__}: {name} must be a number or an array of numbers {limits}, "
            f"got {value!r}" + (f": {remedy}" if remedy else "")
        )


def integer(rule: Rule, name: str, low: int) -> None:
    """Check that a parameter of a frozen record is an integer (or an array of them) >= low."""
    value = _listed(rule, name)
    whole = isinstance(value, int) or (
        hasattr(value, "dtype") and is_kind(namespace(value), value, "integral")
    )
    if not whole or not _within(value, low, math.inf):
        raise ValueError(
            f"{type(rule).__name__}: {name} must be an integer >= {low}, got {value!r}"
        )


def _within(value: Any, low: float, high: float) -> bool:
    """Whether it is a number or an array of numbers within [low, high]."""
    if isinstance(value, (float, int)):
        return not isinstance(value, bool) and low <= value <= high
    if not hasattr(value, "dtype"):
        return False
    # An array of integers meets no float: array-api-strict does not compare the two.
    below = value <= high if high < math.inf else value == value
    return bool(namespace(value).all((value >= low) & below))


def _listed(rule: Rule, name: str, dtype: Any = None) -> Any:
    """A parameter; lists become arrays, in the record too, where they are lists of numbers."""
    value = getattr(rule, name)
    if not isinstance(value, (list, tuple)):
        return value
    try:
        array = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError):
        return value
    object.__setattr__(rule, name, array)
    return array
