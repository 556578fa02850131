"""No work of the vocabulary's size before it is needed: counted, not timed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import strategies
from kinds import UnavailableError
from kinds import kind as kind_of

import cactus_rules as cr
from cactus_rules import _walk

V = 1 << 15
PAIR_RULES = [rule for rule in strategies.EXAMPLES if rule.reads == "pair"]
ROW_RULES = [rule for rule in strategies.EXAMPLES if rule.reads != "pair"]


class Counted(np.ndarray):
    """An array that counts the functions that are applied to a vocabulary-sized operand.

    Views and gathers (indexing, take, take_along_axis, broadcast_to) read no more than they return
    and are not counted.
    """

    touched: list[str] = []  # noqa: RUF012  (shared on purpose, cleared by the fixture)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        self._count(ufunc.__name__, inputs)
        outputs = options.get("out")
        if outputs:
            options["out"] = tuple(_plain(x) for x in outputs)
        return getattr(ufunc, method)(*map(_plain, inputs), **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function not in (np.take, np.take_along_axis, np.broadcast_to):
            self._count(function.__name__, args)
        return super().__array_function__(function, types, args, options)

    @classmethod
    def _count(cls, name: str, operands: Any) -> None:
        sizes = [x.size for x in operands if isinstance(x, np.ndarray)]
        if max(sizes, default=0) >= V:
            cls.touched.append(name)


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Counted) else value


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the functions that touched a whole row; `asarray` is made to keep the class."""
    monkeypatch.setattr(np, "asarray", np.asanyarray)
    Counted.touched.clear()
    yield Counted.touched
    Counted.touched.clear()


def _rows(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.random((*shape, V)) + 0.5
    return (rows / rows.sum(axis=-1, keepdims=True)).view(Counted)


@pytest.mark.parametrize("rule", PAIR_RULES, ids=strategies.name_of)
def test_accept_and_decide_read_two_numbers(rule: cr.Rule, touched: list[str]) -> None:
    p, q = _rows(), _rows()
    for draft in (p, None):
        a = cr.accept(draft, q, 17, rule=rule, policy="safe")
        a.decide(0.5)
        float(a.probability)
    assert touched == []
    a.residual()
    assert touched != []


@pytest.mark.parametrize("rule", ROW_RULES, ids=strategies.name_of)
def test_rules_that_read_rows_are_seen_to_do_so(rule: cr.Rule, touched: list[str]) -> None:
    p, q = _rows(), _rows()
    cr.accept(p, q, 17, rule=rule, policy="safe")
    assert touched != []


@pytest.mark.parametrize("rule", PAIR_RULES, ids=strategies.name_of)
def test_verify_reads_whole_rows_only_for_the_last_token(
    rule: cr.Rule, touched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, int]] = []
    original = _walk.row_at

    def marked(xp: Any, rows: Any, k: Any) -> Any:
        events.append(("row_at", len(touched)))
        return original(xp, rows, k)

    monkeypatch.setattr(_walk, "row_at", marked)
    p, q = _rows(3), _rows(4)
    u = np.full((4, 2), 0.5)
    cr.verify(p, q, [5, 6, 7], rule, uniforms=u, policy="safe")
    # Nothing was touched until rows of one position were asked for, after the coins.
    assert events[0] == ("row_at", 0)


def test_strict_is_what_reads_whole_rows(touched: list[str]) -> None:
    cr.accept(_rows(), _rows(), 17, 0.1)
    assert touched != []


def _peak(call: Callable[[], object]) -> int:
    call()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("rule", PAIR_RULES, ids=strategies.name_of)
def test_accept_allocates_no_row(rule: cr.Rule) -> None:
    p, q = _rows().view(np.ndarray), _rows().view(np.ndarray)
    assert _peak(lambda: cr.accept(p, q, 17, rule=rule, policy="safe").decide(0.5)) < V / 4


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_output_law_takes_memory_in_proportion_to_the_vocabulary(rule: cr.Rule) -> None:
    p, q = _rows().view(np.ndarray), _rows().view(np.ndarray)
    p = np.where(np.arange(V) % 3, p, 0.0)
    p = p / p.sum()
    # Some tens of rows of float64, far from V of them.
    assert _peak(lambda: cr.output_law(p, q, rule)) < 64 * 8 * V


@pytest.mark.parametrize("rule", PAIR_RULES, ids=strategies.name_of)
def test_torch_touches_no_row_before_it_is_needed(rule: cr.Rule) -> None:
    try:
        torch = kind_of("torch")
    except UnavailableError as reason:
        pytest.skip(str(reason))
    from torch.utils._python_dispatch import TorchDispatchMode

    names: list[str] = []

    class Watch(TorchDispatchMode):
        """Records every operation that reads or makes a vocabulary-sized tensor."""

        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), options: Any = None
        ) -> Any:
            result = op(*args, **(options or {}))
            name = str(op)
            views = ("expand", "slice", "select", "gather", "view", "unsqueeze", "alias", "detach")
            tensors = [x for x in (*args, result) if hasattr(x, "numel")]
            if max((x.numel() for x in tensors), default=0) >= V and not any(
                f"aten.{view}" in name for view in views
            ):
                names.append(name)
            return result

    p, q = (torch.make(rows.view(np.ndarray)) for rows in (_rows(3), _rows(3)))
    token, u = torch.make(np.array([1, 2, 3])), torch.make(np.full(3, 0.5))
    with Watch():
        cr.accept(p, q, token, rule=rule).decide(u)
    assert names == []
    with Watch():
        cr.accept(p, q, token, rule=rule).residual()
    assert names != []
