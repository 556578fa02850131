"""Seconds on this machine: prompt-lookup drafts on texts that repeat themselves, with SmolLM2.

    python benchmarks/prompt_lookup.py [--types F16 Q8_0] [--seeds 2] [--threads 2]

Every prompt asks for text that copies from it. For each target type, plain decoding and three rules
run in turns (rule after rule for one prompt and seed), so that a busy machine slows all of them;
the figure is the median over prompts and seeds of the ratio of tokens per second to plain decoding.
From the measured cost of batches and the measured acceptance the cost model predicts the speed-up,
the best draft length, and what another machine would make of the same acceptance.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from dataclasses import dataclass, field

import numpy as np
from decoding import tokens_per_second

import cactus_rules as cr
from cactus_rules.adapters.llamacpp import SpeculativeLlama
from cactus_rules.adapters.llamacpp.quantize import requantize
from cactus_rules.cli.demo import packaged_model
from cactus_rules.cost import CostModel

CODE = """\
def load_config(path):
    with open(path) as handle:
        config = json.load(handle)
    config["path"] = path
    return config

def save_config(config, path):
    with open(path, "w") as handle:
        json.dump(config, handle)
"""
TEXT = (
    "The saguaro is a tree-like cactus that can grow over 12 metres tall. It is native to the "
    "Sonoran Desert. The saguaro blossom is the state wildflower of Arizona. Its growth rate is "
    "strongly dependent on precipitation; saguaros in drier western Arizona grow only half as fast."
)
PROMPTS = (
    f"Repeat this code without changes:\n\n{CODE}\nRepeated:\n\n{CODE[:40]}",
    f"# Version 1\n{CODE}\n# Version 2: the same with load_config renamed to read_config\n",
    f'Text: {TEXT}\n\nSummary with quotes from the text: The text says that "The saguaro is a',
    f"Original: {TEXT}\n\nCorrected: The saguaro is",
)
RULES = {
    "lossless": cr.Lossless(),
    "cactus(0.1)": cr.Cactus(0.1),
    "mentored(0.1)": cr.Mentored(0.1),
}
K = 6
MAX_TOKENS = 64
SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
NEARLY_FREE = CostModel({1: 1.0, 17: 1.1})


@dataclass
class Run:
    """What the target calls of one rule did."""

    metrics: cr.Metrics = field(default_factory=cr.Metrics)
    lengths: list[int] = field(default_factory=list)

    def add(self, result: cr.Verification) -> None:
        """Count one call."""
        self.metrics.add(result)
        self.lengths.append(int(result.num_draft_tokens))


def batch_costs(llama: SpeculativeLlama, sizes: tuple[int, ...] = (1, 2, 3, 5, 7, 9)) -> CostModel:
    """Median seconds of target calls by size, in turns, at a context of some 100 tokens."""
    model = llama.target
    model.rollback(0)
    ids = model.vocabulary.tokenize(TEXT)[:96]
    model.prefill(ids)
    taken: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(9):
        for size in sizes:
            start = time.perf_counter()
            model.step(ids[:size])
            taken[size].append(time.perf_counter() - start)
            model.rollback(len(ids))
    return CostModel({size: statistics.median(values) for size, values in taken.items()})


def measure(path: str, seeds: int, threads: int | None) -> None:
    """One table for one target file."""
    options = {"n_ctx": 1024, "n_threads": threads}
    plain = SpeculativeLlama(path, None, **options)
    drafted = SpeculativeLlama(path, "ngram", num_draft_tokens=K, **options)
    costs = batch_costs(plain)
    ratios: dict[str, list[float]] = {name: [] for name in RULES}
    runs = {name: Run() for name in RULES}
    for prompt in PROMPTS:
        for seed in range(seeds):
            base = speed(plain, prompt, seed, None, None)
            for name, rule in RULES.items():
                rate = speed(drafted, prompt, seed, rule, runs[name])
                ratios[name].append(rate / base)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    single = costs.batch[1]
    print("cost of a call by its tokens, in single calls: ", end="")
    print(", ".join(f"{size}: {cost / single:.2f}" for size, cost in costs.batch.items()))
    print("\n| rule | speed / plain, median (range) | predicted | tokens per target call "
          "| accepted / tested | KL spent per token, bound | best K here: speed-up "
          "| best K where batches are nearly free: speed-up |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for name, values in ratios.items():
        run = runs[name]
        m, rate = run.metrics, run.metrics.tested_acceptance_rate
        predicted = m.num_emitted_tokens * single / sum(map(costs.call, run.lengths))
        best = [
            f"{k}: {model.speedup(rate, k):.2f}"
            for model in (costs, NEARLY_FREE)
            for k in (model.best_length(rate),)
        ]
        print(
            f"| {name} | {statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f}) "
            f"| {predicted:.2f} | {m.num_emitted_tokens / m.num_target_calls:.2f} | {rate:.2f} "
            f"| {m.kl_spent:.3f} | {best[0]} | {best[1]} |"
        )
    plain.close()
    drafted.close()


def speed(
    llama: SpeculativeLlama, prompt: str, seed: int, rule: cr.Rule | None, into: Run | None
) -> float:
    """Tokens per second of one generation."""
    return tokens_per_second(
        llama.generate(
            prompt,
            max_tokens=MAX_TOKENS,
            seed=seed,
            rule=rule,
            observe=None if into is None else lambda p, q, result: into.add(result),
            **SAMPLING,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", nargs="+", default=["F16", "Q8_0"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    print(f"{arguments.threads} threads; ngram drafts, K <= {K}, {SAMPLING}")
    for kind in arguments.types:
        path = requantize(packaged_model(), kind)
        print(f"\n### Target SmolLM2-135M-Instruct, {kind}\n")
        measure(str(path), arguments.seeds, arguments.threads)


if __name__ == "__main__":
    main()
