"""A GGUF target and draft of any size, made on the spot: seconds and acceptance without a download.

The weights are random, so the text means nothing. The draft is the target's first layers; the
target's other layers say little. At temperature 1 and K = 4 the small pair has a mean acceptance
length of 2.8 with Lossless (a 135M model with its own Q2_K form: 2.5).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "adapters"))
from tiny_gguf import byte_symbols

LOGIT_SPREAD = 4.0  # entropies of 2 to 3 nats at V = 32,000, like those of text
DISAGREEMENT = 0.45  # what the layers that the draft lacks add, relative to the rest
DISTINCT_LAYERS = 4  # random numbers are drawn for these and used again


@dataclass(frozen=True)
class Size:
    """Shape of the target, and how many of its layers the draft has."""

    n_vocab: int = 32000
    dim: int = 2048
    ffn: int = 5632
    heads: int = 16
    kv_heads: int = 4
    layers: int = 24
    draft_layers: int = 2


SMALL = Size(n_vocab=2000, dim=256, ffn=512, heads=4, kv_heads=2, layers=8, draft_layers=1)


def write_pair(folder: Path, size: Size, seed: int = 0) -> tuple[Path, Path]:
    """Write target and draft as F16 files; 2.4 GB at the default size."""
    rng = np.random.default_rng(seed)
    scale = DISAGREEMENT / (2 * (size.layers - size.draft_layers)) ** 0.5
    kept = [_layer(rng, size, 1.0) for _ in range(min(size.draft_layers, DISTINCT_LAYERS))]
    faint = [_layer(rng, size, scale) for _ in range(DISTINCT_LAYERS)]
    layers = [kept[i % len(kept)] for i in range(size.draft_layers)]
    layers += [faint[i % len(faint)] for i in range(size.layers - size.draft_layers)]
    ends = {
        "token_embd.weight": _matrix(rng, size.n_vocab, size.dim, 1.0),
        "output.weight": _matrix(rng, size.n_vocab, size.dim, LOGIT_SPREAD * size.dim**-0.5),
        "output_norm.weight": np.ones(size.dim, np.float32),
    }
    return (
        _write(folder / "target.gguf", size, ends, layers),
        _write(folder / "draft.gguf", size, ends, layers[: size.draft_layers]),
    )


def _matrix(rng: np.random.Generator, rows: int, columns: int, scale: float) -> np.ndarray:
    values = rng.standard_normal((rows, columns), np.float32)
    values *= scale
    return values.astype(np.float16)


def _layer(rng: np.random.Generator, size: Size, scale: float) -> dict[str, np.ndarray]:
    kv = size.dim // size.heads * size.kv_heads
    into, out = size.dim**-0.5, size.ffn**-0.5
    return {
        "attn_norm.weight": np.ones(size.dim, np.float32),
        "attn_q.weight": _matrix(rng, size.dim, size.dim, into),
        "attn_k.weight": _matrix(rng, kv, size.dim, into),
        "attn_v.weight": _matrix(rng, kv, size.dim, into),
        "attn_output.weight": _matrix(rng, size.dim, size.dim, into * scale),
        "ffn_norm.weight": np.ones(size.dim, np.float32),
        "ffn_gate.weight": _matrix(rng, size.ffn, size.dim, into),
        "ffn_up.weight": _matrix(rng, size.ffn, size.dim, into),
        "ffn_down.weight": _matrix(rng, size.dim, size.ffn, out * scale),
    }


def _write(
    path: Path, size: Size, ends: dict[str, np.ndarray], layers: list[dict[str, np.ndarray]]
) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("made")
    writer.add_context_length(4096)
    writer.add_embedding_length(size.dim)
    writer.add_block_count(len(layers))
    writer.add_feed_forward_length(size.ffn)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_rope_dimension_count(size.dim // size.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = [*byte_symbols(), *(f"w{i}" for i in range(size.n_vocab - 257)), "<|end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * (size.n_vocab - 1) + [gguf.TokenType.CONTROL])
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])
    writer.add_eos_token_id(size.n_vocab - 1)
    for name, values in ends.items():
        writer.add_tensor(name, values)
    for i, layer in enumerate(layers):
        for name, values in layer.items():
            writer.add_tensor(f"blk.{i}.{name}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
