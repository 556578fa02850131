"""Chat prompts from the template inside a GGUF file."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ModelFileError
from .library import llama_cpp
from .weights import Weights

Messages = Sequence[Mapping[str, Any]]


def chat_prompt(weights: Weights, messages: Messages) -> list[int]:
    """Token ids of `messages` in the model's own chat format, ready for the assistant's answer.

    A message is a mapping with the keys "role" ("system", "user" or "assistant") and "content".
    """
    template = llama_cpp.llama_model_chat_template(weights.handle, None)
    if not template:
        raise ModelFileError(
            f"target={str(weights.path)!r} has no chat template; use an instruct model, or "
            "complete() with a prompt that you format yourself"
        )
    for i, message in enumerate(messages):
        if lacking := {"role", "content"} - set(message):
            raise ValueError(f"messages[{i}] lacks {sorted(lacking)}; give 'role' and 'content'")
    vocabulary = weights.vocabulary
    bos = vocabulary.raw_text(vocabulary.bos).decode("utf-8", "replace")
    eos = vocabulary.raw_text(vocabulary.eos).decode("utf-8", "replace")
    formats = importlib.import_module("llama_cpp.llama_chat_format")
    formatter = formats.Jinja2ChatFormatter(template.decode("utf-8"), eos, bos)
    text: str = formatter(messages=list(messages)).prompt
    return vocabulary.tokenize(text, add_special=not (bos and text.startswith(bos)))
