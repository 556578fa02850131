"""One request: its keyword arguments, checked before any model works."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import cactus_rules as cr
from cactus_rules.rules.base import check_rule

from .errors import ContextOverflowError, UnsupportedError
from .sampling import Sampling, SamplingOptions
from .speculation import Observer
from .values import check_callable, check_integer, check_seed, check_stop


class RequestOptions(SamplingOptions, total=False):
    """Keyword arguments of one request: the sampling options and these.

    Attributes:
        max_tokens: most tokens to generate, default 256; None for as many as the context holds.
        stop: strings that end the text; they are not part of it.
        seed: repeats a generation; default is made from the adapter's seed and the prompt.
        rule: acceptance rule of this request; default is the adapter's.
        observe: called after every target call with (draft laws or None, target laws,
            verification), for example to audit real rows.
        grammar: not supported yet.
    """

    max_tokens: int | None
    stop: str | Sequence[str]
    seed: int | None
    rule: cr.Rule | None
    observe: Observer | None
    grammar: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A checked request: what to continue, how, and to what end."""

    sampling: Sampling
    rule: cr.Rule
    seed: int
    max_tokens: int | None
    stop: tuple[str, ...]
    observe: Observer | None


def read_request(
    prompt: Sequence[int],
    *,
    n_vocab: int,
    n_ctx: int,
    default_rule: cr.Rule,
    default_seed: int | None,
    max_tokens: int | None = 256,
    stop: str | Sequence[str] = (),
    seed: int | None = None,
    rule: cr.Rule | None = None,
    observe: Observer | None = None,
    grammar: Any = None,
    **sampling_options: Unpack[SamplingOptions],
) -> Request:
    """Check a request to a target of `n_vocab` tokens and a context of `n_ctx`."""
    if grammar is not None:
        raise UnsupportedError(
            f"grammar={grammar!r}: grammars are not supported yet; leave it out, or mask logits "
            "with logits_processor"
        )
    if max_tokens is not None:
        max_tokens = check_integer("max_tokens", max_tokens, 1, remedy=", or None for no limit")
    check_callable("observe", observe)
    _check_prompt(prompt, n_vocab, n_ctx)
    sampling = Sampling(**sampling_options)
    sampling.check_vocabulary(n_vocab)
    return Request(
        sampling=sampling,
        rule=default_rule if rule is None else check_rule(rule),
        seed=_prompt_seed(default_seed, prompt) if seed is None else check_seed(seed),
        max_tokens=max_tokens,
        stop=check_stop(stop),
        observe=observe,
    )


def _check_prompt(prompt: Sequence[int], n_vocab: int, n_ctx: int) -> None:
    if not prompt:
        raise ValueError("prompt has no tokens; give at least one character or token id")
    if min(prompt) < 0 or max(prompt) >= n_vocab:
        raise ValueError(
            f"prompt holds token ids {min(prompt)}..{max(prompt)}; the target's lie in "
            f"0..{n_vocab - 1}"
        )
    if len(prompt) > n_ctx:
        raise ContextOverflowError(
            f"prompt: its {len(prompt)} tokens exceed n_ctx={n_ctx}; raise n_ctx or shorten the "
            "prompt"
        )


def _prompt_seed(seed: int | None, prompt: Sequence[int]) -> int:
    """Seed of a request without one: other prompts, such as a chat's next turn, get other seeds."""
    if seed is None:
        return secrets.randbits(63)
    digest = hashlib.sha256(f"{seed} {list(prompt)}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
