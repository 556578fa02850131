"""`cactus-rules generate`: text from a GGUF target, a draft and any acceptance rule."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cactus_rules.cli.flags import in_flags, integer, number, text
from cactus_rules.cli.rule_options import add_rule_options, read_rule

if TYPE_CHECKING:
    from cactus_rules.adapters.generation import Completion, Generation
    from cactus_rules.adapters.llamacpp import SpeculativeLlama

_EPILOG = """\
examples:
  cactus-rules generate --target big.gguf --draft small.gguf --rule lossless -p "Once upon a time"
      exactly the target's law, faster
  cactus-rules generate --target big.gguf --draft small.gguf --rule mentored --delta 0.1 -p "Once"
      accept more: each token's law moves at most 0.1 nats (KL) from the target's
  cactus-rules generate --target big.gguf --draft requantize:Q2_K --rule cactus --delta 0.05 \\
      --temperature 0.6 --top-k 20 --top-p 0.95 --seed 1 --chat -p "What is a cactus?"
  cactus-rules generate --target big.gguf --draft ngram --rule top-k --param k=5 -p "Once"
      rules without a budget take their parameters by name; see `cactus-rules rules`
  cactus-rules generate --target big.gguf --draft none -p "Once"
      plain decoding, to compare with
"""


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "generate",
        help="generate text with a GGUF target, a draft and an acceptance rule",
        description="Streams the text, then prints what speculation did. Needs the llamacpp extra: "
        "pip install '.[llamacpp]' in the project's folder.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    models = parser.add_argument_group("models")
    models.add_argument("--target", required=True, metavar="T.gguf", help="the target model")
    models.add_argument(
        "--draft",
        required=True,
        metavar="D",
        help="a GGUF file; ngram (looked up in the text); requantize:TYPE, for example "
        "requantize:Q2_K (made from the target, cached); or none (plain decoding)",
    )
    models.add_argument(
        "--ctx", type=integer(1), metavar="N", help="context length (default: 4096)"
    )
    models.add_argument(
        "--threads", type=integer(1, 512), metavar="N", help="CPU threads, at most 512"
    )
    models.add_argument(
        "--gpu-layers",
        type=integer(-1),
        default=0,
        metavar="N",
        help="layers on the GPU; -1 for all",
    )
    models.add_argument(
        "--gpu-backend",
        type=Path,
        metavar="FILE",
        help="a ggml backend, such as libggml-cuda.so, to add to a CPU build of llama-cpp-python",
    )
    add_rule_options(parser, "lossless")
    _add_speculation_options(parser)
    _add_sampling_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object: text and metrics")
    parser.set_defaults(run=run)


def _add_speculation_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("speculation")
    group.add_argument(
        "-k",
        "--num-draft-tokens",
        type=integer(1),
        default=4,
        metavar="K",
        help="most tokens drafted for one target call (default: 4)",
    )
    group.add_argument(
        "--fixed-length", action="store_true", help="always draft K tokens, do not adapt"
    )
    group.add_argument(
        "--draft-sampling",
        choices=("sample", "greedy"),
        default="sample",
        help="draw drafts from the draft's law, or take its argmax (read as one-hot)",
    )


def _add_sampling_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("text and sampling (applied to both models)")
    prompt = group.add_mutually_exclusive_group(required=True)
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; - reads stdin")
    prompt.add_argument("--prompt-file", type=Path, metavar="FILE", help="a file of UTF-8 text")
    group.add_argument("--chat", action="store_true", help="use the target's chat template")
    group.add_argument(
        "-n",
        "--max-tokens",
        type=integer(1),
        default=128,
        metavar="N",
        help="at most (default: 128)",
    )
    group.add_argument(
        "--stop", type=text, action="append", default=[], metavar="TEXT", help="ends the text"
    )
    seed = integer(-(2**63), 2**64 - 1)
    group.add_argument("--seed", type=seed, metavar="N", help="repeats a generation")
    at_least_0 = number("a number >= 0", lambda x: x >= 0)
    group.add_argument(
        "--temperature", type=at_least_0, default=1.0, metavar="T", help="default: 1; 0 is greedy"
    )
    group.add_argument("--top-k", type=integer(0), default=0, metavar="K", help="0 keeps all")
    mass = number("a number in (0, 1]", lambda x: 0 < x <= 1)
    group.add_argument("--top-p", type=mass, default=1.0, metavar="P", help="1 keeps all")
    share = number("a number in [0, 1]", lambda x: 0 <= x <= 1)
    group.add_argument("--min-p", type=share, default=0.0, metavar="P", help="0 keeps all")
    above_0 = number("a number > 0", lambda x: x > 0)
    group.add_argument(
        "--repetition-penalty", type=above_0, default=1.0, metavar="X", help="1 is off"
    )
    for name in ("--frequency-penalty", "--presence-penalty"):
        group.add_argument(
            name,
            type=number("a finite number", lambda x: True),
            default=0.0,
            metavar="X",
            help="0 is off",
        )


def run(arguments: argparse.Namespace) -> int:
    """Generate, and print the text and the table."""
    rule = read_rule(arguments)
    prompt = _prompt(arguments)
    from cactus_rules.adapters.llamacpp import SpeculativeLlama, load_backend

    if arguments.gpu_backend is not None:
        load_backend(arguments.gpu_backend)
    with (
        warnings_on_stderr(),
        SpeculativeLlama(
            arguments.target,
            None if arguments.draft == "none" else arguments.draft,
            rule=rule,
            num_draft_tokens=arguments.num_draft_tokens,
            adaptive=not arguments.fixed_length,
            draft_sampling=arguments.draft_sampling,
            n_ctx=arguments.ctx,
            n_threads=arguments.threads,
            n_gpu_layers=arguments.gpu_layers,
        ) as llama,
    ):
        start = time.perf_counter()
        generation = _start(llama, prompt, arguments)
        interrupted = _stream(generation, show=not arguments.json)
        completion = generation.completion
        seconds = time.perf_counter() - start
    if arguments.json:
        print(json.dumps(_as_json(completion, seconds)))
    else:
        print(f"\n\n{table(completion, seconds)}", file=sys.stderr)
    return 130 if interrupted else 0


class _InFlags(logging.Formatter):
    """A warning as the command line writes its errors."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, with flags in the place of Python's arguments."""
        return f"cactus-rules: warning: {in_flags(record.getMessage())}"


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Show what the adapter warns of; llama.cpp's own log stays silent."""
    logger = logging.getLogger("cactus_rules.llamacpp.model")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_InFlags())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _prompt(arguments: argparse.Namespace) -> str:
    if arguments.prompt_file is not None:
        try:
            return str(arguments.prompt_file.read_text(encoding="utf-8"))
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ValueError(f"--prompt-file {arguments.prompt_file}: {reason}") from None
    return sys.stdin.read() if arguments.prompt == "-" else str(arguments.prompt)


def _start(llama: SpeculativeLlama, prompt: str, arguments: argparse.Namespace) -> Generation:
    options: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in (
            "max_tokens",
            "stop",
            "seed",
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "repetition_penalty",
            "frequency_penalty",
            "presence_penalty",
        )
    }
    if arguments.chat:
        return llama.chat_stream([{"role": "user", "content": prompt}], **options)
    return llama.generate(prompt, **options)


def _stream(generation: Generation, *, show: bool) -> bool:
    """Print pieces as they come; whether Ctrl-C broke it off."""
    try:
        for piece in generation:
            if show:
                print(piece, end="", flush=True)
    except KeyboardInterrupt:
        return True
    return False


def _as_json(completion: Completion, seconds: float) -> dict[str, Any]:
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "logprobs": completion.logprobs,
        "finish_reason": completion.finish_reason,
        "seed": completion.seed,
        "num_prompt_tokens": completion.num_prompt_tokens,
        "seconds": seconds,
        "metrics": completion.metrics.as_dict(),
    }


def table(completion: Completion, seconds: float) -> str:
    """What speculation did, for people."""
    metrics, count = completion.metrics, len(completion.token_ids)
    kl, drafted = metrics.kl_spent, metrics.num_draft_tokens > 0
    rows = [
        (
            "tokens per target call",
            f"{count / max(metrics.num_target_calls, 1):.2f} (all calls, also without a draft)",
        ),
        (
            "mean acceptance length",
            f"{metrics.mean_acceptance_length:.2f} (calls with a draft: 1 + accepted tokens)",
        ),
        ("acceptance rate", "-" if not drafted else f"{metrics.draft_acceptance_rate:.3f}"),
        (
            "KL spent per token",
            "unknown for this rule"
            if kl is None
            else f"{kl:.4f} nats (bounds KL(output||target) in expectation)",
        ),
        ("tokens per second", f"{count / seconds:.1f} ({count} tokens, prompt included in time)"),
        ("finish reason, seed", f"{completion.finish_reason or 'interrupted'}, {completion.seed}"),
    ]
    return "\n".join(f"{name:<24}{value}" for name, value in rows)
