"""The README's Python blocks run, and its figures and its table of rules are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cactus_rules as cr

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
RUNNABLE = [block for block in BLOCKS if "SpeculativeLlama" not in block]


@pytest.mark.parametrize("block", RUNNABLE, ids=range(len(RUNNABLE)))
def test_python_block_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})


def test_first_block_prints_the_figures_beside_its_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exec(compile(BLOCKS[0], "README.md", "exec"), {})
    printed = [float(line) for line in capsys.readouterr().out.split()]
    claimed = [float(x) for x in re.findall(r"print\(.*?# ([\d.]+)", BLOCKS[0])]
    assert len(claimed) == len(printed) == 3
    # Each figure is given to three digits.
    assert printed == pytest.approx(claimed, abs=5e-4)


def test_table_names_every_rule() -> None:
    table = README[README.index("| rule |") : README.index("## Which rule?")]
    missing = [rule.__name__ for rule in cr.REGISTRY.values() if f"`{rule.__name__}" not in table]
    assert not missing
