"""The Triton kernels, through Triton's interpreter, against the plain torch path.

What the interpreter cannot show: speed, races, and arithmetic that a GPU contracts. That is
`benchmarks/gpu_verify.py`.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)
if os.environ["TRITON_INTERPRET"] != "1":
    pytest.skip("TRITON_INTERPRET is set to another value than 1", allow_module_level=True)

import torch_cases as cases  # noqa: E402

import cactus_rules as cr  # noqa: E402
from cactus_rules.adapters import kernels  # noqa: E402
from cactus_rules.adapters.torch import log_sum_exp, verify  # noqa: E402

NAN, INF = float("nan"), float("inf")
BELOW_ONE = 1 - 2.0**-53

# The kernels add float32 exponentials from another maximum: see `log_sum_exp`.
LOGIT_RTOL = 40 * 2.0**-23

pytestmark = [
    pytest.mark.slow,
    # The interpreter computes with numpy, which warns where a GPU does not.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def both(*arguments: Any, rtol: float = 1e-12, **options: Any) -> cr.Verification:
    """Assert that plain torch and the kernels agree, token for token; the kernels' answer."""
    plain = verify(*arguments, kernel=False, **options)
    fused = verify(*arguments, kernel=True, **options)
    cases.same(fused, plain, rtol=LOGIT_RTOL if options.get("logits") else rtol)
    return fused


def test_uniforms_are_bit_for_bit_those_of_the_core() -> None:
    seeds = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 123456789123456789])
    steps = torch.tensor([0, 2**32 - 1, 2**32, 2**40 + 3, 2**63 - 1, 7])
    expected = torch.stack(
        [
            cr.uniforms(seeds[:, None], steps[:, None], torch.arange(90), stream)
            for stream in (cr.Stream.COIN, cr.Stream.DRAW)
        ],
        -1,
    )
    assert torch.equal(kernels.uniforms(seeds, steps, 90), expected)


def test_names_of_requests_fit_before_the_kernels_read_them() -> None:
    rows, tokens = torch.full((2, 1, 4), 0.25), torch.empty(2, 0, dtype=torch.int64)
    two, three = (torch.zeros(n, dtype=torch.int64) for n in (2, 3))
    for name, given in (("seeds", (three, two)), ("steps", (two, three))):
        with pytest.raises(
            ValueError, match=rf"{name} \(3,\) does not fit the requests \(2,\): give"
        ):
            verify(None, rows, tokens, cr.Lossless(), seeds=given[0], steps=given[1], kernel=True)
    both(None, rows, tokens, cr.Lossless(), seeds=two[:1], steps=two)


@pytest.mark.parametrize("rule", cases.RULES, ids=cases.label)
def test_every_rule_from_probabilities(rule: cr.Rule) -> None:
    batch = cases.batch(width=300, seed=20)
    p, q = batch.rows(False, torch.float32)
    both(p, q, batch.tokens, rule, **batch.names())


@pytest.mark.parametrize("rule", cases.RULES, ids=cases.label)
def test_every_rule_from_logits(rule: cr.Rule) -> None:
    batch = cases.batch(width=300, seed=21)
    p, q = batch.rows(True, torch.float32)
    both(p, q, batch.tokens, rule, logits=True, **batch.names())


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("rule", [cr.Lossless(), cr.TopK(3), cr.Typical()], ids=cases.label)
def test_one_hot_drafts(rule: cr.Rule, logits: bool) -> None:
    batch = cases.batch(width=300, seed=22)
    _, q = batch.rows(logits, torch.float32)
    both(None, q, batch.tokens, rule, logits=logits, **batch.names())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("logits", [False, True])
def test_dtypes_and_several_blocks(dtype: Any, logits: bool) -> None:
    batch = cases.batch(width=5000, seed=23)
    p, q = batch.rows(logits, dtype)
    both(p, q, batch.tokens, cr.Cactus(cases.DELTAS), logits=logits, **batch.names())


@pytest.mark.parametrize("logits", [False, True])
def test_any_strides(logits: bool) -> None:
    batch = cases.batch(width=300, seed=24)
    p, q = (
        x.permute(2, 0, 1).contiguous().permute(1, 2, 0) for x in batch.rows(logits, torch.float32)
    )
    tokens = batch.tokens.T.contiguous().T
    both(p, q, tokens, cr.Cactus(cases.DELTAS), logits=logits, **batch.names())


@pytest.mark.parametrize("logits", [False, True])
def test_nothing_drafted(logits: bool) -> None:
    batch = cases.batch(width=300, seed=25)
    p, q = batch.rows(logits, torch.float32)
    both(p[:, :0], q[:, :1], batch.tokens[:, :0], cr.Lossless(), logits=logits, **batch.names())


def test_the_largest_vocabulary() -> None:
    generator = torch.Generator().manual_seed(26)
    rows = torch.rand(1, 3, 262144, generator=generator, dtype=torch.float64)
    rows /= rows.sum(-1, keepdim=True)
    tokens = torch.tensor([[262143]])
    uniforms = torch.tensor([[[BELOW_ONE, 0.7], [0.5, 0.5]]], dtype=torch.float64)
    rows[0, 0, -1] = 1e-7
    v = both(rows[:, 2:], rows[:, :2], tokens, cr.Lossless(), uniforms=uniforms)
    assert v.num_accepted.item() == 0


def test_a_request_is_the_same_alone() -> None:
    batch = cases.batch(width=5000, seed=27)
    p, q = batch.rows(True, torch.float32)
    rule = cr.Cactus(0.1)
    together = verify(p, q, batch.tokens, rule, logits=True, kernel=True, **batch.names())
    for b in (0, 3):
        one = slice(b, b + 1)
        alone = verify(
            p[one],
            q[one],
            batch.tokens[one],
            rule,
            logits=True,
            kernel=True,
            seeds=batch.seeds[one],
            steps=batch.steps[one],
        )
        cases.same(alone, together[one])


def test_draws_over_the_whole_range() -> None:
    """Many requests with one row pair, and draws from 0 to the last number below 1."""
    generator = torch.Generator().manual_seed(28)
    p, q = torch.softmax(3 * torch.randn(2, 1, 1, 40, generator=generator), -1)
    q[..., [0, 17, 39]] = 0
    q /= q.sum(-1, keepdim=True)
    token = int((p - q).argmax())
    draws = torch.linspace(0, 1, 24, dtype=torch.float64).clamp(max=BELOW_ONE)
    uniforms = torch.full((24, 2, 2), BELOW_ONE, dtype=torch.float64)
    uniforms[:, 0, 1] = draws
    v = both(
        p.expand(24, 1, 40),
        q.expand(24, 2, 40),
        torch.full((24, 1), token),
        cr.Lossless(),
        uniforms=uniforms,
    )
    possible = ((q - p)[0, 0] > 0).nonzero()[:, 0]
    assert v.token_ids[0, 0] == possible[0]
    assert v.token_ids[-1, 0] == possible[-1]


ROWS = {
    "sane": [0.4, 0.3, 0.2, 0.1],
    "nan": [NAN] * 4,
    "some nan": [0.5, NAN, 0.25, 0.25],
    "zero": [0.0] * 4,
    "infinite": [0.1, INF, 0.3, 0.1],
    "negative": [0.6, 0.6, -0.2, 0.0],
    "one-hot at the token": [0.0, 1.0, 0.0, 0.0],
    "one-hot elsewhere": [0.0, 0.0, 0.0, 1.0],
    "no softmax": [-INF] * 4,
}


@pytest.mark.parametrize(
    ("rule", "logits"), [(cr.Lossless(), False), (cr.Cactus(0.1), True), (cr.TopK(2), False)]
)
def test_reports(rule: cr.Rule, logits: bool) -> None:
    """Bad rows of every kind against each other, ids outside, padding, coins of 0 and almost 1."""
    pairs = [(p, q) for p in ROWS.values() for q in ROWS.values()]
    p = torch.tensor([[pair[0]] * 2 for pair in pairs])
    q = torch.tensor([[pair[1]] * 3 for pair in pairs])
    count = len(pairs)
    tokens = torch.tensor([[1, 1], [1, -1], [9, 1], [-3, 0], [1, 2**40], [-1, 1]])
    tokens = tokens.repeat(count // 6 + 1, 1)[:count]
    uniforms = torch.zeros(count, 3, 2, dtype=torch.float64)
    uniforms[..., 0] = torch.tensor([0.0, 0.6, BELOW_ONE, 0.999]).repeat(count)[:count, None]
    uniforms[..., 1] = torch.tensor([0.0, 0.3, BELOW_ONE]).repeat(count)[:count, None]
    v = both(p, q, tokens, rule, logits=logits, uniforms=uniforms)
    assert ((v.token_ids >= -1) & (v.token_ids < 4)).all()
    emitted = v.token_ids[torch.arange(count), v.num_accepted]
    assert (emitted >= 0).all()


def test_log_sum_exp() -> None:
    generator = torch.Generator().manual_seed(29)
    logits = 5 * torch.randn(2, 3, 3000, generator=generator)
    logits[0, 1, :2500] = -INF
    logits[1, 0] = -INF
    logits[1, 1, 7] = NAN
    used = torch.tensor([[True, True, True], [True, True, False]])
    found = kernels.log_sum_exp(logits, used)
    expected = torch.where(used, log_sum_exp(logits), NAN)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8, equal_nan=True)
    wide = kernels.log_sum_exp(logits.double(), used)[0]
    torch.testing.assert_close(wide, torch.logsumexp(logits[0].double(), -1), rtol=1e-14, atol=0)


def test_offsets_beyond_32_bits() -> None:
    # 4 GiB of address space, of which the rows alone are ever touched.
    store = torch.empty(2**31 + 64, dtype=torch.float16)
    q = store.as_strided((2, 2, 8), (2**31, 8, 1))
    for request in range(2):
        q[request] = torch.eye(8)[[3 + request, 6]]
    names = {"seeds": torch.tensor([1, 2]), "steps": torch.tensor([0, 0])}
    v = both(None, q, torch.tensor([[3], [0]]), cr.Lossless(), **names)
    assert v.token_ids.tolist() == [[3, 6], [4, -1]]


def test_why_the_kernels_cannot_run() -> None:
    assert kernels.unavailable(torch.ones(1, 1, 2)) is None
    assert "take rows (B, K+1, V)" in str(kernels.unavailable(torch.ones(1, 2)))
