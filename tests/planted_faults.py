"""Plants one fault at a time in a copy of the package and shows that the tests catch each.

    python -m tests.planted_faults [--only NAME ...] [--jobs N] [--list]

First the tests run on a copy without a fault, and must pass: a copy on which they fail would catch
everything. Exit code 1 if a fault survives, or if its text is not in the source exactly once.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("cactus_rules", "tests")


def copy(tree: Path) -> None:
    """The core, the adapters inside it as they are installed, and the tests of both."""
    ignored = shutil.ignore_patterns("__pycache__", "theory")
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    shutil.copytree(ROOT / "adapters", tree / "cactus_rules" / "adapters", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tree)


def times_there(fault: Fault) -> int:
    """How often the text that the fault replaces is in the source: it must be once."""
    base = ROOT if fault.file.startswith("adapters/") else ROOT / "cactus_rules"
    return (base / fault.file).read_text().count(fault.old)


def plant(fault: Fault, tree: Path) -> None:
    """Change the copy."""
    path = tree / "cactus_rules" / fault.file
    path.write_text(path.read_text().replace(fault.old, fault.new))


def fails(tree: Path, tests: tuple[str, ...], *options: str) -> tuple[bool, str]:
    """Whether a test fails on the copy, and the name of the first that does."""
    files = [f"tests/{name}" for name in tests]
    options = ("-q", "-x", "-p", "no:cacheprovider", "--tb=no", *options)
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    # With several processes an interruption by -x has a code of its own.
    if done.returncode not in (0, 1, 2) or "no tests ran" in done.stdout:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode != 0, failed[0].split(" - ")[0] if failed else ""


def caught(fault: Fault) -> tuple[bool, str, float]:
    """Whether the tests fail on a copy with the fault, which does first, and the seconds taken."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy(Path(folder))
        plant(fault, Path(folder))
        found, by = fails(Path(folder), fault.tests)
    return found, by, time.monotonic() - start


def control(tests: tuple[str, ...], jobs: int) -> None:
    """RuntimeError unless the tests pass on a copy without a fault."""
    with tempfile.TemporaryDirectory() as folder:
        copy(Path(folder))
        failed, by = fails(Path(folder), tests, f"-n{jobs}")
    if failed:
        raise RuntimeError(f"without a fault the tests fail too: {by}")


def main() -> int:
    """Plant all faults, print a line each."""
    parser = argparse.ArgumentParser(description="Plant faults and show that the tests catch them.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names or parts of names")
    parser.add_argument("--jobs", type=int, default=2, help="copies tested at a time (default 2)")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    arguments = parser.parse_args()
    chosen = [f for f in FAULTS if not arguments.only or any(t in f.name for t in arguments.only)]
    if arguments.list:
        print("\n".join(fault.name for fault in chosen))
        return 0
    stale = [
        f"{f.name}: {f.file} has it {times_there(f)} times" for f in chosen if times_there(f) != 1
    ]
    if stale:
        print("not in the source any more:", *stale, sep="\n  ")
        return 1
    start = time.monotonic()
    control(tuple(sorted({name for f in chosen for name in f.tests})), arguments.jobs)
    print(f"no fault: the tests pass, {time.monotonic() - start:.0f} s", flush=True)
    survived = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = zip(chosen, pool.map(caught, chosen), strict=True)
        for number, (fault, (found, by, taken)) in enumerate(results, 1):
            verdict = "caught" if found else "SURVIVED"
            line = f"[{number}/{len(chosen)}] {verdict:<9}{taken:4.0f} s  {fault.name}"
            print(line + (f"  by {by.removeprefix('FAILED tests/')}" if found else ""), flush=True)
            survived += [] if found else [fault.name]
    print(f"{len(chosen) - len(survived)} of {len(chosen)} planted faults caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
