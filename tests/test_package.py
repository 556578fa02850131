"""The package from outside: its names, its imports, and what a wheel contains."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import cactus_rules as cr

ROOT = Path(__file__).parents[1]
CORE = Path(cr.__file__).parent


def test_all_names_exactly_what_exists() -> None:
    public = {
        name
        for name, value in vars(cr).items()
        if not name.startswith("_") and (name == "divergences" or not _is_module(value))
    }
    assert set(cr.__all__) == public
    assert sorted(cr.__all__) == sorted(set(cr.__all__))


def _is_module(value: object) -> bool:
    return type(value).__name__ == "module"


def test_every_public_name_has_a_docstring() -> None:
    documented = [name for name in cr.__all__ if getattr(cr, name).__doc__]
    assert documented == [name for name in cr.__all__ if name != "REGISTRY"] or set(
        cr.__all__
    ) - set(documented) <= {"REGISTRY"}


ENGINES = ("torch", "transformers", "llama_cpp", "vllm", "jax", "cupy", "triton", "sglang")


@pytest.mark.parametrize("module", ["cactus_rules", "cactus_rules.cli"])
def test_the_core_imports_no_engine(module: str, tmp_path: Path) -> None:
    code = (
        f"import sys, {module}\n"
        f"guests = {(*ENGINES, 'matplotlib', 'hypothesis', 'mpmath', 'cactus_rules.adapters')!r}\n"
        "found = sorted(g for g in guests if g in sys.modules)\n"
        "sys.exit(f'imported: {found}' if found else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def _imports(path: Path) -> set[str]:
    """Top-level names that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def test_no_file_of_the_core_names_an_engine() -> None:
    # The command line may start an adapter, the core may not know of one.
    files = [p for p in CORE.rglob("*.py") if "cli" not in p.parts and "testing" not in p.parts]
    files = [p for p in files if "adapters" not in p.parts and "theory" not in p.parts]
    assert len(files) > 20
    for path in files:
        heads = {name.split(".")[0] for name in _imports(path)}
        assert not heads & set(ENGINES), path
        assert not any(name.startswith("cactus_rules.adapters") for name in _imports(path)), path


DISTRIBUTIONS = {"llama_cpp": "llama-cpp-python", "array_api_compat": "array-api-compat"}


@pytest.mark.parametrize("folder", ["cactus_rules", "adapters", "theory"])
def test_whatever_is_imported_is_in_an_extra(folder: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [
        text for extra in project["optional-dependencies"].values() for text in extra
    ]
    declared = {re.split(r"[^\w-]", text)[0] for text in wanted}
    for path in (ROOT / folder).rglob("*.py"):
        heads = {name.split(".")[0] for name in _imports(path)} - sys.stdlib_module_names
        missing = {DISTRIBUTIONS.get(name, name) for name in heads - {"cactus_rules"}} - declared
        assert not missing, path


def test_adapters_and_theory_hold_no_rule() -> None:
    for path in [*(ROOT / "adapters").rglob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bases = {
            ast.unparse(base).rsplit(".", maxsplit=1)[-1]
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for base in node.bases
        }
        assert "Rule" not in bases, path


@pytest.mark.slow
def test_a_wheel_contains_every_module_and_works_elsewhere(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*build, "-w", str(tmp_path), str(ROOT)], check=True, timeout=300, cwd=tmp_path)
    (wheel,) = tmp_path.glob("cactus_rules-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    expected = {f"cactus_rules/{p.relative_to(CORE).as_posix()}" for p in CORE.rglob("*.py")}
    for folder in ("adapters", "theory"):
        files = [p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*.py")]
        expected |= {f"cactus_rules/{file}" for file in files}
    assert {"cactus_rules/adapters/__init__.py", "cactus_rules/theory/__init__.py"} <= expected
    assert expected | {"cactus_rules/py.typed"} <= names
    code = (
        "import cactus_rules, cactus_rules.adapters, cactus_rules.theory, pathlib\n"
        f"assert pathlib.Path(cactus_rules.__file__).is_relative_to({str(tmp_path)!r})\n"
        f"assert pathlib.Path(cactus_rules.adapters.__file__).is_relative_to({str(tmp_path)!r})\n"
        "print(float(cactus_rules.boost(0.3, 0.1)))\n"
    )
    # -I would drop the path; the editable install's finder comes after PYTHONPATH.
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.3
