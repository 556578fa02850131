"""Tiny transformers models with random weights, and their exact laws along a text."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import transformers as tf
from scipy import stats

VOCAB = 7
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 4096,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
SPREAD = 1.3
"""Standard deviation of a logit: laws far from uniform, with no token out of reach."""


def llama(**changes: Any) -> Any:
    return ready(tf.LlamaForCausalLM(tf.LlamaConfig(**SIZES | {"num_hidden_layers": 1} | changes)))


def mistral(window: int = 6) -> Any:
    return ready(tf.MistralForCausalLM(tf.MistralConfig(**SIZES, sliding_window=window)))


def gemma3(window: int = 6) -> Any:
    """One layer with a sliding window, one without."""
    layers = ["sliding_attention", "full_attention"]
    config = tf.Gemma3TextConfig(**SIZES, sliding_window=window, layer_types=layers)
    return ready(tf.Gemma3ForCausalLM(config))


def lfm2() -> Any:
    """One layer with a short convolution, whose state is cut back too, one with attention."""
    return ready(tf.Lfm2ForCausalLM(tf.Lfm2Config(**SIZES, layer_types=["conv", "full_attention"])))


def gpt2(positions: int) -> Any:
    config = tf.GPT2Config(
        vocab_size=VOCAB, n_positions=positions, n_embd=16, n_layer=1, n_head=2,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return ready(tf.GPT2LMHeadModel(config))


def ready(model: Any, seed: int = 9) -> Any:
    """Random weights that do not depend on what ran before, and logits of `SPREAD`."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                scale = parameter.shape[-1] ** -0.5
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
        text = torch.randint(model.config.vocab_size, (1, 16), generator=generator)
        model.get_output_embeddings().weight.mul_(SPREAD / model(text).logits.std())
    return model.eval()


def noisy(model: Any, noise: float = 0.3, seed: int = 1) -> Any:
    """A copy with noise on its weights."""
    generator = torch.Generator().manual_seed(seed)
    draft = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in draft.parameters():
            if parameter.ndim > 1:
                step = noise * parameter.std() * torch.randn(parameter.shape, generator=generator)
                parameter.add_(step)
    return draft


def laws(model: Any, text: torch.Tensor, processors: Any = ()) -> np.ndarray:
    """Float64 `(L, V)`: row t is the law of what follows `text[:, : t + 1]`, without any cache."""
    with torch.no_grad():
        rows = model(text, use_cache=False).logits[0].float()
    for processor in processors:
        rows = torch.cat([processor(text[:, : t + 1], row[None]) for t, row in enumerate(rows)])
    return rows.double().softmax(-1).numpy()


def chi_square(tokens: np.ndarray, expected: np.ndarray, groups: np.ndarray) -> float:
    """p-value of tokens `(n,)` under their conditional laws `(n, V)`, group by group.

    Given its prefix, token t has the law `expected[t]`; so the sums of (token is i) - law[i] are
    martingales, and normal in the limit. Tokens with fewer than 5 expected occurrences in a group
    are put together.
    """
    statistic, freedom = 0.0, 0
    for group in np.unique(groups):
        law = expected[groups == group]
        seen = np.eye(law.shape[1])[tokens[groups == group]]
        assert seen[law == 0].sum() == 0, "an impossible token occurred"
        rare = law.sum(0) < 5
        law, seen = (np.c_[x[:, ~rare], x[:, rare].sum(1)] for x in (law, seen))
        if law[:, -1].sum() < 5:
            law, seen = law[:, :-1], seen[:, :-1]
        excess = (seen - law).sum(0)
        covariance = np.diag(law.sum(0)) - law.T @ law
        statistic += float(excess @ np.linalg.pinv(covariance, hermitian=True) @ excess)
        freedom += int(np.linalg.matrix_rank(covariance, hermitian=True))
    assert freedom > 5
    return float(stats.chi2.sf(statistic, freedom))
