"""Hypothesis profiles, the interpreter of Triton, and tests that run on every array kind."""

from __future__ import annotations

import os

# Triton reads it once, on its import, and torch may import Triton.
os.environ.setdefault("TRITON_INTERPRET", "1")

import kinds
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("wide", max_examples=600, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def _kind(name: str) -> kinds.Kind:
    try:
        return kinds.kind(name)
    except kinds.UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session", params=kinds.NAMES)
def kind(request: pytest.FixtureRequest) -> kinds.Kind:
    """Numpy, read-only numpy, array-api-strict and torch, one after the other."""
    return _kind(request.param)


@pytest.fixture(scope="session", params=kinds.NAMES[1:])
def other_kind(request: pytest.FixtureRequest) -> kinds.Kind:
    """All kinds but plain numpy, for comparisons with plain numpy."""
    return _kind(request.param)
