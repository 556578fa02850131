"""The llama.cpp adapter on a GPU: correctness first, then tokens per second of five ways to decode.

    python benchmarks/gpu_llamacpp.py                        # under four minutes on a GPU
    python benchmarks/gpu_llamacpp.py --gpu-layers 0 --small # a rehearsal on the CPU

Prints Markdown and exits with 1 if a check failed. Needs numpy, scipy, gguf, torch and a CUDA build
of llama-cpp-python, or `--gpu-backend libggml-cuda.so` beside a CPU build
(scripts/build_llamacpp_cuda.sh makes both). No model is downloaded: the pairs are made on the spot,
or name files with `--target` and `--draft`.

Checks, on a tiny F32 pair: the log's word for where every layer lies; logits on the device against
the CPU; whether a batch gives the bits of single calls; greedy speculation against plain greedy;
chi-square of sampled tokens against the exact law, which is the target's for Lossless and
`output_law(p, q, rule)` for Mentored.
"""

from __future__ import annotations

import argparse
import logging
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import made_pair  # puts the folder of tiny_gguf and table_model on the path
import numpy as np
import tiny_gguf

# Before llama_cpp: a CUDA build of torch brings CUDA's libraries into the process.
import torch
from decoding import tokens_per_second
from table_model import chi_square, softmax

import cactus_rules as cr
from cactus_rules.adapters.llamacpp import (
    LlamaModel,
    ModelOptions,
    SpeculativeLlama,
    available_backends,
    library,
    load_backend,
)
from cactus_rules.cli.demo import PROMPTS

PROMPT = [tiny_gguf.BOS, *b"Near the dunes"]
NO_END = {tiny_gguf.BOS: -np.inf, tiny_gguf.EOS: -np.inf, tiny_gguf.TURN: -np.inf}
Prompt: TypeAlias = str | list[int]
# Products in TF32 keep 10 bits: 2^-11 relative, on logits up to some 10, through two layers.
LOGIT_TV = 0.02
# A right build fails one of the two chi-square tests with a probability of 0.002. That Mentored is
# told from the target has a p-value of about 1e-9 at 400 seeds.
LEVEL = 1e-3
DECODINGS: dict[str, tuple[cr.Rule | None, str]] = {
    "plain decoding": (None, ""),
    "sample-match": (cr.SampleMatch(), "greedy"),
    "Lossless()": (cr.Lossless(), "sample"),
    "Mentored(0.1)": (cr.Mentored(0.1), "sample"),
    "Cactus(0.1)": (cr.Cactus(0.1), "sample"),
}


class Checks:
    """Prints a line per check and remembers the failures."""

    def __init__(self) -> None:
        self.failed = 0

    def __call__(self, passed: bool, text: str) -> None:
        """One check."""
        self.failed += not passed
        print(f"- {'ok' if passed else 'FAILED'}: {text}", flush=True)


@contextmanager
def logged() -> Iterator[list[str]]:
    """The lines that llama.cpp logs meanwhile."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    level = library.logger.level
    library.logger.addHandler(handler)
    library.logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        library.logger.removeHandler(handler)
        library.logger.setLevel(level)


def check_offload(check: Checks, lines: list[str], gpu_layers: int) -> None:
    """Every layer on the device that was asked for."""
    devices = re.findall(r"layer +\d+ assigned to device (\w+)", "\n".join(lines))
    on_gpu = sum(name != "CPU" for name in devices)
    wanted = len(devices) if gpu_layers == -1 else min(gpu_layers, len(devices))
    check(
        bool(devices) and on_gpu == wanted,
        f"{on_gpu} of {len(devices)} layers on a GPU ({', '.join(sorted(set(devices)))}), "
        f"{wanted} were asked for",
    )
    for line in lines:
        if re.search(r"offloaded \d+/\d+ layers|model buffer size|KV buffer size", line):
            print(f"  - `{re.sub(' +', ' ', line)}`")


def check_rows(check: Checks, path: Path, options: ModelOptions) -> None:
    """Logits of the device against the CPU, and of batches against single calls."""
    ids = [*PROMPT, *b" the old fox"]
    with_device, on_cpu = LlamaModel(path, options), LlamaModel(path, ModelOptions(n_ctx=256))
    here, there = with_device.step(ids), on_cpu.step(ids)
    tv = 0.5 * abs(softmax(here) - softmax(there)).sum(-1).max()
    check(tv < LOGIT_TV, f"logits against the CPU: TV at most {tv:.1e}, {LOGIT_TV} allowed")
    with_device.rollback(0)
    single = np.concatenate([with_device.step([token]) for token in ids])
    for size in (2, 5, 9):
        with_device.rollback(0)
        rows = [with_device.step(ids[i : i + size]) for i in range(0, len(ids), size)]
        tv = 0.5 * abs(softmax(np.concatenate(rows)) - softmax(single)).sum(-1).max()
        equal = "bit-equal" if np.array_equal(np.concatenate(rows), single) else "not bit-equal"
        check(tv < LOGIT_TV, f"calls of {size} tokens against single ones: {equal}, TV {tv:.1e}")
    with_device.close()
    on_cpu.close()


def check_greedy(check: Checks, plain: SpeculativeLlama, fast: SpeculativeLlama) -> None:
    """Greedy speculation writes what plain greedy decoding writes, or parts at a near tie."""
    equal, gaps = 0, []
    for first in b"ABCDEFGH":
        prompt = [*PROMPT, first]
        a, b = (
            llama.complete(prompt, max_tokens=48, temperature=0, logit_bias=NO_END).token_ids
            for llama in (plain, fast)
        )
        equal += a == b
        if a != b:
            at = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
            plain.target.rollback(0)
            row = softmax(plain.target.step([*prompt, *a[:at]])[-1])
            gaps.append(float(abs(row[a[at]] - row[b[at]])))
    apart = f"; the others part where two tokens differ by at most {max(gaps):.1e}" if gaps else ""
    check(not gaps or max(gaps) < 2 * LOGIT_TV, f"greedy texts equal: {equal} of 8{apart}")


def check_laws(check: Checks, llama: SpeculativeLlama, seeds: int) -> None:
    """The first token of many generations against the law of its rule."""
    for rule in (cr.Lossless(), cr.Mentored(0.1)):
        counts = np.zeros(tiny_gguf.VOCAB)
        calls: list[tuple[np.ndarray, np.ndarray]] = []
        for seed in range(seeds):
            done = llama.complete(
                PROMPT,
                max_tokens=2,
                seed=seed,
                rule=rule,
                logit_bias=NO_END,
                observe=lambda p, q, _result, calls=calls: calls.append((p, q)),
            )
            counts[done.token_ids[0]] += 1
        p, q = (rows[0] for rows in calls[0])
        value = chi_square(counts, np.asarray(cr.output_law(p, q, rule)))
        check(value > LEVEL, f"{rule!r}: chi-square over {seeds} seeds, p-value {value:.3f}")
        if not isinstance(rule, cr.Lossless):
            value = chi_square(counts, np.asarray(cr.output_law(p, q, cr.Lossless())))
            check(value < LEVEL, f"the test tells {rule!r} from the target: p-value {value:.1e}")


def measure(
    target: Path, draft: Path, load: dict[str, int], tokens: int, prompts: Sequence[Prompt]
) -> Iterator[str]:
    """Rows of the table of decodings; all run in turns, prompt after prompt, to full length."""
    rates: dict[str, list[float]] = {name: [] for name in DECODINGS}
    metrics = {name: cr.Metrics() for name in DECODINGS}
    plain = SpeculativeLlama(target, None, **load)
    sampled = SpeculativeLlama(target, draft, adaptive=False, **load)
    greedy = SpeculativeLlama(target, draft, adaptive=False, draft_sampling="greedy", **load)
    vocabulary = plain.target.vocabulary
    no_end = {i: -np.inf for i in range(vocabulary.n_tokens) if vocabulary.is_end(i)}
    for prompt in [prompts[0], *prompts]:  # the first round warms up
        for name, (rule, drawn) in DECODINGS.items():
            llama = {"": plain, "greedy": greedy, "sample": sampled}[drawn]
            generation = llama.generate(
                prompt,
                rule=rule,
                max_tokens=tokens,
                seed=len(rates[name]),
                logit_bias=no_end,
                observe=lambda _p, _q, result, into=metrics[name]: into.add(result),
            )
            rates[name].append(tokens_per_second(generation))
    base = rates["plain decoding"][1:]
    for name, values in rates.items():
        m, kept = metrics[name], values[1:]
        ratio = statistics.median(a / b for a, b in zip(kept, base, strict=True))
        rate = "–" if m.num_draft_tokens == 0 else f"{m.draft_acceptance_rate:.2f}"
        calls = m.num_emitted_tokens / m.num_target_calls
        yield f"| {name} | {calls:.2f} | {rate} | {statistics.median(kept):.1f} | {ratio:.2f} |"
    for llama in (plain, sampled, greedy):
        llama.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu-layers", type=int, default=-1, help="-1 for all, 0 for the CPU")
    parser.add_argument("--gpu-backend", type=Path, help="a plug-in for a CPU build")
    parser.add_argument("--small", action="store_true", help="a small made pair, fewer seeds")
    parser.add_argument("--target", type=Path, help="a GGUF file to measure, with --draft")
    parser.add_argument("--draft", type=Path)
    arguments = parser.parse_args()
    if (arguments.target is None) != (arguments.draft is None):
        parser.error("--target and --draft go together")
    if arguments.gpu_backend is not None:
        load_backend(arguments.gpu_backend)
    load = {"n_gpu_layers": arguments.gpu_layers, "n_ctx": 512}
    started = time.perf_counter()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU seen by torch"
    print(f"{gpu}; llama-cpp-python {library.llama_cpp.__version__}, "
          f"backends {', '.join(available_backends())}; "
          f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}; "
          f"layers on the GPU: {arguments.gpu_layers}\n")  # fmt: skip
    check = Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = tiny_gguf.llama_weights()
        tiny = tiny_gguf.write_llama(folder / "tiny.gguf", weights)
        noisy = tiny_gguf.write_llama(folder / "noisy.gguf", tiny_gguf.noisy(weights, 0.2))
        with logged() as lines:
            plain = SpeculativeLlama(tiny, None, **load)
        with plain, SpeculativeLlama(tiny, noisy, adaptive=False, **load) as fast:
            check_offload(check, lines, arguments.gpu_layers)
            check_rows(check, tiny, ModelOptions(**load))
            check_greedy(check, plain, fast)
            check_laws(check, fast, 400 if arguments.small else 2000)
        if arguments.target is None:
            size = made_pair.SMALL if arguments.small else made_pair.Size()
            target, draft = made_pair.write_pair(folder, size)
            print(f"\nPair made on the spot, F16: {size}; K = 4, temperature 1\n")
        else:
            target, draft = arguments.target, arguments.draft
            print(f"\n{target.name} with {draft.name}; K = 4, temperature 1\n")
        print("| decoding | tokens per target call | accepted / drafted | tokens/s | ratio |")
        print("|---|---|---|---|---|")
        prompts: Sequence[Prompt] = PROMPTS
        if arguments.target is None:
            prompts = [np.random.default_rng(i).integers(0, 256, 48).tolist() for i in range(5)]
        if arguments.small:
            prompts = prompts[:3]
        for row in measure(target, draft, load, 32 if arguments.small else 128, prompts):
            print(row)
    print(f"\n{check.failed} checks failed; {time.perf_counter() - started:.0f} s")
    sys.exit(check.failed > 0)


if __name__ == "__main__":
    main()
