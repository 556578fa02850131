"""A checker that cannot fail proves nothing: each one-line fault in the core must fail `verify`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cactus_rules as cr
from cactus_rules import _positions, budget, law
from cactus_rules.rules import cactus
from cactus_rules.rules.base import Numbers
from cactus_rules.theory import verify

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


def _numbers(patch: Patch, rule: type[cr.Rule], change: Callable[[Any, Any, Numbers], Numbers]):
    """Let `rule.numbers` answer change(rule, at, honest answer)."""
    honest = rule.numbers
    patch.setattr(rule, "numbers", lambda self, at: change(self, at, honest(self, at)))


def _boost(patch: Patch, change: Callable[..., Any]) -> None:
    honest = cr.boost

    def wrong(q_n, delta, divergence="kl", solver="exact"):
        return change(honest, q_n, delta, divergence, solver)

    patch.setattr(cr, "boost", wrong)
    patch.setattr(cactus, "boost", wrong)


def taylor_for_exact(patch: Patch) -> None:
    def change(honest, q_n, delta, divergence, solver):
        kl = getattr(divergence, "name", divergence) == "kl"
        return honest(q_n, delta, divergence, "taylor" if kl else solver)

    _boost(patch, change)


def rounded_outward(patch: Patch) -> None:
    _boost(
        patch,
        lambda honest, q_n, delta, divergence, solver: np.minimum(
            honest(q_n, delta, divergence, solver) * (1 + 1e-12), 1.0
        ),
    )


def closed_is_taylor(patch: Patch) -> None:
    _boost(
        patch,
        lambda honest, q_n, delta, divergence, solver: honest(
            q_n, delta, divergence, "taylor" if solver == "closed" else solver
        ),
    )


def surrogate_not_rescaled(patch: Patch) -> None:
    _numbers(patch, cr.Cactus, lambda rule, at, n: dataclasses.replace(n, scale=1.0))


def clip_with_wrong_lower_end(patch: Patch) -> None:
    _numbers(patch, cr.Mentored, lambda rule, at, n: dataclasses.replace(n, scale=1.0))


def clip_with_too_high_upper_end(patch: Patch) -> None:
    _numbers(patch, cr.Mentored, lambda rule, at, n: dataclasses.replace(n, cap=1.05 * n.cap))


def clip_too_timid(patch: Patch) -> None:
    honest = cr.Mentored.numbers
    patch.setattr(
        cr.Mentored,
        "numbers",
        lambda self, at: honest(cr.Mentored(0.9 * self.delta, self.divergence), at),
    )


def band_twice_as_wide(patch: Patch) -> None:
    honest = cr.Band.numbers
    patch.setattr(cr.Band, "numbers", lambda self, at: honest(cr.Band(2 * self.width), at))


def lenience_squared(patch: Patch) -> None:
    _numbers(
        patch,
        cr.Lenience,
        lambda rule, at, n: dataclasses.replace(n, cap=n.cap * rule.factor),
    )


def ensemble_swapped(patch: Patch) -> None:
    honest = cr.Ensemble.numbers
    patch.setattr(cr.Ensemble, "numbers", lambda self, at: honest(cr.Ensemble(1 - self.weight), at))


def typical_without_entropy(patch: Patch) -> None:
    _numbers(
        patch,
        cr.Typical,
        lambda rule, at, n: dataclasses.replace(n, cap=np.where(at.q_n > rule.epsilon, np.inf, 0)),
    )


def residual_is_the_target(patch: Patch) -> None:
    patch.setattr(
        law,
        "residual_weights",
        lambda xp, draft, target, token, numbers: np.asarray(target, np.float64),
    )


def excluded_token_kept(patch: Patch) -> None:
    honest = law.read_positions

    def wrong(*args):
        at = honest(*args)
        cap = np.where(at.q_n == 0, 1e-3, at.numbers.cap)
        return dataclasses.replace(at, numbers=dataclasses.replace(at.numbers, cap=cap))

    patch.setattr(law, "read_positions", wrong)


def coin_stuck(patch: Patch) -> None:
    honest = cr.verify

    def wrong(*args, uniforms, **more):
        stuck = np.array(uniforms)
        stuck[..., 0] = 0.0
        return honest(*args, uniforms=stuck, **more)

    patch.setattr(cr, "verify", wrong)


def block_walk_token_by_token(patch: Patch) -> None:
    honest = cr.verify
    patch.setattr(cr, "verify", lambda *a, walk="token", **more: honest(*a, **more))


def drawn_from_the_target(patch: Patch) -> None:
    patch.setattr(
        _positions,
        "residual_weights",
        lambda xp, draft, target, token, numbers: np.asarray(target, np.float64),
    )


def booked_at_half_price(patch: Patch) -> None:
    honest = budget.Budgeted._clipped

    def wrong(p, q, delta):
        a, b, price = honest(p, q, 2 * delta)
        return a, b, price / 2

    patch.setattr(budget.Budgeted, "_clipped", staticmethod(wrong))


FAULTS: tuple[tuple[Fault, str], ...] = (
    (taylor_for_exact, "2a"),
    (rounded_outward, "2a"),
    (closed_is_taylor, "4"),
    (surrogate_not_rescaled, "5a"),
    (clip_with_wrong_lower_end, "1a"),
    (clip_with_too_high_upper_end, "6b"),
    (clip_too_timid, "6a"),
    (band_twice_as_wide, "6g"),
    (lenience_squared, "7a"),
    (ensemble_swapped, "7b"),
    (typical_without_entropy, "5a"),
    (residual_is_the_target, "5a"),
    (excluded_token_kept, "5b"),
    (coin_stuck, "10b"),
    (block_walk_token_by_token, "10b"),
    (drawn_from_the_target, "10b"),
    (booked_at_half_price, "9e"),
)


@pytest.mark.parametrize(("fault", "claim"), FAULTS, ids=lambda x: getattr(x, "__name__", x))
def test_a_planted_fault_fails_the_verifier(
    fault: Fault, claim: str, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault(monkeypatch)
    assert verify.main(["--quick", claim]) == 1
    report = capsys.readouterr().out
    assert f"{claim} FAILS" in report
    assert "Error:" not in report, "the claim must be false, not the fault itself crash"
