"""Text from pieces of bytes: characters and stop strings that lie across pieces."""

from __future__ import annotations

import pytest

from cactus_rules.adapters.text import TextStream


def pieces(stream: TextStream, data: list[bytes]) -> list[str]:
    return [stream.push(piece) for piece in data] + [stream.finish()]


def test_a_character_appears_when_its_bytes_are_complete() -> None:
    whole = "é日".encode()
    assert pieces(TextStream(), [whole[i : i + 1] for i in range(5)]) == ["", "é", "", "", "日", ""]


def test_broken_bytes_become_replacement_characters() -> None:
    assert "".join(pieces(TextStream(), [b"a\xff", b"b\xe6"])) == "a\ufffdb\ufffd"


def test_a_stop_string_across_pieces_is_never_shown() -> None:
    stream = TextStream(["STOP"])
    assert [stream.push(p) for p in (b"go S", b"T", b"OP on", b"more")] == ["go ", "", "", ""]
    assert stream.stopped
    assert stream.finish() == ""


def test_a_held_back_beginning_is_shown_when_it_goes_on_otherwise() -> None:
    stream = TextStream(["STOP"])
    assert [stream.push(p) for p in (b"S", b"TO", b"E", b"S")] == ["", "", "STOE", ""]
    assert stream.finish() == "S"
    assert not stream.stopped


def test_overlapping_beginnings() -> None:
    stream = TextStream(["aab"])
    assert "".join(stream.push(bytes([c])) for c in b"aaab!") == "a"
    assert stream.stopped


def test_the_earliest_of_several_stop_strings_counts() -> None:
    stream = TextStream(["world", "o w", "\n"])
    assert stream.push(b"hello world\n") == "hell"
    assert stream.stopped


def test_every_split_gives_the_same_text() -> None:
    data = "text with é, then END and more".encode()
    for size in range(1, len(data)):
        stream = TextStream(["END", "never"])
        chunks = [data[i : i + size] for i in range(0, len(data), size)]
        assert "".join(pieces(stream, chunks)) == "text with é, then "


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match=r"stop=\['a', ''\] holds an empty string; leave it out"):
        TextStream(["a", ""])
