"""Tiny GGUF files that the tests write themselves, and a torch forward pass to compare with.

Four architectures over the same 256 bytes and three control tokens: "llama" (plain attention),
"gemma3" (sliding windows), "mamba" (recurrent) and "jamba" (both). All weights are random float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch

BOS, EOS, TURN = 256, 257, 258
VOCAB = 259
DIM, HEADS, KV_HEADS, FFN, LAYERS = 64, 2, 1, 128, 2
HEAD_DIM = DIM // HEADS
INNER, STATE, CONV, DT_RANK = 2 * DIM, 8, 4, 4
EPS = 1e-5
WINDOW = 16
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}<|turn|>{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
# Two threads that wait for each other cost far more than they gain on rows this small.
torch.set_num_threads(1)

Weights = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class TinyPair:
    """A target and a noisy copy of it, as files and as weights."""

    target: Path
    draft: Path
    target_weights: Weights
    draft_weights: Weights


def byte_symbols() -> list[str]:
    """The printable character that GPT-2's byte-level tokenizer uses for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(hidden)) for b in range(256)]


def random_weights(shapes: Shapes, seed: int) -> Weights:
    """Weights that keep the signal's size through the layers and give peaked rows at the end."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes.items():
        if "norm" in name:
            values = np.ones(shape)
        elif name.endswith("ssm_a"):  # decay rates, negative
            values = -np.tile(np.arange(1, STATE + 1), (INNER, 1))
        else:
            scale = {"token_embd.weight": 1.0, "output.weight": 2.5 * DIM**-0.5}
            values = rng.normal(0, scale.get(name, shape[-1] ** -0.5), shape)
        weights[name] = values.astype(np.float32)
    return weights


def llama_weights(seed: int = 0) -> Weights:
    """Weights of a small llama."""
    return random_weights(_shapes([_attention_block() | _ffn_block()] * LAYERS), seed)


def noisy(weights: Weights, amount: float, seed: int = 1) -> Weights:
    """The same weights with relative noise on every matrix: a draft for the original."""
    rng = np.random.default_rng(seed)
    return {
        name: (
            w if w.ndim == 1 else (w + amount * w.std() * rng.normal(size=w.shape)).astype(w.dtype)
        )
        for name, w in weights.items()
    }


def write_llama(path: Path, weights: Weights, *, symbols: list[str] | None = None) -> Path:
    """Write a small llama; `symbols` replaces the byte alphabet (for a vocabulary mismatch)."""
    writer = _writer(path, "llama", symbols)
    _attention_keys(writer)
    return _finish(path, writer, weights)


def write_gemma3(path: Path, seed: int = 2) -> Path:
    """Write a small gemma3 with a sliding window of `WINDOW` in five of six layers."""
    writer = _writer(path, "gemma3", None, blocks=6)
    _attention_keys(writer)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_sliding_window(WINDOW)
    norms = {
        "attn_q_norm.weight": (HEAD_DIM,),
        "attn_k_norm.weight": (HEAD_DIM,),
        "post_attention_norm.weight": (DIM,),
        "post_ffw_norm.weight": (DIM,),
    }
    block = _attention_block() | _ffn_block() | norms
    return _finish(path, writer, random_weights(_shapes([block] * 6), seed))


def write_mamba(path: Path, seed: int = 3) -> Path:
    """Write a small mamba, whose state cannot be cut back to an earlier token."""
    writer = _writer(path, "mamba", None)
    writer.add_head_count(0)
    _ssm_keys(writer)
    return _finish(path, writer, random_weights(_shapes([_mamba_block()] * LAYERS), seed))


def write_jamba(path: Path, seed: int = 4) -> Path:
    """Write a small hybrid: one mamba layer, one attention layer."""
    writer = _writer(path, "jamba", None)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv([0, KV_HEADS])
    _ssm_keys(writer)
    norms = {
        "ssm_dt_norm.weight": (DT_RANK,),
        "ssm_b_norm.weight": (STATE,),
        "ssm_c_norm.weight": (STATE,),
    }
    blocks = [_mamba_block() | norms | _ffn_block(), _attention_block() | _ffn_block()]
    return _finish(path, writer, random_weights(_shapes(blocks), seed))


def forward(weights: Weights, ids: list[int]) -> np.ndarray:
    """Logits (len(ids), VOCAB) of the small llama, in float32 torch."""
    w = {name: torch.from_numpy(array) for name, array in weights.items()}
    n = len(ids)
    x = w["token_embd.weight"][ids]
    angle = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]

    def norm(h: torch.Tensor, name: str) -> torch.Tensor:
        return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS) * w[name]

    def rotate(h: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(h.reshape(*h.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turn).flatten(-2)

    for i in range(LAYERS):
        b = f"blk.{i}."
        h = norm(x, b + "attn_norm.weight")
        q = rotate((h @ w[b + "attn_q.weight"].T).view(n, HEADS, HEAD_DIM))
        k = rotate((h @ w[b + "attn_k.weight"].T).view(n, KV_HEADS, HEAD_DIM))
        v = (h @ w[b + "attn_v.weight"].T).view(n, KV_HEADS, HEAD_DIM)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / HEAD_DIM**0.5
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        mixed = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(n, DIM)
        x = x + mixed @ w[b + "attn_output.weight"].T
        h = norm(x, b + "ffn_norm.weight")
        gate = torch.nn.functional.silu(h @ w[b + "ffn_gate.weight"].T)
        x = x + (gate * (h @ w[b + "ffn_up.weight"].T)) @ w[b + "ffn_down.weight"].T
    return (norm(x, "output_norm.weight") @ w["output.weight"].T).numpy()


def _shapes(blocks: list[Shapes]) -> Shapes:
    shapes: Shapes = {
        "token_embd.weight": (VOCAB, DIM),
        "output_norm.weight": (DIM,),
        "output.weight": (VOCAB, DIM),
    }
    for i, block in enumerate(blocks):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in block.items()}
    return shapes


def _attention_block() -> Shapes:
    kv = KV_HEADS * HEAD_DIM
    return {
        "attn_norm.weight": (DIM,),
        "attn_q.weight": (DIM, DIM),
        "attn_k.weight": (kv, DIM),
        "attn_v.weight": (kv, DIM),
        "attn_output.weight": (DIM, DIM),
    }


def _ffn_block() -> Shapes:
    return {
        "ffn_norm.weight": (DIM,),
        "ffn_gate.weight": (FFN, DIM),
        "ffn_up.weight": (FFN, DIM),
        "ffn_down.weight": (DIM, FFN),
    }


def _mamba_block() -> Shapes:
    return {
        "attn_norm.weight": (DIM,),
        "ssm_in.weight": (2 * INNER, DIM),
        "ssm_conv1d.weight": (INNER, CONV),
        "ssm_conv1d.bias": (INNER,),
        "ssm_x.weight": (DT_RANK + 2 * STATE, INNER),
        "ssm_dt.weight": (INNER, DT_RANK),
        "ssm_dt.bias": (INNER,),
        "ssm_a": (INNER, STATE),
        "ssm_d": (INNER,),
        "ssm_out.weight": (DIM, INNER),
    }


def _writer(
    path: Path, arch: str, symbols: list[str] | None, blocks: int = LAYERS
) -> gguf.GGUFWriter:
    tokens = [*(symbols or byte_symbols()), "<|bos|>", "<|eos|>", "<|turn|>"]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("tiny")
    writer.add_context_length(2048)
    writer.add_embedding_length(DIM)
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(FFN)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 3)
    # llama.cpp wants a merge; the result of this one is not in the vocabulary.
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_eot_token_id(TURN)
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)
    return writer


def _attention_keys(writer: gguf.GGUFWriter) -> None:
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)


def _ssm_keys(writer: gguf.GGUFWriter) -> None:
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(DT_RANK)


def _finish(path: Path, writer: gguf.GGUFWriter, weights: Weights) -> Path:
    for name, array in weights.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
