"""The command line: rule options read off the records, listings, and errors that help."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import cactus_rules as cr
from cactus_rules.cli import main
from cactus_rules.cli.rule_options import make_rule

NEEDED = {
    "cactus": {"delta": "0.1"},
    "mentored": {"delta": "0.1"},
    "band": {"width": "1"},
    "lenience": {"factor": "1.5"},
    "ensemble": {"weight": "0.5"},
    "reducible-fuzzy": {"threshold": "0.1"},
    "top-k": {"k": "5"},
    "nucleus": {"mass": "0.9"},
    "min-p": {"ratio": "0.1"},
}


@pytest.mark.parametrize("name", cr.REGISTRY)
def test_every_rule_can_be_made_from_text(name: str) -> None:
    assert isinstance(make_rule(name, NEEDED.get(name, {})), cr.REGISTRY[name])


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_parameter_is_named_with_an_example(name: str) -> None:
    (parameter,) = NEEDED[name]
    with pytest.raises(ValueError, match=rf"--rule {name} needs --{parameter}: .*for example --"):
        make_rule(name, {})


def test_a_parameter_of_another_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="--width is not a parameter of --rule cactus, which has"):
        make_rule("cactus", {"width": "1", "delta": "0.1"})


def test_options_reach_the_record() -> None:
    made = make_rule("cactus", {"delta": "0.25", "divergence": "chi2", "solver": "exact"})
    assert made == cr.Cactus(0.25, divergence="chi2")
    assert make_rule("relaxed-top-n", {"n": "3"}) == cr.RelaxedTopN(n=3)


def test_rules_lists_each_with_its_guarantee(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--json"]) == 0
    described = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(described) == set(cr.REGISTRY)
    assert described["cactus"]["guarantee"] == "kl(surrogate law, target) <= 0.1"
    assert described["mentored"]["guarantee"] == "kl(output law, target) <= 0.1"
    assert described["typical"]["guarantee"] == "none"
    assert main(["rules"]) == 0
    assert "reads      two numbers, p_n and q_n" in capsys.readouterr().out


def test_a_missing_model_file_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    arguments = ["generate", "--target", "nowhere.gguf", "--draft", "ngram", "-p", "Hi"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("cactus-rules: ")
    assert "nowhere.gguf" in error
    assert error.count("\n") == 1


def test_a_wrong_rule_parameter_fails_before_a_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["generate", "--target", "nowhere.gguf", "--draft", "ngram", "-p", "Hi"]
    assert main([*arguments, "--rule", "cactus"]) == 2
    assert "--rule cactus needs --delta" in capsys.readouterr().err
    assert main([*arguments, "--rule", "cactus", "--delta", "-1"]) == 2
    assert "delta must be a number" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["generate"], ["rules"], ["demo"]])
def test_help_teaches(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "usage: cactus-rules" in shown
    if command in ([], ["generate"]):
        assert "examples:" in shown


def test_the_command_starts_without_an_engine() -> None:
    code = (
        "import sys; from cactus_rules.cli import main; main(['rules']); "
        "print(sorted({'torch', 'llama_cpp', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]")
