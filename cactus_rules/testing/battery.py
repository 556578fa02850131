"""The rows that verifiers are tested on, public failure reports among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PAD = -1


@dataclass(frozen=True)
class Case:
    """One request: draft laws `(K, V)`, target laws `(K+1, V)`, drafted ids `(K,)`."""

    name: str
    draft: np.ndarray
    target: np.ndarray
    ids: np.ndarray

    @property
    def length(self) -> int:
        """Drafted tokens before the first pad."""
        pads = np.flatnonzero(self.ids == PAD)
        return int(pads[0]) if len(pads) else len(self.ids)


def _case(name: str, draft: list[list[float]], target: list[list[float]], ids: list[int]) -> Case:
    return Case(name, np.array(draft), np.array(target), np.array(ids))


def battery(seed: int = 0) -> list[Case]:
    """Hand-made cases and seeded random ones, with one vocabulary size each."""
    cases = [
        _case("opposed rows", [[0.9, 0.1]], [[0.1, 0.9], [0.5, 0.5]], [0]),
        _case("excluded by the target", [[0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]], [0]),
        _case(
            "one-hot target",
            [[0.5, 0.3, 0.2]],
            [[0.0, 0.0, 1.0], [0.2, 0.3, 0.5]],
            [2],
        ),
        _case(
            "tiny draft probability",
            [[1e-9, 1 - 1e-9]],
            [[0.5, 0.5], [0.3, 0.7]],
            [1],
        ),
        _case(
            "equal rows",
            [[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]],
            [[0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]],
            [1, 2],
        ),
        _case(
            "padded draft",
            [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]],
            [[0.4, 0.2, 0.4], [0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]],
            [1, -1, -1],
        ),
        _case(
            "two positions",
            [[0.7, 0.3], [0.6, 0.4]],
            [[0.4, 0.6], [0.2, 0.8], [0.5, 0.5]],
            [0, 0],
        ),
    ]
    rng = np.random.default_rng(seed)
    for index in range(3):
        size, k = 3 + index, 1 + index % 3
        draft = rng.dirichlet(np.full(size, 0.8), size=k)
        target = rng.dirichlet(np.full(size, 0.8), size=k + 1)
        ids = np.array([rng.choice(size, p=row) for row in draft])
        cases.append(Case(f"random rows, V = {size}, K = {k}", draft, target, ids))
    return cases
