"""What all adapters take alike: the same defaults, the same checks, the same classes."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import cactus_rules as cr
from cactus_rules.adapters.draft_options import NUM_DRAFT_TOKENS, check_draft_options

SPECULATING = [
    ("llama_cpp", "llamacpp", "SpeculativeLlama"),
    ("transformers", "transformers", "Speculative"),
]


@pytest.mark.parametrize(("engine", "adapter", "name"), SPECULATING, ids=lambda text: text)
def test_adapters_draft_equally_many_tokens(engine: str, adapter: str, name: str) -> None:
    pytest.importorskip(engine, reason=f"{engine} is not installed")
    adapter = importlib.import_module(f"cactus_rules.adapters.{adapter}")
    parameters = inspect.signature(getattr(adapter, name)).parameters
    assert parameters["num_draft_tokens"].default == NUM_DRAFT_TOKENS == 4
    assert parameters["draft_sampling"].default == "sample"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rule": cr.Lossless}, r"rule must be a rule such as Lossless\(\) or"),
        ({"num_draft_tokens": 0}, "num_draft_tokens=0 must be an integer >= 1; for plain decoding"),
        ({"num_draft_tokens": 2.0}, r"num_draft_tokens=2\.0 must be an integer from 1 to"),
        ({"num_draft_tokens": True}, "num_draft_tokens=True must be an integer from 1 to"),
        ({"adaptive": "no"}, "adaptive='no' must be True or False"),
        ({"draft_sampling": "beam"}, "draft_sampling='beam' must be 'sample' or 'greedy'"),
    ],
    ids=str,
)
def test_options_are_checked_in_one_place(options: dict[str, Any], text: str) -> None:
    good: dict[str, Any] = {
        "rule": cr.Lossless(),
        "num_draft_tokens": 1,
        "draft_sampling": "greedy",
        "adaptive": False,
    }
    check_draft_options(**good)
    with pytest.raises(ValueError, match=text):
        check_draft_options(**(good | options))
