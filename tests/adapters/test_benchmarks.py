"""The GPU scripts rehearse on the CPU: they must not rot between two GPU machines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
pytest.importorskip("triton", reason="triton is not installed")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=BENCHMARKS, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_gpu_llamacpp_rehearses_on_the_cpu() -> None:
    printed = run("gpu_llamacpp.py", "--gpu-layers", "0", "--small")
    assert "FAILED" not in printed
    assert "0 checks failed" in printed
    assert printed.count("- ok: ") == 9
    assert printed.count("| Mentored(0.1) | ") == 1


@pytest.mark.slow
def test_gpu_verify_rehearses_on_the_cpu() -> None:
    printed = run("gpu_verify.py", "--small", "--device", "cpu")
    assert printed.count("correct at ") == 2
    assert "failed" not in printed
