"""The Triton kernels, through Triton's interpreter, against the plain torch path.

What the interpreter cannot show: types, for which the programs are compiled here; speed and races,
for which there is `benchmarks/gpu_verify.py`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)
if os.environ["TRITON_INTERPRET"] != "1":
    pytest.skip("TRITON_INTERPRET is set to another value than 1", allow_module_level=True)

import judge  # noqa: E402
import kernel_steps  # noqa: E402
import numpy as np  # noqa: E402
import torch_cases as cases  # noqa: E402
from mpmath import mp, mpf  # noqa: E402

import cactus_rules as cr  # noqa: E402
from cactus_rules._clip import clip_within_budget  # noqa: E402
from cactus_rules.adapters import kernels  # noqa: E402
from cactus_rules.adapters.kernels import clip, launch  # noqa: E402
from cactus_rules.adapters.torch import log_sum_exp, verify  # noqa: E402

NAN, INF = float("nan"), float("inf")
BELOW_ONE = 1 - 2.0**-53

# The kernels add float32 exponentials from another maximum: see `log_sum_exp`.
LOGIT_RTOL = 40 * 2.0**-23

# Two searches that each end within 4 * 2^-36 of the budget, or more as a nears 1.
SEARCH_RTOL = 2.0**-33

pytestmark = [
    pytest.mark.slow,
    # The interpreter computes with numpy, which warns where a GPU does not.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def both(*arguments: Any, **options: Any) -> cr.Verification:
    """Assert that plain torch and the kernels agree, token for token; the kernels' answer."""
    plain = verify(*arguments, kernel=False, **options)
    fused = verify(*arguments, kernel=True, **options)
    searched = isinstance(arguments[3], cr.Mentored)
    rtol = LOGIT_RTOL if options.get("logits") else SEARCH_RTOL if searched else 1e-12
    cases.same(fused, plain, rtol=rtol)
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
    "ties": [0.3, 0.1, 0.3, 0.3],
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
    ("rule", "logits"),
    [
        (cr.Lossless(), False),
        (cr.Cactus(0.1), True),
        (cr.TopK(2), False),
        (cr.Mentored(0.1), False),
        (cr.Mentored(0.1), True),
    ],
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


def _pairs(rng: np.random.Generator, count: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Drafts and targets of seven kinds, in turn.

    Far apart, with ties and zeros, over 30 decades, with excluded tokens, near each other, both
    almost one-hot, and filtered to a few tokens.
    """
    shape = (count, width)
    logits = rng.normal(size=shape) * rng.choice([1.0, 3.0, 8.0], (count, 1))
    noise = rng.normal(size=shape) * rng.choice([1e-6, 0.1, 1.0, 3.0], (count, 1))
    p, q = (np.exp(x - x.max(-1, keepdims=True)) for x in (logits, logits + noise))
    kind = np.arange(count)[:, None] % 7
    alpha = rng.choice([0.05, 0.3, 10.0], (count, 1))
    for i, make in enumerate(
        (
            lambda: rng.gamma(np.broadcast_to(alpha, shape)),
            lambda: rng.integers(0, 4, shape),
            lambda: 10.0 ** rng.uniform(-30, 0, shape),
        )
    ):
        p, q = (np.where(kind == i, make(), rows) for rows in (p, q))
    q = np.where((kind == 3) & (rng.random(shape) < 0.3), 0, q)
    tails = 10.0 ** rng.uniform(-13, -8, (2, count, 1)) * rng.gamma(0.5, size=(2, *shape))
    hot = np.arange(width) == rng.integers(0, width, (count, 1))
    p, q = (np.where(kind == 5, np.where(hot, 1, t), x) for t, x in zip(tails, (p, q), strict=True))
    few = [np.sort(x, axis=-1)[:, -min(5, width)][:, None] for x in (p, q)]
    side = rng.integers(0, 3, (count, 1))
    p, q = (np.where((kind == 6) & (side != i) & (x < few[i]), 0, x) for i, x in enumerate((p, q)))
    for x in (p, q):
        x[:, 0] = np.where(x.sum(-1) > 0, x[:, 0], 1)
    return p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)


def _interpreted(p: np.ndarray, q: np.ndarray, delta: np.ndarray) -> list[np.ndarray]:
    """The kernel's two ends, and its number of passes, for rows `(n, V)` and budgets `(n,)`."""
    k = 5 if len(p) % 5 == 0 else 1
    rows = [kernels.ProbabilityRows(torch.tensor(x).view(-1, k, x.shape[-1])) for x in (p, q)]
    budget = torch.tensor(delta).view(-1, k)
    ends = kernels.FUSED.clip_within_budget(*rows, cr.divergences.KL(), budget)
    assert ends is not None
    passes = launch.search(*rows, budget)[..., clip.PASSES.value]
    return [x.flatten().numpy() for x in (*ends, passes)]


@pytest.mark.parametrize("width", [2, 5, 40, 5000])
def test_the_steps_on_numpy_are_the_search(width: int) -> None:
    rng = np.random.default_rng(width)
    count = 5 if width > 2048 else 25
    p, q = _pairs(rng, count, width)
    delta = 10.0 ** rng.uniform(-9, 1, count)
    a, b, passes = _interpreted(p, q, delta)
    expected_a, expected_b, expected_passes = kernel_steps.search(p, q, delta, launch._PASSES)
    # Sums in another order; near the end of a search that may take another pass, or less.
    np.testing.assert_allclose(a, expected_a, rtol=1e-6)
    np.testing.assert_allclose(b, expected_b, rtol=1e-6, atol=1e-12)
    assert (abs(passes - expected_passes) <= 2).all()


@pytest.mark.parametrize("width", [2, 3, 12, 50])
def test_the_search_finds_what_the_core_finds(width: int) -> None:
    rng = np.random.default_rng(200 + width)
    p, q = _pairs(rng, 10000, width)
    delta = 10.0 ** rng.uniform(-9, 1, 10000)
    a, _, passes = kernel_steps.search(p, q, delta, launch._PASSES)
    expected = clip_within_budget(p, q, cr.divergences.KL(), delta)[0]
    found, best = (np.minimum(p, end[:, None] * q).sum(-1) for end in (a, expected))
    gain = best - np.minimum(p, q).sum(-1)
    # Both end within a part of the budget that grows as a nears 1, and count rounding as spent.
    part = SEARCH_RTOL + 2.0**-42 / np.sqrt(delta)
    assert (abs(found - best) <= part * gain + 2.0**-52 * (16 + width**0.5)).all()
    assert passes.mean() < 7


@pytest.mark.parametrize("passes", [1, 2, 3, 5, launch._PASSES])
def test_the_search_keeps_the_budget_on_the_output_law(passes: int) -> None:
    """Whenever it ends; also where the budget is just below what the whole draft costs."""
    rng = np.random.default_rng(31)
    for width in (1, 2, 5, 12):
        p, q = _pairs(rng, 140, width)
        delta = 10.0 ** rng.uniform(-12, 1, 140)
        for i in range(0, 140, 3):
            if (cost := judge.full("kl", *_laws(p[i], q[i]))) < mp.inf and width > 1:
                delta[i] = np.nextafter(float(cost), 0)
        a, b, _ = kernel_steps.search(p, q, delta, passes)
        for row in zip(p, q, a, b, delta, strict=True):
            _assert_within_budget(*row)


@pytest.mark.parametrize(
    ("p", "q", "delta"),
    [
        # p/q on both sides of what counts as excluded.
        ([0.08, 0.095, 0.825], [1.0, 1.5e-301, 6.4e-301], 0.0057),
        # Rounding of the rejected mass weighs more than all that the ends hold.
        (
            [0.7078556877428005, 0.29214431225719945, 0.0],
            [0.707856417041227, 0.2921435829080098, 5.076328918774571e-11],
            4.68444685992729e-11,
        ),
        # Rounding of the surplus, scaled to what is rejected, moves tokens that weigh nothing.
        (
            [0.9999999999986282, 3.0370240095632593e-13, 1.0681358107386384e-12],
            [0.9999999999994651, 5.144172604102684e-13, 2.0326440735813838e-14],
            2.368532295021083e-12,
        ),
        # The lower end beyond the next p/q, which the sums cannot tell.
        (
            [3.202777519614602e-14, 0.9999999999996516, 3.1645815408258484e-13],
            [7.000399593155309e-14, 0.9999999999999296, 3.6685576128046875e-16],
            1.570014470237143e-12,
        ),
        # A budget just below the cost of the draft, which no end cuts.
        (
            [0.19049767400393552, 0.2929024947833421, 0.5165998312127225],
            [0.19031332180433153, 0.2916407184012197, 0.5180459597944488],
            4.835173724532588e-06,
        ),
    ],
)
def test_a_budget_that_rounding_could_break(p: list[float], q: list[float], delta: float) -> None:
    rows = np.array([p]), np.array([q]), np.array([delta])
    for ends in (
        _interpreted(*rows)[:2],
        clip_within_budget(*rows[:2], cr.divergences.KL(), rows[2]),
    ):
        _assert_within_budget(rows[0][0], rows[1][0], ends[0][0], ends[1][0], delta)


def _laws(*rows: np.ndarray) -> list[list[mpf]]:
    """The laws that rows of floats stand for, which add up to 1."""
    with mp.workdps(judge.DIGITS):
        return [[mpf(x) / mp.fsum(row.tolist()) for x in row.tolist()] for row in rows]


def _assert_within_budget(p: np.ndarray, q: np.ndarray, a: float, b: float, delta: float) -> None:
    """The budget, at 50 digits, on the law that is emitted with these very ends."""
    with mp.workdps(judge.DIGITS):
        draft, target = _laws(p, q)
        ratio = mp.fsum(q.tolist()) / mp.fsum(p.tolist())
        a, b = mpf(float(a)) * ratio, mpf(float(b)) * ratio
        law = judge.output(draft, target, [a * x for x in target], [b] * len(target))
        spent = judge.full("kl", law, target)
        assert spent <= mpf(float(delta)) + mpf(10) ** (3 - judge.DIGITS)


@pytest.mark.parametrize("logits", [False, True])
def test_mentored_where_a_search_has_nothing_to_find(logits: bool) -> None:
    """No budget, any budget, equal rows, disjoint rows, one-hot rows, one token."""
    rows = torch.tensor([[0.6, 0.3, 0.1, 0.0], [0.0, 0.0, 0.0, 1.0], [0.25, 0.25, 0.5, 0.0]])
    p, q = (x.reshape(9, 1, 4) for x in (rows.repeat_interleave(3, 0), rows.repeat(3, 1)))
    tokens = p.argmax(-1)
    q = torch.cat([q, q], 1)
    coins = torch.tensor([0.0, 0.4, 0.95], dtype=torch.float64).repeat(3)
    uniforms = coins[:, None, None].expand(9, 2, 2)
    given = (p.log(), q.log()) if logits else (p, q)
    for delta in (0.0, 1e-300, 0.02, 3.0, INF):
        both(*given, tokens, cr.Mentored(delta), logits=logits, uniforms=uniforms)
    one = torch.zeros(1, 2, 1) + (not logits)
    v = both(
        one[:, :1], one, tokens[:1] * 0, cr.Mentored(0.1), logits=logits, uniforms=uniforms[:1]
    )
    assert v.num_accepted.item() == 1


def test_other_divergences_are_searched_without_a_kernel() -> None:
    batch = cases.batch(width=300, seed=30)
    p, q = batch.rows(False, torch.float64)
    both(p, q, batch.tokens, cr.Mentored(cases.DELTAS, "js"), **batch.names())


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


def test_every_program_compiles_for_a_gpu_and_every_call_is_one_graph() -> None:
    script = Path(__file__).with_name("compile_kernels.py")
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "programs for cuda 90" in done.stdout
    assert done.stdout.count("one graph") == 10


def test_why_the_kernels_cannot_run() -> None:
    assert kernels.unavailable(torch.ones(1, 1, 2)) is None
    assert "take rows (B, K+1, V)" in str(kernels.unavailable(torch.ones(1, 2)))
