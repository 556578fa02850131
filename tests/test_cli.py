"""The command line: rule options read off the records, listings, and errors that help."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cactus_rules as cr
from cactus_rules.cli import main
from cactus_rules.cli.flags import in_flags
from cactus_rules.cli.listing import describe
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
    flag = "--delta" if parameter == "delta" else f"--param {parameter}="
    with pytest.raises(ValueError, match=rf"--rule {name} needs {flag}: .*for example {flag}"):
        make_rule(name, {})


def test_a_parameter_of_another_rule_is_refused() -> None:
    text = "--param width= is not a parameter of --rule cactus, which has delta, divergence, solver"
    with pytest.raises(ValueError, match=text):
        make_rule("cactus", {"width": "1", "delta": "0.1"})
    with pytest.raises(ValueError, match="--delta is not a parameter of --rule lossless"):
        make_rule("lossless", {"delta": "0.1"})


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
    shown = capsys.readouterr().out
    assert "reads      two numbers, p_n and q_n" in shown
    assert "max-divergence(output law, target) <= " in shown
    assert "max-divergence(a, b): the logarithm of the largest a/b of any token" in shown


@pytest.mark.parametrize("name", cr.REGISTRY)
def test_what_a_listed_rule_cites_is_listed(name: str) -> None:
    described = describe(cr.REGISTRY[name])
    cited = re.findall(r"\[(\d)[^\]]*\]", described["summary"])
    assert set(cited) <= set(described["references"])
    assert all(described["references"].values())


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
    text = "--rule cactus --delta -1: delta must be a number or an array of numbers >= 0, got -1"
    assert text in capsys.readouterr().err
    assert main([*arguments, "--rule", "top-k", "--param", "k=0"]) == 2
    assert "--rule top-k --param k=0: k must be an integer >= 1" in capsys.readouterr().err
    for wrong, text in (
        (["--param", "k"], "--param k: write NAME=VALUE, for example --param k=5"),
        (["--param", "k=1", "--param", "k=2"], "--param k= is given twice"),
        (["--param", "delta=1", "--delta", "2"], "--param delta= is given twice"),
    ):
        assert main([*arguments, *wrong]) == 2
        assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("--max-tokens 0", "argument -n/--max-tokens: must be an integer >= 1, got 0"),
        ("-k 0", "argument -k/--num-draft-tokens: must be an integer >= 1, got 0"),
        ("-k many", "argument -k/--num-draft-tokens: must be an integer >= 1, got many"),
        ("--ctx 0", "argument --ctx: must be an integer >= 1, got 0"),
        ("--threads -1", "argument --threads: must be an integer from 1 to 512, got -1"),
        ("--threads 2000", "argument --threads: must be an integer from 1 to 512, got 2000"),
        ("--seed 1.5", "argument --seed: must be an integer from -9223372036854775808 to"),
        (f"--seed {10**23}", f"argument --seed: must be an integer from -{2**63} to {2**64 - 1}"),
        ("--gpu-layers -2", "argument --gpu-layers: must be an integer >= -1, got -2"),
        ("--temperature -1", "argument --temperature: must be a number >= 0, got -1"),
        ("--temperature nan", "argument --temperature: must be a number >= 0, got nan"),
        ("--top-k -1", "argument --top-k: must be an integer >= 0, got -1"),
        ("--top-p 0", "argument --top-p: must be a number in (0, 1], got 0"),
        ("--min-p 2", "argument --min-p: must be a number in [0, 1], got 2"),
        ("--repetition-penalty 0", "argument --repetition-penalty: must be a number > 0, got 0"),
        ("--presence-penalty inf", "argument --presence-penalty: must be a finite number, got inf"),
        ("--stop=", "argument --stop: must be a text that is not empty"),
        ("--n 3", "unrecognized arguments: --n 3"),
        ("--k 3", "unrecognized arguments: --k 3"),
    ],
)
def test_a_wrong_number_is_told_by_its_flag(
    typed: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", "--target", "nowhere.gguf", "--draft", "ngram", "-p", "Hi"]
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, *typed.split()])
    assert stopped.value.code == 2
    assert text in capsys.readouterr().err


def test_a_prompt_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for name, reason in (
        ("missing", "No such file or directory"),
        ("latin", "it is not UTF-8 text"),
        ("", "Is a directory"),
    ):
        path = tmp_path / name
        arguments = ["generate", "--target", "nowhere.gguf", "--draft", "ngram"]
        assert main([*arguments, "--prompt-file", str(path)]) == 2
        assert capsys.readouterr().err == f"cactus-rules: --prompt-file {path}: {reason}\n"


def test_errors_of_the_engine_are_told_in_flags() -> None:
    for said, told in (
        ("draft='x.gguf' does not exist", "--draft 'x.gguf' does not exist"),
        ("draft: its vocabulary differs from the target's", "--draft: its vocabulary differs"),
        ("its 9 tokens exceed n_ctx=8; raise n_ctx or", "exceed --ctx 8; raise --ctx or"),
        ("the draft model: target 3", "the draft model: target 3"),
        ("path='nosuch.so' is not a file", "--gpu-backend 'nosuch.so' is not a file"),
        ("prompt: its 9 tokens exceed", "--prompt: its 9 tokens exceed"),
    ):
        assert told in in_flags(said)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("--seed -1", "argument --seed: must be an integer >= 0, got -1"),
        ("--budget -5", "argument --budget: must be a number of seconds >= 0, got -5"),
        ("--budget nan", "argument --budget: must be a number of seconds >= 0, got nan"),
    ],
)
def test_a_wrong_number_of_theory_is_told_by_its_flag(
    typed: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["theory", *typed.split()])
    assert stopped.value.code == 2
    assert text in capsys.readouterr().err


def test_theory_helps_without_mpmath_and_names_it_where_it_is_needed() -> None:
    code = (
        "import importlib.util as util, sys; real = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'mpmath' else real(name, *more)\n"
        "from cactus_rules.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = [
        subprocess.run(
            [sys.executable, "-c", code, "theory", word], capture_output=True, text=True, timeout=60
        )
        for word in ("--help", "--list")
    ]
    assert [process.returncode for process in done] == [0, 2]
    assert "usage: cactus-rules theory" in done[0].stdout
    assert "`" not in done[0].stdout
    assert "pip install '.[theory]' in the project's folder" in done[1].stderr


@pytest.mark.parametrize("command", [[], ["generate"], ["rules"], ["demo"], ["theory"]])
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
