"""From pieces of UTF-8 to text: characters across pieces, and stop strings across pieces."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Turns token pieces into text that is safe to show.

    A character is given out once all of its bytes are there. The end of the text is held back as
    long as it could be the beginning of a stop string, so that no part of one is ever shown.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        """Stop at the first occurrence of any string in `stop`."""
        if any(not text for text in stop):
            raise ValueError(f"stop={list(stop)!r} holds an empty string; leave it out")
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """Take the bytes of one token; return the text that can be shown now."""
        return self._release(self._decoder.decode(piece), final=False)

    def finish(self) -> str:
        """Return what is still held back; the text is complete then."""
        return self._release(self._decoder.decode(b"", final=True), final=True)

    def _release(self, text: str, *, final: bool) -> str:
        if self.stopped:
            return ""
        self._held += text
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            shown, self._held = self._held[: min(found)], ""
            return shown
        keep = 0 if final else max(map(self._beginning, self._stop), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def _beginning(self, stop: str) -> int:
        """Length of the longest beginning of `stop` that the held text ends with."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)
