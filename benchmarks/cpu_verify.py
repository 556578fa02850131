"""Verification on the CPU: ours against other shapes of the same code, in one run, as ratios.

    python benchmarks/cpu_verify.py [--batch 8 --drafted 8 --vocabulary 151936] [--inductor]

All methods run in turn, round after round, and medians are compared, so that a busy machine slows
all of them alike. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from verify_peers import all_residuals, batch, full_vocabulary

import cactus_rules as cr
from cactus_rules.adapters.torch import verify

Method = Callable[[], object]
Verify = Callable[[], cr.Verification]


def methods(
    shape: tuple[int, int, int], inductor: bool
) -> dict[str, tuple[Method | None, Method | None]]:
    """Each method from probabilities and from logits."""
    p_logits, q_logits, tokens = batch(shape, "cpu")
    p, q = torch.softmax(p_logits, -1), torch.softmax(q_logits, -1)
    names = {"seeds": torch.arange(shape[0]), "steps": torch.zeros(shape[0], dtype=torch.int64)}

    def ours(rule: cr.Rule) -> tuple[Verify, Verify]:
        return (
            lambda: verify(p, q, tokens, rule, **names),
            lambda: verify(p_logits, q_logits, tokens, rule, logits=True, **names),
        )

    def torch_path(function: Callable[..., object]) -> tuple[Method, Method]:
        return (
            lambda: function(p, q, tokens),
            lambda: function(torch.softmax(p_logits, -1), torch.softmax(q_logits, -1), tokens),
        )

    found: dict[str, tuple[Method | None, Method | None]] = {
        "`verify`, `Cactus(0.5)`": ours(cr.Cactus(0.5)),
        "`verify`, `Lossless()`": ours(cr.Lossless()),
        "full-vocabulary Cactus (h at every position)": torch_path(full_vocabulary),
        "vLLM-style torch path (residual at every position)": torch_path(all_residuals),
    }
    if inductor:
        found["`verify`, `Lossless()`, compiled"] = (compiled(ours(cr.Lossless())[0]), None)
    try:
        found["transformers `_speculative_sampling`, one call per request"] = (
            None,
            _transformers(p_logits, q_logits, tokens),
        )
    except ImportError as error:
        print(f"transformers left out: {error}\n")
    found["`verify`, `Mentored(0.5)` (sorts and searches both rows)"] = ours(cr.Mentored(0.5))
    return found


def compiled(method: Verify) -> Method:
    """The method as Inductor compiles it; its tokens must be those of the method itself."""
    fast = torch.compile(method, fullgraph=True)
    start = time.perf_counter()
    if not torch.equal(fast().token_ids, method().token_ids):
        raise AssertionError("compiled code emits other tokens")
    print(f"compiled by Inductor in {time.perf_counter() - start:.0f} s, same tokens\n")
    return fast


def _transformers(draft: torch.Tensor, target: torch.Tensor, tokens: torch.Tensor) -> Method:
    """The library's own function, which takes one request at a time."""
    from transformers.generation.utils import _speculative_sampling

    length = tokens.shape[1]

    def run() -> None:
        for b in range(len(tokens)):
            _speculative_sampling(
                tokens[b : b + 1], draft[b : b + 1], length, target[b : b + 1], False
            )

    try:
        run()
    except TypeError:
        raise ImportError("its signature has changed") from None
    return run


def measure(
    found: dict[str, tuple[Method | None, Method | None]], rounds: int
) -> dict[str, list[float]]:
    """Median milliseconds of each method, from probabilities and from logits."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in found}
    for i in range(rounds + 1):
        for name, pair in found.items():
            if "Mentored" in name and i > 2:
                continue
            for column, method in enumerate(pair):
                start = time.perf_counter()
                if method is not None:
                    method()
                if i > 0:
                    times[name][column].append(1e3 * (time.perf_counter() - start))
    return {name: [statistics.median(column) for column in pair] for name, pair in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--drafted", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--inductor", action="store_true", help="also compiled code, which takes minutes to make"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = methods((args.batch, args.drafted, args.vocabulary), args.inductor)
    medians = measure(found, args.rounds)
    ours = next(iter(medians.values()))
    print(
        f"B={args.batch}, K={args.drafted}, V={args.vocabulary}, float32, {args.threads} threads, "
        f"median of {args.rounds} rounds; torch {torch.__version__}, Python "
        f"{platform.python_version()}, {platform.machine()}\n"
    )
    print("| method | from probabilities, ms | ratio | from logits, ms | ratio |")
    print("|---|---|---|---|---|")
    for name, values in medians.items():
        cells = [
            f"{value:.1f} | {value / base:.1f}" if method is not None else "- | -"
            for value, base, method in zip(values, ours, found[name], strict=True)
        ]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
