"""The vocabulary of a GGUF model: tokenising, detokenising, and comparing two vocabularies."""

from __future__ import annotations

import ctypes
from typing import Any

from ..draft_options import MAX_SIZE_DIFFERENCE
from ..errors import VocabularyMismatchError
from .library import llama_cpp

# As llama.cpp's own speculative decoding compares two vocabularies.
_FIRST_COMPARED_ID = 5


class Vocabulary:
    """Token ids to text and back, for one loaded model."""

    def __init__(self, handle: Any) -> None:
        """Read the vocabulary of the llama.cpp model `handle`, which must stay loaded."""
        pointer = self._open_pointer = llama_cpp.llama_model_get_vocab(handle)
        self.n_tokens: int = llama_cpp.llama_vocab_n_tokens(pointer)
        self.kind: int = llama_cpp.llama_vocab_type(pointer)
        self.bos: int = llama_cpp.llama_vocab_bos(pointer)
        self.eos: int = llama_cpp.llama_vocab_eos(pointer)
        self.adds_bos: bool = llama_cpp.llama_vocab_get_add_bos(pointer)
        self.adds_eos: bool = llama_cpp.llama_vocab_get_add_eos(pointer)

    def close(self) -> None:
        """Forget the model, which is about to be freed."""
        self._open_pointer = None

    @property
    def _pointer(self) -> Any:
        if self._open_pointer is None:
            raise ValueError("this model is closed; open it again")
        return self._open_pointer

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids of `text`; `add_special` puts BOS or EOS where the model wants them.

        Control tokens written out in `text`, such as ``<|im_start|>``, become one token each.
        """
        data = text.encode("utf-8")
        buffer = (ctypes.c_int32 * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(
            self._pointer, data, len(data), buffer, len(buffer), add_special, True
        )
        return list(buffer[:count])

    def piece(self, token: int) -> bytes:
        """UTF-8 bytes that `token` adds to the text, possibly a part of a character."""
        if not 0 <= token < self.n_tokens:  # llama.cpp would end the process.
            raise ValueError(f"token={token} is no token id; they lie in 0..{self.n_tokens - 1}")
        buffer = ctypes.create_string_buffer(64)
        size = self._piece(token, buffer)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = self._piece(token, buffer)
        return buffer.raw[:size]

    def _piece(self, token: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
        return int(
            llama_cpp.llama_token_to_piece(self._pointer, token, buffer, len(buffer), 0, False)
        )

    def is_end(self, token: int) -> bool:
        """Whether `token` ends a generation (end of text, end of turn, ...)."""
        return bool(llama_cpp.llama_vocab_is_eog(self._pointer, token))

    def raw_text(self, token: int) -> bytes:
        """Text of `token` as the GGUF file stores it; empty for an id that is not a token."""
        if not 0 <= token < self.n_tokens:
            return b""
        return bytes(llama_cpp.llama_vocab_get_text(self._pointer, token) or b"")


def check_compatible(target: Vocabulary, draft: Vocabulary) -> None:
    """Raise `VocabularyMismatchError` unless both give the same text to the same ids.

    Compared are the kind of vocabulary, the special tokens, the sizes (up to 128 apart; the rows
    of the smaller one are padded), and the text of every id from 5 on that both have.
    """
    for name in ("kind", "adds_bos", "adds_eos"):
        _require_equal(name, getattr(target, name), getattr(draft, name))
    for name in ("bos", "eos"):
        if getattr(target, f"adds_{name}"):
            _require_equal(name, getattr(target, name), getattr(draft, name))
    if abs(target.n_tokens - draft.n_tokens) > MAX_SIZE_DIFFERENCE:
        _mismatch("sizes", target.n_tokens, draft.n_tokens)
    for token in range(_FIRST_COMPARED_ID, min(target.n_tokens, draft.n_tokens)):
        _require_equal(f"text of token {token}", target.raw_text(token), draft.raw_text(token))


def _require_equal(name: str, target: object, draft: object) -> None:
    if target != draft:
        _mismatch(name, target, draft)


def _mismatch(name: str, target: object, draft: object) -> None:
    raise VocabularyMismatchError(
        f"draft: its vocabulary differs from the target's ({name}: target {target!r}, draft "
        f"{draft!r}); use a draft of the same model family, or draft='ngram', or "
        "draft='requantize:Q2_K'"
    )
