"""Files, vocabularies, requantised drafts and the guarded import: what is checked, what is said."""

from __future__ import annotations

import logging
import os
import sys
import types
from pathlib import Path

import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import tiny_gguf  # noqa: E402
from tiny_gguf import TinyPair  # noqa: E402

from cactus_rules.adapters.errors import (  # noqa: E402
    MissingEngineError,
    ModelFileError,
    VocabularyMismatchError,
)
from cactus_rules.adapters.llamacpp import (  # noqa: E402
    LlamaModel,
    ModelOptions,
    quantize,
    requantize,
)
from cactus_rules.adapters.llamacpp.library import FIELDS, FUNCTIONS, load_library  # noqa: E402
from cactus_rules.adapters.llamacpp.quantize import CACHE_VARIABLE  # noqa: E402
from cactus_rules.adapters.llamacpp.vocabulary import check_compatible  # noqa: E402

OPTIONS = ModelOptions(n_ctx=256, n_threads=1)


@pytest.fixture(scope="module")
def model(pair: TinyPair) -> LlamaModel:
    return LlamaModel(pair.target, OPTIONS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"target='.*bad\.gguf' does not exist; give the path of a GGUF file"),
        (b"", r"is not a GGUF file \(it starts with b''"),
        (b"PK\x03\x04 a zip file, for example", r"is not a GGUF file \(it starts with b'PK"),
        (
            b"GGUF\x03\x00\x00\x00",
            r"is truncated or damaged: its 8 bytes end before .* download it",
        ),
        (b"GGUF" + b"\xff" * 60, r"is truncated or damaged"),
    ],
)
def test_bad_files(
    tmp_path: Path, content: bytes | None, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelFileError, match=message) as caught:
        LlamaModel(path, OPTIONS)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", ""), "llama.cpp's own log reached the terminal"


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5, 0.999])
def test_truncated_files(pair: TinyPair, tmp_path: Path, share: float) -> None:
    whole = pair.target.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(
        ModelFileError, match=r"target='.*cut.gguf' is truncated or damaged: its \d+"
    ):
        LlamaModel(path, OPTIONS)


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a folder; give the path of a GGUF file"):
        LlamaModel(tmp_path, OPTIONS)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    weights = tiny_gguf.llama_weights()
    path = tiny_gguf.write_llama(tmp_path / "odd.gguf", weights)
    path.write_bytes(path.read_bytes().replace(b"llama", b"lxama"))
    with pytest.raises(
        ModelFileError, match=r"cannot be loaded by llama\.cpp \(.*lxama.*\); use a"
    ):
        LlamaModel(path, OPTIONS)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("n_ctx", 0, "n_ctx=0 must be an integer >= 1"),
        ("n_batch", None, "n_batch=None must be"),
        ("n_threads", 1.5, r"n_threads=1\.5 must be"),
        ("n_gpu_layers", -2, "n_gpu_layers=-2 must be an integer >= -1"),
        ("n_ctx", 2**32 + 1, "n_ctx=4294967297 must be an integer from 1 to 2147483647"),
        ("n_batch", 2**40, "n_batch=1099511627776 must be an integer from 1 to"),
        ("n_threads", 2000, "n_threads=2000 must be an integer from 1 to 512"),
        ("flash_attn", "yes", "flash_attn='yes' must be True, False, or None to let"),
        ("swa_full", 1, "swa_full=1 must be True or False"),
        ("type_k", "q99", r"type_k='q99' is not a ggml type; use 'f16'"),
    ],
)
def test_bad_options(option: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelOptions(**{option: value})  # type: ignore[arg-type]


def test_a_text_survives_the_vocabulary(model: LlamaModel) -> None:
    text = "Tabs\t, accents é, 日本, two  spaces\n"
    ids = model.vocabulary.tokenize(text)
    assert ids[0] == tiny_gguf.BOS
    assert b"".join(map(model.vocabulary.piece, ids)).decode() == text
    assert model.vocabulary.tokenize("a<|turn|>", add_special=False)[-1] == tiny_gguf.TURN
    assert model.vocabulary.is_end(tiny_gguf.EOS)
    assert model.vocabulary.is_end(tiny_gguf.TURN)
    assert not model.vocabulary.is_end(ord("a"))


@pytest.mark.parametrize("token", [-1, tiny_gguf.VOCAB])
def test_no_token_no_text(model: LlamaModel, token: int) -> None:
    """llama.cpp ends the process on such an id."""
    with pytest.raises(ValueError, match=rf"token={token} is no token id; they lie in 0\.\.258"):
        model.vocabulary.piece(token)


def test_a_context_beyond_the_training_length_is_warned_of(
    pair: TinyPair, caplog: pytest.LogCaptureFixture
) -> None:
    logger = "cactus_rules.llamacpp.model"
    with caplog.at_level("WARNING", logger=logger):
        LlamaModel(pair.target, ModelOptions(n_ctx=2048, n_threads=1)).close()
        assert not [record for record in caplog.records if record.name == logger]
        LlamaModel(pair.target, ModelOptions(n_ctx=2049, n_threads=1)).close()
    said = [record.getMessage() for record in caplog.records if record.name == logger]
    assert len(said) == 1
    assert "target: n_ctx=2049 exceeds the context of 2048 tokens that the model" in said[0]


def test_the_same_vocabulary_is_compatible(pair: TinyPair, model: LlamaModel) -> None:
    check_compatible(model.vocabulary, LlamaModel(pair.draft, OPTIONS).vocabulary)


def test_another_alphabet_is_refused(tmp_path: Path, model: LlamaModel) -> None:
    symbols = tiny_gguf.byte_symbols()
    symbols[100], symbols[101] = symbols[101], symbols[100]
    path = tiny_gguf.write_llama(tmp_path / "x.gguf", tiny_gguf.llama_weights(), symbols=symbols)
    other = LlamaModel(path, OPTIONS).vocabulary
    with pytest.raises(
        VocabularyMismatchError,
        match=r"text of token 100: target b'd', draft b'e'\); use a draft of the same model family",
    ):
        check_compatible(model.vocabulary, other)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", 1, r"\(kind: target 2, draft 1\)"),
        ("adds_bos", False, r"\(adds_bos: target True, draft False\)"),
        ("bos", 7, r"\(bos: target 256, draft 7\)"),
        ("n_tokens", 1000, r"\(sizes: target 259, draft 1000\)"),
    ],
)
def test_other_differences_are_refused(
    pair: TinyPair, model: LlamaModel, field: str, value: object, message: str
) -> None:
    other = LlamaModel(pair.draft, OPTIONS).vocabulary
    setattr(other, field, value)
    with pytest.raises(VocabularyMismatchError, match=message):
        check_compatible(model.vocabulary, other)


def test_requantize_writes_once_and_atomically(pair: TinyPair, tmp_path: Path) -> None:
    made = requantize(pair.target, "q8_0", cache_dir=tmp_path, n_threads=1)
    first = made.stat().st_mtime_ns
    assert made.stat().st_size < 0.5 * pair.target.stat().st_size
    assert requantize(pair.target, "Q8_0", cache_dir=tmp_path, n_threads=1) == made
    assert made.stat().st_mtime_ns == first
    assert os.listdir(tmp_path) == [made.name]
    assert LlamaModel(made, OPTIONS).step([1, 2]).shape == (2, tiny_gguf.VOCAB)


def test_a_changed_file_is_quantised_anew(pair: TinyPair, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(pair.target.read_bytes())
    first = requantize(copy, "F16", cache_dir=tmp_path / "cache")
    os.utime(copy, (1, 1))
    assert requantize(copy, "F16", cache_dir=tmp_path / "cache") == first, "its time counted"
    copy.write_bytes(pair.draft.read_bytes())
    assert requantize(copy, "F16", cache_dir=tmp_path / "cache") != first


def test_a_file_that_differs_in_its_middle_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize, "_SAMPLE_BYTES", 4)
    for name, content in (("one", b"head....midd....tail"), ("two", b"head....MIDD....tail")):
        (tmp_path / name).write_bytes(content)
    digests = {quantize._fingerprint(tmp_path / name) for name in ("one", "two")}
    assert len(digests) == 2


def test_the_cache_folder_comes_from_the_environment(
    pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "here"))
    assert requantize(pair.target, "Q8_0").parent == tmp_path / "here"
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert requantize(pair.target, "Q8_0").parent == tmp_path / ".cache" / "cactus_rules"


@pytest.mark.parametrize("fault", ["status", "interrupt"])
def test_a_failed_quantisation_leaves_nothing(
    pair: TinyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    real = llama_cpp.llama_model_quantize

    def quantize(*args: object) -> int:
        real(*args)
        if fault == "interrupt":
            raise KeyboardInterrupt
        return 1

    monkeypatch.setattr(llama_cpp, "llama_model_quantize", quantize)
    expected = KeyboardInterrupt if fault == "interrupt" else ModelFileError
    with pytest.raises(expected):
        requantize(pair.target, "Q8_0", cache_dir=tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_unknown_type_is_refused(pair: TinyPair, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"draft='requantize:Q9' names no llama.cpp file type; use"
    ):
        requantize(pair.target, "Q9", cache_dir=tmp_path)


def test_an_unwritable_cache_is_explained(pair: TinyPair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ModelFileError, match=r"cache_dir='.*file' cannot be written .*; give another"
    ):
        requantize(pair.target, "Q8_0", cache_dir=tmp_path / "file")


def test_a_missing_engine_is_explained() -> None:
    with pytest.raises(MissingEngineError, match=r"pip install '\.\[llamacpp\]' in the project"):
        load_library("no_such_llama")


def test_a_version_that_lacks_something_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = types.ModuleType("old_llama")
    old.__version__ = "0.2.0"  # type: ignore[attr-defined]
    for name in (*FUNCTIONS, *FIELDS):
        setattr(old, name, getattr(llama_cpp, name))
    del old.llama_memory_seq_rm  # type: ignore[attr-defined]
    old.llama_model_quantize_params = types.SimpleNamespace(  # type: ignore[attr-defined]
        _fields_=[("ftype", int), ("nthread", int)]
    )
    monkeypatch.setitem(sys.modules, "old_llama", old)
    with pytest.raises(
        MissingEngineError,
        match=r"0\.2\.0 lacks llama_memory_seq_rm, llama_model_quantize_params\.allow_requantize;",
    ):
        load_library("old_llama")


def test_messages_of_llama_cpp_go_to_logging(
    pair: TinyPair, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="cactus_rules.llamacpp"):
        LlamaModel(pair.target, OPTIONS).close()
    assert any("n_ctx" in record.message for record in caplog.records)
