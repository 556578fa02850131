"""Plants one fault at a time in a copy of the package and shows that the tests catch each.

    python -m tests.planted_faults [--only NAME ...] [--list]

Every fault is one line of source. Exit code 1 if one survives, or if its text is not in the source
any more. Slow tests and adapters are left out: the core's own tests must catch them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("cactus_rules", "tests", "pyproject.toml", "README.md")


@dataclass(frozen=True)
class Fault:
    """Replace `old` by `new` in `file`; `tests` are expected to fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


LAW = ("test_output_law.py", "test_verification_law.py")
FAULTS = (
    Fault(
        "accept test not strict",
        "_walk.py",
        "kept = drafted & (u[..., :k, 0] * at.p_n < at.numbers.cap)",
        "kept = drafted & (u[..., :k, 0] * at.p_n <= at.numbers.cap)",
        ("test_reports.py", "test_conformance_kit.py"),
    ),
    Fault(
        "coin reused for the draw",
        "_walk.py",
        "token = draw_index(xp, weights, at_position(xp, u[..., 1], stop))",
        "token = draw_index(xp, weights, at_position(xp, u[..., 0], stop))",
        LAW,
    ),
    Fault(
        "pads read as drafts",
        "_walk.py",
        "kept = drafted & (u[..., :k, 0]",
        "kept = (u[..., :k, 0]",
        ("test_reports.py",),
    ),
    Fault(
        "bonus token from the row before",
        "_walk.py",
        "q_row = row_at(xp, target, stop)\n    if k == 0:",
        "q_row = row_at(xp, target, xp.minimum(stop, stop * 0 + k - 1))\n    if k == 0:",
        LAW,
    ),
    Fault(
        "draft not subtracted in the residual",
        "residual.py",
        "xp.ones_like(scale), scale) * q - p",
        "xp.ones_like(scale), scale) * q - 0 * p",
        LAW,
    ),
    Fault(
        "draft and target swapped in the residual",
        "residual.py",
        "weights = positive(xp, surplus)",
        "weights = positive(xp, -surplus)",
        LAW,
    ),
    Fault(
        "scale ignored",
        "residual.py",
        "surplus = xp.where(whole, xp.ones_like(scale), scale) * q - p",
        "surplus = xp.ones_like(scale) * q - p",
        LAW,
    ),
    Fault(
        "residual not renormalised",
        "residual.py",
        "bar = u[..., None] * last",
        "bar = u[..., None] * xp.ones_like(last)",
        LAW,
    ),
    Fault(
        "draw picks a token of weight zero",
        "residual.py",
        "below = sums <= bar",
        "below = sums < bar",
        ("test_reports.py", "test_verification_law.py", "test_acceptance.py"),
    ),
    Fault(
        "ties at the floor go to the higher id",
        "residual.py",
        "(q == floor) & (ids <= floor_id)",
        "(q == floor) & (ids >= floor_id)",
        ("test_output_law.py",),
    ),
    Fault(
        "support rule forgotten",
        "_positions.py",
        "cap = xp.where((q_n > 0) & (numbers.cap >= 0), numbers.cap + 0 * q_n, 0 * q_n)",
        "cap = xp.where(numbers.cap >= 0, numbers.cap + 0 * q_n, 0 * q_n)",
        ("test_output_law.py", "test_law_statements.py"),
    ),
    Fault(
        "bad target probability accepted",
        "_positions.py",
        "q_n = xp.where(q_fine & inside, q_n, 0.0)",
        "q_n = xp.where(q_fine & inside, q_n, 1.0)",
        ("test_reports.py", "test_acceptance.py"),
    ),
    Fault(
        "improper draft accepted with certainty",
        "_positions.py",
        "p_n = xp.where(p_fine & inside, p_n, 1.0 + 0 * q_n)",
        "p_n = xp.where(p_fine & inside, p_n, 0.0 * q_n)",
        ("test_reports.py", "test_acceptance.py"),
    ),
    Fault(
        "Taylor in place of the exact solver",
        "boost.py",
        'if solver == "taylor":',
        'if solver != "closed":',
        ("test_boost.py",),
    ),
    Fault(
        "budget overspent by one rounding",
        "boost.py",
        "x = x - 4 * _EPS * (q + x)",
        "x = x + 4 * _EPS * (q + x)",
        ("test_boost.py",),
    ),
    Fault(
        "two Newton steps too few",
        "boost.py",
        "_NEWTON_STEPS = 6",
        "_NEWTON_STEPS = 2",
        ("test_boost.py",),
    ),
    Fault(
        "excluded token raised",
        "boost.py",
        "return xp.where((q >= _SMALLEST) & (delta >= _SMALLEST_BUDGET), x, 0 * q)",
        "return x",
        ("test_boost.py",),
    ),
    Fault(
        "log in place of log1p",
        "divergences.py",
        "log = xp.log1p(t)\n        return (1 + t) * log - t, log",
        "log = xp.log(1 + t)\n        return (1 + t) * log - t, log",
        ("test_boost.py", "test_divergences.py"),
    ),
    Fault(
        "lower end of the clip ignored",
        "rules/mentored.py",
        "return Numbers(a * at.q_n, b)",
        "return Numbers(a * at.q_n, 1.0)",
        ("test_clip_rules.py", "test_output_law.py"),
    ),
    Fault(
        "excluded draft mass left out of the balance",
        "_clip.py",
        "rows = cls(xp, p, q, ratio, p, p, p, p, p, p_total / q_total)",
        "p = xp.where(q > 0, p, 0 * p)\n"
        "        rows = cls(xp, p, q, ratio, p, p, p, p, p, p_total / q_total)",
        ("test_clip_rules.py", "test_output_law.py"),
    ),
    Fault(
        "budget of the clip doubled",
        "_clip.py",
        "return rows.largest(spent, budget)",
        "return rows.largest(spent, 2 * budget)",
        ("test_clip_rules.py", "test_law_statements.py"),
    ),
    Fault(
        "factor of lenience squared",
        "rules/lenience.py",
        "return Numbers(self.factor * at.q_n, 1.0)",
        "return Numbers(self.factor * self.factor * at.q_n, 1.0)",
        ("test_output_law.py",),
    ),
    Fault(
        "threshold of typical acceptance not strict about the smaller bound",
        "rules/typical.py",
        "threshold = xp.minimum(threshold, self.epsilon + 0 * threshold)",
        "threshold = xp.maximum(threshold, self.epsilon + 0 * threshold)",
        ("test_output_law.py",),
    ),
    Fault(
        "stream ignored",
        "random.py",
        "zero + int(stream),",
        "zero,",
        ("test_random.py", "test_reports.py"),
    ),
    Fault(
        "one Philox round too few",
        "random.py",
        "_ROUNDS = 10",
        "_ROUNDS = 9",
        ("test_random.py",),
    ),
    Fault(
        "block walk with the residual of the token walk",
        "_block.py",
        "_weights(xp, p, h, q, kept_r, stop, length)",
        "_weights(xp, p, h, q, 1 + 0 * kept_r, stop, length)",
        ("test_verification_law.py", "test_reports.py"),
    ),
    Fault(
        "candidate lists matched by index",
        "sparse.py",
        "row[np.searchsorted(union, ids[kept])] = probs[kept]",
        "row[: len(probs[kept])] = probs[kept]",
        ("test_reports.py", "test_sparse.py"),
    ),
    Fault(
        "temperature after the filters",
        "warp.py",
        "probs = softmax(xp, wide, max(temperature, 1e-30))",
        "probs = softmax(xp, wide, 1.0)",
        ("test_warp.py",),
    ),
    Fault(
        "mean acceptance length without the bonus token",
        "metrics.py",
        "return 1 + self.num_accepted_tokens / self.num_drafts",
        "return self.num_accepted_tokens / self.num_drafts",
        ("test_metrics.py",),
    ),
    Fault(
        "telemetry counts the target twice",
        "_walk.py",
        "xp.log(xp.where(ratio > 1, ratio, 1.0 + zero))",
        "xp.log(xp.where(ratio > 1, ratio * 0.5 + 0.5, 1.0 + zero))",
        ("test_law_statements.py", "test_metrics.py"),
    ),
)


def plant(fault: Fault, tree: Path) -> None:
    """Change the copy; ValueError if the text is not there exactly once."""
    path = tree / "cactus_rules" / fault.file
    source = path.read_text()
    if source.count(fault.old) != 1:
        raise ValueError(f"{fault.file} has the text {source.count(fault.old)} times: {fault.old}")
    path.write_text(source.replace(fault.old, fault.new))


def caught(fault: Fault) -> bool:
    """Whether the tests fail on a copy with the fault."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "adapters", "theory")
                shutil.copytree(source, tree / name, ignore=ignored)
            else:
                shutil.copy(source, tree / name)
        plant(fault, tree)
        tests = [f"tests/{name}" for name in fault.tests if (tree / "tests" / name).is_file()]
        if not tests:
            raise ValueError(f"none of {fault.tests} is there")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
        return done.returncode == 1


def main() -> int:
    """Plant all faults, print a line each."""
    parser = argparse.ArgumentParser(description="Plant faults and show that the tests catch them.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names or parts of names")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    arguments = parser.parse_args()
    chosen = [f for f in FAULTS if not arguments.only or any(t in f.name for t in arguments.only)]
    if arguments.list:
        print("\n".join(fault.name for fault in chosen))
        return 0
    survived = []
    for number, fault in enumerate(chosen, 1):
        start = time.monotonic()
        found = caught(fault)
        verdict = "caught" if found else "SURVIVED"
        taken = time.monotonic() - start
        print(f"[{number}/{len(chosen)}] {verdict:<9}{taken:5.0f} s  {fault.name}", flush=True)
        if not found:
            survived.append(fault.name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} planted faults caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
