"""`cactus-rules generate` and `demo` on tiny GGUF files: what they print, and what they say."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
pytest.importorskip("gguf", reason="gguf is not installed")

from tiny_gguf import TinyPair

from cactus_rules.adapters.llamacpp import SpeculativeLlama
from cactus_rules.adapters.llamacpp.library import llama_cpp
from cactus_rules.cli import demo, main


def generate(pair: TinyPair, *options: str) -> int:
    models = ["--target", str(pair.target), "--draft", str(pair.draft)]
    return main(["generate", *models, "--threads", "1", "-p", "once", "-n", "6", *options])


def test_the_table_says_what_its_two_lengths_count(
    pair: TinyPair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(pair, "--rule", "mentored", "--delta", "0.1", "--seed", "1") == 0
    shown = capsys.readouterr().err
    assert "(all calls, also without a draft)" in shown
    assert "(calls with a draft: 1 + accepted tokens)" in shown
    assert "nats (bounds KL(output||target) in expectation)" in shown


def test_a_context_beyond_the_training_length_is_warned_of_once(
    pair: TinyPair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(pair, "--ctx", "2049") == 0
    shown = capsys.readouterr().err
    assert shown.count("cactus-rules: warning: ") == 1
    assert "target: --ctx 2049 exceeds the context of 2048 tokens that the model was" in shown
    assert generate(pair, "--ctx", "2048") == 0
    assert "warning" not in capsys.readouterr().err


def test_a_context_that_does_not_fit_is_told_by_its_size_alone(
    pair: TinyPair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp, "llama_init_from_model", lambda model, params: None)
    assert generate(pair, "--ctx", "1024") == 2
    shown = capsys.readouterr().err
    assert "llama.cpp made no context of --ctx 1024 tokens (no reason given); a smaller --ctx" in (
        shown
    )
    assert "ModelOptions" not in shown


def test_a_missing_backend_is_told_by_its_flag(
    pair: TinyPair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(pair, "--gpu-backend", "nosuch.so") == 2
    assert "cactus-rules: --gpu-backend 'nosuch.so' is not a file" in capsys.readouterr().err


def test_the_demo_interleaves_and_says_what_it_counts(
    pair: TinyPair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CACTUS_RULES_CACHE", str(tmp_path))
    ran = []
    real = SpeculativeLlama.complete

    def complete(llama: SpeculativeLlama, prompt: str, **options: object) -> object:
        ran.append((prompt, options["seed"], llama))
        return real(llama, prompt, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SpeculativeLlama, "complete", complete)
    words = ["demo", "--model", str(pair.target), "--seeds", "2", "-n", "5", "--threads", "1"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "4 rules and plain decoding, each on 5 prompts x 2 seeds x 5 tokens at most" in shown.out
    assert "minutes on two idle cores" in shown.out
    for i in range(0, len(ran), 5):
        prompts, seeds, engines = (set(column) for column in zip(*ran[i : i + 5], strict=True))
        assert (len(prompts), len(seeds), len(engines)) == (1, 1, 5)
    assert [line.partition(" done after ")[0] for line in shown.err.splitlines()] == [
        f"prompt {i} of 5" for i in range(1, 6)
    ]
    lines = re.findall(r"^(plain|sample-match|lossless|mentored|cactus)\b.*x$", shown.out, re.M)
    assert lines == ["plain", "sample-match", "lossless", "mentored", "cactus"]
    assert shown.out.count("0 (proved)") == 3
    assert "KL bound (mean)" in shown.out


def test_speed_is_the_median_of_turns() -> None:
    plain, other = (demo._Contestant(label, demo.Lossless()) for label in ("plain", "other"))
    plain.speeds, other.speeds = [10.0, 20.0, 40.0], [20.0, 40.0, 1.0]
    assert demo._table([plain, other]).splitlines()[-1].endswith(" 2.00x")


def test_audits_are_left_out_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 4.0, 5.0])  # start, audit begins, audit ends, end: 5 - 3 = 2 seconds
    monkeypatch.setattr(demo.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(demo, "audit", lambda *laws: SimpleNamespace(kl=0.25))
    contestant = demo._Contestant("mentored", demo.Mentored(0.1), _calls=1)
    monkeypatch.setattr(contestant.metrics, "add", lambda verification: None)

    class Llama:
        def complete(self, prompt: str, **options: object) -> object:
            options["observe"]([[1.0]], [[1.0]], None)  # type: ignore[operator]
            return SimpleNamespace(token_ids=[1, 2, 3, 4], text="abcd")

    assert contestant.run(Llama(), "once", 0, 4) == "abcd"
    assert contestant.speeds == [2.0]
    assert contestant.kl == [0.25]
