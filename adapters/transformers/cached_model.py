"""One model with one sequence in its KV cache, which can be cut back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from .library import transformers


class CachedModel:
    """A transformers model, a cache and the text that it holds.

    Layers with a sliding window or a short convolution forget what a rollback would need, unless
    they are told to keep it until the next `rollback`; they are, from the end of the prompt on.

    Attributes:
        model: the model.
        cache: its cache.
        length: how many tokens the cache holds.
    """

    def __init__(
        self, model: Any, inputs: dict[str, Any], *, argument: str, chunk_size: int | None = None
    ) -> None:
        """Continue the cache in `inputs`, the keyword arguments for the model's forward call.

        Entries with a value per token (an attention mask, position ids) are prolonged as the text
        grows. `argument` is the caller's name for the model. A prompt longer than `chunk_size` is
        evaluated in pieces.

        Raises:
            UnsupportedError: a cache that cannot be cut back.
        """
        self.model = model
        self.cache: Any = inputs.get("past_key_values")
        if not isinstance(self.cache, transformers.DynamicCache):
            raise UnsupportedError(
                f"{argument}: its cache is {type(self.cache).__name__}; only a DynamicCache can be "
                "cut back to the accepted tokens. Leave cache_implementation and past_key_values "
                "out, with use_cache=True"
            )
        self.length: int = self.cache.get_seq_length()
        self._argument = argument
        self._chunk_size = chunk_size
        self._inputs = inputs
        self._started = False

    def logits(self, text: Tensor, rows: int) -> Tensor:
        """Evaluate the end of `text (1, L)` that the cache lacks: logits of the last `rows` tokens.

        Returns:
            float32 `(rows, V)` on the device of `text`; row i is about what follows token
            L - rows + i.
        """
        if self._started:
            return self._evaluate(text, rows)
        if self._chunk_size is not None:
            for end in range(self.length + self._chunk_size, text.shape[1], self._chunk_size):
                self._evaluate(text[:, :end], 1)
        logits = self._evaluate(text, rows)
        self._start_recording()
        return logits

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens of the cache; call it once after each round."""
        if self._started:
            # A count of 0 matters too: windowed layers then drop what they kept.
            removed = max(self.length - length, 0)
            self.cache.crop(-removed)
            self.length -= removed

    def stop_recording(self) -> None:
        """Give the cache back as an ordinary one."""
        for layer in self.cache.layers:
            if hasattr(layer, "record_past"):
                layer.record_past = False

    def _evaluate(self, text: Tensor, rows: int) -> Tensor:
        length = text.shape[1]
        inputs = self.model.prepare_inputs_for_generation(
            text,
            next_sequence_length=length - self.length,
            is_first_iteration=not self._started,
            **{name: fit_to_text(name, value, length) for name, value in self._inputs.items()},
        )
        if "logits_to_keep" in inputs:
            inputs["logits_to_keep"] = rows
        logits: Tensor = self.model(**inputs, return_dict=True).logits
        self.length = length
        return logits[0, -rows:].to(device=text.device, dtype=torch.float32, copy=True)

    def _start_recording(self) -> None:
        self._started = True
        if not self.cache.is_croppable:
            raise UnsupportedError(
                f"{self._argument}: {type(self.model).__name__} keeps a recurrent state, which "
                "cannot be cut back to the accepted tokens; use a model with attention caches"
            )
        self.cache.activate_past_recording()


def fit_to_text(name: str, value: Any, length: int) -> Any:
    """A keyword argument of a forward call, cut or prolonged to `length` tokens if it has as many.

    The mask goes on with ones, positions count on, token types repeat the last one.
    """
    if name not in ("attention_mask", "position_ids", "token_type_ids", "mm_token_type_ids"):
        return value
    if value is None or value.shape[-1] >= length:
        return value if value is None else value[..., :length]
    more = length - value.shape[-1]
    tail = value[..., -1:].expand(*value.shape[:-1], more)
    if name == "attention_mask":
        tail = torch.ones_like(tail)
    elif name == "position_ids":
        tail = tail + torch.arange(1, more + 1, device=tail.device, dtype=tail.dtype)
    elif name == "mm_token_type_ids":
        tail = torch.zeros_like(tail)
    return torch.cat([value, tail], dim=-1)
