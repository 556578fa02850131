"""`cactus_rules.adapters.torch.verify`: the numpy core's tokens, without leaving the device."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_cases as cases  # noqa: E402

import cactus_rules as cr  # noqa: E402
from cactus_rules.adapters.torch import LogitRows, log_sum_exp, softmax, verify  # noqa: E402

NARROW = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
NAN, INF = float("nan"), float("inf")

# One float32 exponential per entry, their sum in float64: relative error of a probability.
LOGIT_RTOL = 4 * 2.0**-23


def _numpy(batch: cases.Batch, rule: cr.Rule, p: Any, q: Any, **options: Any) -> cr.Verification:
    """The same call on the numpy core, in float64."""
    uniforms = np.stack(
        [
            cr.uniforms(batch.seeds.numpy()[:, None], batch.steps.numpy()[:, None], np.arange(4), s)
            for s in (cr.Stream.COIN, cr.Stream.DRAW)
        ],
        axis=-1,
    )
    rows = (None if x is None else x.double().numpy() for x in (p, q))
    return cr.verify(
        *rows, batch.tokens.numpy(), cases.on_numpy(rule), uniforms=uniforms, policy="safe"
    )


@pytest.mark.parametrize("rule", cases.RULES, ids=cases.label)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_tokens_as_numpy_from_probabilities(rule: cr.Rule, seed: int) -> None:
    batch = cases.batch(seed=seed)
    p, q = batch.rows(False, torch.float32)
    found = verify(p, q, batch.tokens, rule, **batch.names())
    cases.same(found, _numpy(batch, rule, p, q), rtol=1e-12)


@pytest.mark.parametrize("rule", cases.RULES, ids=cases.label)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_tokens_as_numpy_from_logits(rule: cr.Rule, seed: int) -> None:
    batch = cases.batch(seed=seed)
    p, q = batch.rows(True, torch.float32)
    found = verify(p, q, batch.tokens, rule, logits=True, **batch.names())
    # One softmax, shared; then one that is exact, to which logs agree as far as float32 allows.
    cases.same(found, _numpy(batch, rule, softmax(p), softmax(q)), rtol=1e-12)
    exact = _numpy(batch, rule, *(torch.softmax(x.double(), -1) for x in (p, q)))
    cases.same(found, exact, rtol=20 * LOGIT_RTOL)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("logits", [False, True])
def test_dtypes(dtype: Any, logits: bool) -> None:
    batch = cases.batch(seed=3)
    p, q = batch.rows(logits, dtype)
    found = verify(p, q, batch.tokens, cr.Cactus(0.2), logits=logits, **batch.names())
    if logits:
        p, q = softmax(p), softmax(q)
    cases.same(found, _numpy(batch, cr.Cactus(0.2), p, q), rtol=1e-12)
    assert found.token_ids.dtype == torch.int64
    assert found.logprobs.dtype == torch.float64


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("rule", cases.RULES, ids=cases.label)
def test_one_hot_drafts(rule: cr.Rule, logits: bool) -> None:
    batch = cases.batch(seed=4)
    _, q = batch.rows(logits, torch.float32)
    found = verify(None, q, batch.tokens, rule, logits=logits, **batch.names())
    cases.same(found, _numpy(batch, rule, None, softmax(q) if logits else q), rtol=1e-12)


@pytest.mark.parametrize("logits", [False, True])
def test_a_request_is_the_same_in_any_slot_and_batch(logits: bool) -> None:
    batch = cases.batch(seed=5)
    p, q = batch.rows(logits, torch.float32)
    rule = cr.Cactus(cases.DELTAS)
    found = verify(p, q, batch.tokens, rule, logits=logits, **batch.names())
    order = torch.tensor([2, 0, 3])
    moved = verify(
        p[order],
        q[order],
        batch.tokens[order],
        cr.Cactus(cases.DELTAS[order]),
        logits=logits,
        seeds=batch.seeds[order],
        steps=batch.steps[order],
    )
    cases.same(found[order], moved)


@pytest.mark.parametrize("logits", [False, True])
def test_any_strides(logits: bool) -> None:
    batch = cases.batch(seed=6)
    p, q = batch.rows(logits, torch.float32)
    straight = verify(p, q, batch.tokens, cr.Lossless(), logits=logits, **batch.names())
    vocabulary_first = [x.permute(2, 0, 1).contiguous().permute(1, 2, 0) for x in (p, q)]
    padded = [torch.nn.functional.pad(x, (0, 5))[..., :-5] for x in (p, q)]
    tokens = batch.tokens.T.contiguous().T
    for a, b in (vocabulary_first, padded):
        cases.same(straight, verify(a, b, tokens, cr.Lossless(), logits=logits, **batch.names()))


@pytest.mark.parametrize("logits", [False, True])
def test_uniforms_may_be_given(logits: bool) -> None:
    batch = cases.batch(seed=7)
    p, q = batch.rows(logits, torch.float32)
    uniforms = torch.stack(
        [
            cr.uniforms(batch.seeds[:, None], batch.steps[:, None], torch.arange(4), stream)
            for stream in (cr.Stream.COIN, cr.Stream.DRAW)
        ],
        -1,
    )
    cases.same(
        verify(p, q, batch.tokens, cr.Lossless(), logits=logits, **batch.names()),
        verify(p, q, batch.tokens, cr.Lossless(), logits=logits, uniforms=uniforms),
    )


def test_nothing_drafted() -> None:
    batch = cases.batch(seed=8)
    _, q = batch.rows(True, torch.float32)
    v = verify(
        batch.draft[:, :0],
        q[:, :1],
        batch.tokens[:, :0],
        cr.Lossless(),
        logits=True,
        **batch.names(),
    )
    assert v.token_ids.shape == (4, 1)
    assert (v.token_ids >= 0).all()
    assert (v.num_accepted == 0).all()


def test_block_verification_from_logits() -> None:
    batch = cases.batch(seed=9)
    p, q = batch.rows(True, torch.float32)
    rule = cr.Lossless()
    block = verify(p, q, batch.tokens, rule, logits=True, walk="block", **batch.names())
    dense = cr.verify(softmax(p), softmax(q), batch.tokens, rule, walk="block", **batch.names())
    cases.same(block, dense, rtol=1e-12)


class TestLogitRows:
    """Rows behind logits, against a softmax in float64."""

    @pytest.mark.parametrize("dtype", NARROW, ids=str)
    def test_probabilities(self, dtype: Any) -> None:
        logits = (5 * torch.randn(2, 3, 1000, generator=torch.Generator().manual_seed(0))).to(dtype)
        exact = torch.softmax(logits.double(), -1)
        rows = LogitRows(logits)
        index = torch.randint(0, 1000, (2, 3), generator=torch.Generator().manual_seed(1))
        rtol = 1e-14 if dtype == torch.float64 else LOGIT_RTOL
        torch.testing.assert_close(rows.whole(), exact, rtol=rtol, atol=0)
        picked = torch.take_along_dim(exact, index[..., None], -1)[..., 0]
        torch.testing.assert_close(rows.gather(index), picked, rtol=rtol, atol=0)
        k = torch.tensor([2, 0])
        torch.testing.assert_close(rows.row_at(k), exact[torch.arange(2), k], rtol=rtol, atol=0)
        assert torch.equal(rows.first(2).whole(), rows.whole()[:, :2])

    def test_extreme_rows(self) -> None:
        rows = torch.tensor([[1e4, -1e4, -INF], [-INF, -INF, 3.0], [88.0, 89.0, -800.0]])
        torch.testing.assert_close(
            softmax(rows), torch.softmax(rows.double(), -1), rtol=1e-6, atol=0
        )

    @pytest.mark.parametrize(
        ("row", "best"),
        [([0.0, NAN, 2.0, 1.0], 2), ([0.0, INF, -INF, 0.0], 0), ([-INF] * 4, None)],
    )
    def test_rows_without_a_softmax_keep_their_order(self, row: list[float], best: int) -> None:
        probabilities = softmax(torch.tensor(row))
        assert not torch.isfinite(log_sum_exp(torch.tensor(row)))
        finite = torch.isfinite(probabilities)
        assert finite.tolist() == torch.isfinite(torch.tensor(row)).tolist()
        if best is not None:
            assert int(torch.where(finite, probabilities, -1.0).argmax()) == best


def _one(
    q: Any, p: Any, tokens: list[int], coin: float = 0.5, draw: float = 0.5, **options: Any
) -> Any:
    """One request; uniforms alike at all positions."""
    q = torch.tensor([q])
    p = None if p is None else torch.tensor([p])
    uniforms = torch.tensor([coin, draw], dtype=torch.float64).expand(1, len(tokens) + 1, 2)
    return verify(p, q, torch.tensor([tokens]), cr.Lossless(), uniforms=uniforms, **options)[0]


class TestReports:
    """Inputs of public failure reports."""

    @pytest.mark.parametrize("row", [[NAN] * 4, [0.0] * 4, [INF] * 4, [-0.5] * 4])
    def test_a_bad_target_emits_an_id_inside(self, row: list[float]) -> None:
        v = _one([row, [0.25] * 4], [[0.25] * 4], [1])
        assert v.token_ids.tolist() == [0, -1]
        assert int(v.status[0]) & int(cr.Status.TARGET_REPAIRED)

    def test_a_bad_target_emits_its_finite_argmax(self) -> None:
        assert _one([[NAN, 0.1, 0.6, 0.2], [0.25] * 4], [[0.25] * 4], [0]).token_ids[0] == 2
        logits = _one([[NAN, 1.0, 3.0, -INF], [0.0] * 4], [[0.0] * 4], [1], logits=True)
        assert logits.token_ids.tolist() == [2, -1]
        assert int(logits.status[0]) & int(cr.Status.TARGET_REPAIRED)

    def test_padding_takes_the_next_row_whole(self) -> None:
        q = [[0.0, 0.0, 1.0], [0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
        for draw, token in ((0.1, 0), (0.3, 1), (0.9, 2)):
            v = _one(q, [[0.0, 0.0, 1.0]] * 3, [2, -1, -1], draw=draw)
            assert v.token_ids.tolist() == [2, token, -1, -1]

    def test_a_bad_draft_row_is_one_hot(self) -> None:
        v = _one([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]], [[NAN] * 3], [0], coin=0.9, draw=0.4)
        assert v.token_ids.tolist() == [1, -1]
        assert int(v.status[0]) == int(cr.Status.DRAFT_REPAIRED)

    @pytest.mark.parametrize("logits", [False, True])
    def test_a_coin_of_zero_rejects_what_the_target_excludes(self, logits: bool) -> None:
        q = [[-INF, 0.0], [0.0, 0.0]] if logits else [[0.0, 1.0], [0.5, 0.5]]
        p = [[0.0, 0.0]] if logits else [[0.5, 0.5]]
        assert _one(q, p, [0], coin=0.0, logits=logits).token_ids.tolist() == [1, -1]

    @pytest.mark.parametrize("token", [4, 2**40, -2, -(2**40)])
    def test_ids_outside_the_vocabulary(self, token: int) -> None:
        v = _one([[0.25] * 4, [1.0, 0, 0, 0]], [[0.25] * 4], [token], draw=0.6)
        assert v.token_ids.tolist() == [2, -1]
        assert int(v.status[0]) & int(cr.Status.TOKEN_OUTSIDE)

    def test_offsets_beyond_32_bits(self) -> None:
        # 4 GiB of address space, of which the rows alone are ever touched.
        store = torch.empty(2**31 + 64, dtype=torch.float16)
        q = store.as_strided((2, 2, 8), (2**31, 8, 1))
        for request in range(2):
            q[request] = torch.eye(8)[[3 + request, 6]]
        v = verify(
            None,
            q,
            torch.tensor([[3], [0]]),
            cr.Lossless(),
            seeds=torch.tensor([1, 2]),
            steps=torch.tensor([0, 0]),
        )
        assert v.token_ids.tolist() == [[3, 6], [4, -1]]


class TestArguments:
    """Errors."""

    def test_one_source_of_randomness(self) -> None:
        with pytest.raises(ValueError, match="give either uniforms="):
            verify(
                None, torch.ones(1, 1, 2) / 2, torch.empty(1, 0, dtype=torch.int64), cr.Lossless()
            )

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"rule": "lossless"}, r"rule must be a rule such as Lossless\(\).*, got 'lossless'"),
            ({"target": np.ones((1, 2, 2)) / 2}, r"target must be a tensor .*, got ndarray"),
            ({"target": None}, r"target must be a tensor \(B, K\+1, V\), got NoneType"),
            ({"draft": cr.Sparse([0], [1.0])}, r"draft must be a tensor .*None.*, got Sparse"),
            ({"draft_token_ids": None}, "draft_token_ids must be an array"),
            ({"kernel": "x"}, "kernel must be True, False or None, got 'x'"),
        ],
        ids=str,
    )
    def test_types_are_checked_first(self, change: dict[str, Any], text: str) -> None:
        given = {"draft": None, "target": torch.ones(1, 2, 2) / 2, "draft_token_ids": [[0]]}
        options: dict[str, Any] = {**given, "rule": cr.Lossless(), "seeds": 1, "steps": 0}
        assert verify(**options).token_ids.shape == (1, 2)
        with pytest.raises(ValueError, match=text):
            verify(**options | change)

    def test_strict_checks_probabilities(self) -> None:
        with pytest.raises(ValueError, match="target_probs"):
            _one([[0.5, 0.6], [0.5, 0.5]], [[0.5, 0.5]], [0], policy="strict")

    @pytest.mark.parametrize("bad", [NAN, INF])
    def test_strict_checks_logits(self, bad: float) -> None:
        with pytest.raises(
            ValueError, match=r"draft\[0, 0, 1\] is (nan|inf): logits must be finite"
        ):
            _one([[0.5, 0.6], [0.5, 0.5]], [[0.5, bad]], [0], policy="strict", logits=True)

    def test_strict_accepts_good_logits(self) -> None:
        options: dict[str, Any] = {"logits": True, "coin": 0.1}
        rows = [[0.5, -INF], [0.5, 0.5]], [[0.5, 0.1]], [0]
        strict = _one(*rows, policy="strict", **options)
        cases.same(strict, _one(*rows, **options), rtol=1e-6)

    def test_kernels_need_a_reason_to_be_off(self) -> None:
        rows = torch.ones(1, 2, 3, 2) / 2
        with pytest.raises(RuntimeError, match="kernel=True, but"):
            verify(
                None,
                rows,
                torch.zeros(1, 2, 2, dtype=torch.int64),
                cr.Lossless(),
                seeds=torch.zeros(1, 2, dtype=torch.int64),
                steps=torch.zeros(1, 2, dtype=torch.int64),
                kernel=True,
            )

    @pytest.mark.parametrize("option", [{"policy": "strict"}, {"walk": "block"}], ids=str)
    def test_kernels_are_not_left_out_in_silence(self, option: dict[str, str]) -> None:
        ((name, value),) = option.items()
        text = f"kernel=True: there is no kernel for {name}='{value}'; leave kernel or that out"
        with pytest.raises(ValueError, match=text):
            _one([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5]], [0], kernel=True, **option)
        for kernel in (None, False):
            assert _one([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5]], [0], kernel=kernel, **option)


def _devices() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=False)


ON_DEVICE = [
    *((rule, False, False) for rule in cases.RULES if cases.label(rule) != "mentored-"),
    *((rule, True, False) for rule in cases.RULES if rule.reads != "pair"),
    *((rule, False, True) for rule in (cr.Cactus(cases.DELTAS), cr.TopK(3))),
]


@pytest.mark.parametrize(("rule", "one_hot", "logits"), ON_DEVICE)
def test_nothing_leaves_the_device(rule: cr.Rule, one_hot: bool, logits: bool) -> None:
    """On tensors without data, reading a value or mixing devices is an error."""
    with _devices():

        def make(*shape: int, dtype: Any = torch.float32) -> Any:
            return torch.empty(shape, dtype=dtype, device="meta")

        rule = cases.with_parameters(rule, lambda value: make(*value.shape, dtype=value.dtype))
        v = verify(
            None if one_hot else make(4, 3, 50),
            make(4, 4, 50),
            make(4, 3, dtype=torch.int64),
            rule,
            logits=logits,
            seeds=make(4, dtype=torch.int64),
            steps=make(4, dtype=torch.int64),
        )
        values = (getattr(v, field.name) for field in dataclasses.fields(v))
        assert {value.device.type for value in values if value is not None} == {"meta"}


def test_reading_a_value_off_the_device_would_be_noticed() -> None:
    """The control of the test above: a strict check reads values."""
    from torch._subclasses.fake_tensor import DataDependentOutputException

    with _devices():
        row = torch.empty((1, 1, 5), device="meta")
        tokens = torch.empty((1, 0), dtype=torch.int64, device="meta")
        seeds = torch.empty(1, dtype=torch.int64, device="meta")
        with pytest.raises(DataDependentOutputException):
            verify(None, row, tokens, cr.Lossless(), seeds=seeds, steps=seeds, policy="strict")


@pytest.mark.slow
@pytest.mark.parametrize("rule", [cr.Cactus(cases.DELTAS), cr.TopK(3)], ids=cases.label)
@pytest.mark.parametrize("logits", [False, True])
def test_compiles_as_one_graph(rule: cr.Rule, logits: bool) -> None:
    batch, other = cases.batch(seed=10), cases.batch(seed=11)
    uniforms = torch.rand(4, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def step(p: Any, q: Any, tokens: Any) -> cr.Verification:
        return verify(p, q, tokens, rule, logits=logits, uniforms=uniforms)

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    for each in (batch, other):
        p, q = each.rows(logits, torch.float32)
        cases.same(compiled(p, q, each.tokens), step(p, q, each.tokens), rtol=1e-12)


@pytest.mark.slow
def test_a_second_budget_compiles_as_one_graph() -> None:
    """Dynamo traces a Python number symbolically when it meets another value of it."""
    batch = cases.batch(seed=13)
    p, q = batch.rows(False, torch.float32)
    uniforms = torch.rand(4, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def step(rule: cr.Rule) -> cr.Verification:
        return verify(p, q, batch.tokens, rule, uniforms=uniforms)

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    for rule in (cr.Cactus(0.5), cr.Cactus(0.1), cr.Cactus(0.2)):
        cases.same(compiled(rule), step(rule), rtol=1e-12)


@pytest.mark.slow
def test_seeds_compile_as_one_graph() -> None:
    batch = cases.batch(seed=12)
    p, q = batch.rows(False, torch.float32)

    def step(seeds: Any, steps: Any) -> Any:
        return verify(p, q, batch.tokens, cr.Lossless(), seeds=seeds, steps=steps).token_ids

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="eager")
    assert torch.equal(compiled(batch.seeds, batch.steps), step(batch.seeds, batch.steps))


def test_a_parameter_may_change_in_place() -> None:
    """As a captured CUDA graph needs it: the rule stays, its tensor is written to."""
    batch = cases.batch(seed=13)
    p, q = batch.rows(False, torch.float32)
    delta = torch.zeros(4, dtype=torch.float64)
    rule = cr.Cactus(delta)
    lossless = verify(p, q, batch.tokens, rule, **batch.names())
    cases.same(lossless, verify(p, q, batch.tokens, cr.Cactus(0.0), **batch.names()))
    delta.fill_(0.8)
    found = verify(p, q, batch.tokens, rule, **batch.names())
    cases.same(found, verify(p, q, batch.tokens, cr.Cactus(0.8), **batch.names()))
