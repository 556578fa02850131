"""The command line: `cactus-rules generate`, `rules`, `theory`, `demo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import cactus_rules
from cactus_rules.cli import demo, generate, listing, theory
from cactus_rules.cli.flags import in_flags

_COMMANDS = (generate, listing, theory, demo)

_EPILOG = """\
examples:
  cactus-rules rules
      every acceptance rule, its parameters and what it promises about which law
  cactus-rules generate --target big.gguf --draft small.gguf --rule mentored --delta 0.1 -p "Once"
      generate with a draft model; the text moves at most 0.1 nats per token from the target
  cactus-rules generate --target big.gguf --draft ngram --rule lossless -p "$(cat code.py)"
      drafts looked up in the text itself, no second model
  cactus-rules generate --target big.gguf --draft requantize:Q2_K --rule cactus --delta 0.05 -p "Hi"
      the draft is made from the target by llama.cpp's quantiser, once
"""


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(
        prog="cactus-rules",
        description="Acceptance rules for speculative decoding, with their guarantees.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=cactus_rules.__version__)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.register(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; errors that a user can mend are one line on stderr and exit code 2."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        # The verifier has options of its own, its help among them.
        if words[:1] == ["theory"]:
            return theory.run(words[1:])
        arguments = parser().parse_args(words)
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (ValueError, ImportError, NotImplementedError, OSError, RuntimeError) as error:
        print(f"cactus-rules: {in_flags(str(error))}", file=sys.stderr)
        return 2
