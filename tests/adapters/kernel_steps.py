"""The search of `kernels.clip` on numpy: its own steps on as many row pairs at once as wanted.

Triton's interpreter takes milliseconds for each program; a search that goes wrong on one row in ten
thousand needs more rows than that allows. The steps are the functions of the kernel; only its pass
over the rows is written again.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np

from cactus_rules._clip import rounding
from cactus_rules.adapters.kernels import clip


class _Numbers(np.ndarray):
    """One number of every search."""

    def to(self, _: Any) -> _Numbers:
        return self


def _numbers(value: Any) -> _Numbers:
    return np.asarray(value, dtype=np.float64).view(_Numbers)


class _Language:
    """What the steps use of triton.language, on numpy."""

    float64 = None

    @staticmethod
    def where(condition: Any, then: Any, otherwise: Any) -> _Numbers:
        return _numbers(np.where(condition, then, otherwise))

    exp, log, sqrt, abs = (
        staticmethod(lambda x, f=f: _numbers(f(x))) for f in (np.exp, np.log, np.sqrt, np.abs)
    )

    @staticmethod
    def load(at: tuple[_State, int]) -> _Numbers:
        return _numbers(at[0].numbers[at[1]].copy())

    @staticmethod
    def store(at: tuple[_State, int], value: Any, mask: Any = True) -> None:
        kept = at[0].numbers[at[1]]
        kept[:] = np.where(at[0].active & mask, value, kept)


class _State:
    """The state of all searches, which `_Language` reads and writes as a program does its own."""

    def __init__(self, count: int) -> None:
        self.numbers = np.zeros((clip.STATE.value, count))
        self.active = np.ones(count, dtype=bool)

    def __add__(self, place: int) -> tuple[_State, int]:
        return self, place

    def __getitem__(self, place: Any) -> np.ndarray:
        return self.numbers[place.value]


def _steps() -> dict[str, Any]:
    names: dict[str, Any] = {k: getattr(v, "value", v) for k, v in vars(clip).items()}
    names["tl"] = _Language
    for name, step in vars(clip).items():
        if hasattr(step, "fn"):
            names[name] = FunctionType(step.fn.__code__, names)
    return names


def search(
    p: np.ndarray, q: np.ndarray, delta: np.ndarray, passes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both ends and the number of passes for rows `(n, V)` and budgets `(n,)`."""
    steps, state = _steps(), _State(len(p))
    ulps = rounding(p.shape[-1])
    with np.errstate(all="ignore"):
        totals = (_numbers(rows.sum(-1)) for rows in (p, q))
        steps["_after_totals"](state, *totals, _numbers(delta))
        p, q = p / state[clip.P_TOTAL][:, None], q / state[clip.Q_TOTAL][:, None]
        ratio = p / q
        known = ratio <= steps["_HIGHEST"]
        q = np.where(known, q, 0)
        cost = q * steps["_cost"](np.where(known, (p - q) / q, 0))[0]

        def total(where: np.ndarray, row: np.ndarray) -> _Numbers:
            return _numbers(np.where(where, row, 0).sum(-1))

        for done in range(passes + 1):
            state.active = state[clip.DONE] == 0
            state[clip.PASSES][state.active] += 1
            a, b = (state[end][:, None] for end in (clip.A, clip.B))
            above, below = p > a * q, known & (p <= b * q)
            masses = total(above, q), total(above, p), total(below, q)
            if done == 0:
                top = _numbers(np.where(known, ratio, 0).max(-1))
                costs = total(above, cost), total(~above, cost)
                excluded = total(~known, p)
                steps["_after_one"](state, *masses, excluded, *costs, top, ulps, delta)
            else:
                rest = total(below, p), total(~(above | below), cost)
                steps["_after_pair"](state, *masses, *rest, ulps, delta)
    scale = state[clip.P_TOTAL] / state[clip.Q_TOTAL]
    return state[clip.BEST_A] * scale, state[clip.BEST_B] * scale, state[clip.PASSES]
