"""`cactus_rules.adapters.torch.warp`: each row as the core's `warp` makes it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import cactus_rules as cr  # noqa: E402
from cactus_rules.adapters.torch import warp  # noqa: E402

OPTIONS: dict[str, list[Any]] = {
    "temperature": [0.0, 0.6, 1.0, 2.5, 0.0, 1.0, 1e-6],
    "top_k": [0, 5, 0, 1, 3, 0, 2],
    "top_p": [1.0, 0.9, 0.3, 1.0, 0.5, 1.0, 1.0],
    "min_p": [0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.5],
}
"""Seven requests, greedy ones among them; the sixth leaves the softmax as it is."""


def _logits(*shape: int, dtype: Any = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    logits = (3 * torch.randn(*shape, generator=generator)).to(dtype)
    logits[..., 4] = logits[..., 2]
    logits[..., 7] = -torch.inf
    return logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("names", [list(OPTIONS), ["temperature"], ["top_k"], ["top_p", "min_p"]])
def test_each_row_as_the_core_makes_it(dtype: Any, names: list[str]) -> None:
    logits = _logits(7, 3, 40, dtype=dtype)
    options = {name: torch.tensor(OPTIONS[name]) for name in names}
    found = warp(logits, **options)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    for b in range(7):
        one = {name: values[b].item() for name, values in options.items()}
        assert torch.equal(found[b], cr.warp(logits[b], **one)), one


def test_numbers_and_tensors_mix() -> None:
    logits = _logits(7, 40)
    temperature = torch.tensor(OPTIONS["temperature"])
    found = warp(logits, temperature=temperature, top_k=4, min_p=0.05)
    for b in range(7):
        one = {"temperature": temperature[b].item(), "top_k": 4, "min_p": 0.05}
        assert torch.equal(found[b], cr.warp(logits[b], **one))


def test_numbers_alone_are_the_core() -> None:
    logits = _logits(2, 40)
    assert torch.equal(
        warp(logits, temperature=0.7, top_k=3), cr.warp(logits, temperature=0.7, top_k=3)
    )


def test_numbers_are_checked_and_tensors_clamped() -> None:
    logits = _logits(2, 40)
    with pytest.raises(ValueError, match="top_p must be in"):
        warp(logits, temperature=torch.tensor([1.0, 0.0]), top_p=0.0)
    wild = warp(
        logits,
        temperature=torch.tensor([-1.0, 1.0]),
        top_k=torch.tensor([-3, 99]),
        top_p=torch.tensor([0.0, 2.0]),
        min_p=torch.tensor([7.0, -1.0]),
    )
    assert torch.equal(wild[0], cr.warp(logits[0], temperature=0))
    torch.testing.assert_close(wild[1], cr.warp(logits[1]))


@pytest.mark.parametrize("batch", [1, 2])
def test_one_value_per_request(batch: int) -> None:
    text = rf"temperature \(3,\) does not fit the requests \({batch},\): give one value per request"
    with pytest.raises(ValueError, match=text):
        warp(_logits(batch, 40), temperature=torch.ones(3))
    with pytest.raises(ValueError, match=r"top_k \(1, 1\) does not fit the requests"):
        warp(_logits(batch, 40), top_k=torch.ones(1, 1))
    everywhere = warp(_logits(batch, 40), temperature=torch.tensor([2.0]))
    assert torch.equal(everywhere, cr.warp(_logits(batch, 40), temperature=2.0))


def test_logits_are_a_tensor_of_numbers() -> None:
    heat = torch.ones(2)
    with pytest.raises(ValueError, match=r"logits must be a tensor .*, got ndarray"):
        warp(_logits(2, 40).numpy(), temperature=heat)
    with pytest.raises(ValueError, match=r"logits must hold floats, got dtype torch\.bool"):
        warp(_logits(2, 40) > 0, temperature=heat)


def test_nothing_leaves_the_device() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        options = {
            name: torch.empty(7, device="meta", dtype=torch.int64 if name == "top_k" else None)
            for name in OPTIONS
        }
        assert warp(torch.empty(7, 3, 40, device="meta"), **options).device.type == "meta"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiles_as_one_graph() -> None:
    options = {name: torch.tensor(values) for name, values in OPTIONS.items()}
    torch._dynamo.reset()
    compiled = torch.compile(warp, fullgraph=True, backend="eager")
    logits = _logits(7, 40)
    assert torch.equal(compiled(logits, **options), warp(logits, **options))
