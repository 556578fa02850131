"""One GGUF model with one sequence in its cache: feed tokens, read logits, take tokens back.

This is the llama.cpp side of the `Model` protocol in `..speculation`. The object knows which tokens
the cache holds. If an exception (Ctrl-C included) interrupts a call, the next one first compares
its books with llama.cpp's memory, so the object stays usable.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ContextOverflowError, EngineError
from .library import llama_cpp, take_error
from .options import ModelOptions
from .weights import Weights

logger = logging.getLogger("cactus_rules.llamacpp.model")
"""The adapter's own warnings; llama.cpp's go to the logger above it."""

_PARTIAL_STATE = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: leave out what can be cut by position
_DECODE_FAILURES = {
    1: "there is no free cell in the cache",
    2: "the evaluation was aborted",
    -1: "the batch was invalid",
}


class LlamaModel:
    """A context on `Weights`, holding one sequence.

    A recurrent or hybrid model cannot take single tokens back. For these the state is saved before
    the first `step` after each `rollback`; the next `rollback` restores it and evaluates the kept
    tokens again.
    """

    def __init__(
        self,
        weights: Weights | Any,
        options: ModelOptions | None = None,
        *,
        argument: str = "target",
    ) -> None:
        """Open a context on `weights`, or on anything that `Weights` accepts."""
        options = options or ModelOptions()
        self._owns_weights = not isinstance(weights, Weights)
        if not isinstance(weights, Weights):
            weights = Weights(weights, options, argument=argument)
        self.weights: Weights = weights
        self.vocabulary = weights.vocabulary
        self._argument = argument
        take_error()
        params = options.context_params(weights.n_ctx_train)
        if params.n_ctx > weights.n_ctx_train:
            logger.warning(
                "%s: n_ctx=%d exceeds the context of %d tokens that the model was trained for; "
                "what it writes beyond that may be poor",
                argument,
                params.n_ctx,
                weights.n_ctx_train,
            )
        self._context = llama_cpp.llama_init_from_model(weights.handle, params)
        if not self._context:
            raise EngineError(
                f"{argument}: llama.cpp made no context of n_ctx={params.n_ctx} tokens "
                f"({take_error() or 'no reason given'}); a smaller n_ctx needs less memory, a "
                "quantised type_v needs flash_attn=True"
            )
        self._memory = llama_cpp.llama_get_memory(self._context)
        # llama.cpp takes no batch beyond the context that was asked for, before it is rounded up.
        self._n_batch: int = min(options.n_batch, llama_cpp.llama_n_batch(self._context))
        self._batch = llama_cpp.llama_batch_init(self._n_batch, 0, 1)
        self._finalizer = weakref.finalize(self, _free, self._context, self._batch)
        for i in range(self._n_batch):
            self._batch.n_seq_id[i] = 1
            self._batch.seq_id[i][0] = 0
        self._n_ctx: int = llama_cpp.llama_n_ctx(self._context)
        self._tokens: list[int] = []
        self._settled = True
        self._anchor: tuple[int, ctypes.Array[ctypes.c_char]] | None = None

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""
        return self.vocabulary.n_tokens

    @property
    def n_ctx(self) -> int:
        """Most tokens that the cache holds."""
        return self._n_ctx

    @property
    def tokens(self) -> list[int]:
        """The tokens that the cache holds, in order."""
        if not self._finalizer.alive:
            raise ValueError(f"{self._argument} is closed; open the model again")
        if not self._settled:
            self._settle()
        return self._tokens

    @property
    def length(self) -> int:
        """Number of tokens that the cache holds."""
        return len(self.tokens)

    def prefill(self, ids: Sequence[int]) -> None:
        """Append `ids` to the cache without computing logits."""
        for chunk in self._chunks(ids):
            self._decode(chunk, logits=False)

    def step(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Append `ids` to the cache; row i (a copy) is what follows `ids[i]`."""
        chunks = self._chunks(ids)
        if self.weights.is_recurrent and self._anchor is None:
            self._anchor = self._save_state()
        rows = [self._decode(chunk, logits=True) for chunk in chunks]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens of the cache."""
        if not 0 <= length <= self.length:
            raise ValueError(
                f"length={length} must lie between 0 and the {self.length} tokens in the cache"
            )
        anchor, self._anchor = self._anchor, None
        if length == self.length:
            return
        kept = self._tokens[:length]
        self._settled = False
        if self._cut(length):
            self._tokens = kept
            self._settled = True
        else:
            self._rebuild(kept, anchor)

    def close(self) -> None:
        """Free the context, and the weights if they were loaded by this object."""
        self._finalizer()
        if self._owns_weights:
            self.weights.close()

    def _chunks(self, ids: Sequence[int]) -> list[NDArray[np.int32]]:
        length = self.length
        array = np.asarray(ids, dtype=np.int32)
        if array.size == 0:
            raise ValueError("ids is empty; give at least one token")
        if array.min() < 0 or array.max() >= self.n_vocab:
            raise ValueError(
                f"ids holds {int(array.min())}..{int(array.max())}; token ids of "
                f"{self._argument} lie in 0..{self.n_vocab - 1}"
            )
        if length + array.size > self.n_ctx:
            raise ContextOverflowError(
                f"{self._argument}: {length} + {array.size} tokens exceed "
                f"n_ctx={self.n_ctx}; raise n_ctx or shorten the prompt"
            )
        return [array[i : i + self._n_batch] for i in range(0, array.size, self._n_batch)]

    def _decode(self, chunk: NDArray[np.int32], *, logits: bool) -> NDArray[np.float32]:
        start, size = self.length, len(chunk)
        batch = self._batch
        batch.n_tokens = size
        np.ctypeslib.as_array(batch.token, (size,))[:] = chunk
        np.ctypeslib.as_array(batch.pos, (size,))[:] = np.arange(start, start + size)
        np.ctypeslib.as_array(batch.logits, (size,))[:] = logits
        self._settled = False
        self._tokens += chunk.tolist()
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            reason = _DECODE_FAILURES.get(status, take_error() or "no reason given")
            raise EngineError(
                f"{self._argument}: llama_decode returned {status} for {size} tokens at position "
                f"{start}: {reason}; the tokens were not kept"
            )
        self._settled = True
        if not logits:
            return np.empty((0, self.n_vocab), np.float32)
        pointer = llama_cpp.llama_get_logits(self._context)
        if not pointer:
            raise EngineError(f"{self._argument}: llama.cpp gave no logits; is it a text model?")
        # The memory behind the pointer is reused by the next call.
        return np.ctypeslib.as_array(pointer, (size, self.n_vocab)).copy()

    def _cut(self, length: int) -> bool:
        """Remove positions from `length` on; False if the rest is then not a usable cache."""
        if not llama_cpp.llama_memory_seq_rm(self._memory, 0, length, -1):
            return False
        if length == 0 or self.weights.n_swa == 0:
            return True
        # A sliding window may have dropped cells that the shorter sequence needs again;
        # llama_memory_seq_rm does not report that.
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, 0)
        return bool(0 <= first <= max(0, length - self.weights.n_swa))

    def _rebuild(self, kept: list[int], anchor: tuple[int, Any] | None) -> None:
        """Make the cache hold `kept`, from the saved state if it is a prefix, else from nothing."""
        start = 0
        if anchor is not None and anchor[0] <= len(kept) and self._load_state(anchor):
            start = anchor[0]
        else:
            llama_cpp.llama_memory_clear(self._memory, False)
        self._tokens = kept[:start]
        self._settled = True
        if start < len(kept):
            self.prefill(kept[start:])

    def _save_state(self) -> tuple[int, ctypes.Array[ctypes.c_char]] | None:
        if self.length == 0:
            return None
        size = llama_cpp.llama_state_seq_get_size_ext(self._context, 0, _PARTIAL_STATE)
        state = (ctypes.c_char * size)()
        data = ctypes.cast(state, ctypes.POINTER(ctypes.c_uint8))
        written = llama_cpp.llama_state_seq_get_data_ext(
            self._context, data, size, 0, _PARTIAL_STATE
        )
        return (self.length, state) if written else None

    def _load_state(self, anchor: tuple[int, ctypes.Array[ctypes.c_char]]) -> bool:
        length, state = anchor
        data = ctypes.cast(state, ctypes.POINTER(ctypes.c_uint8))
        return bool(
            llama_cpp.llama_state_seq_set_data_ext(
                self._context, data, len(state), 0, _PARTIAL_STATE
            )
        ) and self._cut(length)

    def _settle(self) -> None:
        """After an interrupted call: keep the tokens that llama.cpp's memory really holds."""
        held = llama_cpp.llama_memory_seq_pos_max(self._memory, 0) + 1
        held = min(held, len(self._tokens))
        if held <= 0 or not self._cut(held):
            llama_cpp.llama_memory_clear(self._memory, False)
            held = 0
        del self._tokens[held:]
        self._anchor = None
        self._settled = True


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest prefix that two token sequences share."""
    return next(_differences(first, second), min(len(first), len(second)))


def _differences(first: Sequence[int], second: Sequence[int]) -> Iterator[int]:
    return (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)


def _free(context: Any, batch: Any) -> None:
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
