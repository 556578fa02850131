"""The speculative loop on table models, where every law is a finite sum.

Chi-square tests are at level 1e-3, with fixed seeds: they are repeatable, and a new version that
draws other numbers fails each of them once in a thousand times.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from table_model import TableModel, chi_square, softmax, table

import cactus_rules as cr
from cactus_rules.adapters import speculation as loop
from cactus_rules.adapters.drafts import DraftLength, ModelDraft, NoDraft, Proposal, fit, stack
from cactus_rules.adapters.errors import EngineError
from cactus_rules.adapters.ngram import NgramDraft
from cactus_rules.adapters.sampling import Sampling
from cactus_rules.adapters.speculation import Round, Speculation

LEVEL = 1e-3
RUNS = 1000
PROMPT = [1, 2, 3]
TARGET, DRAFT = table(1), table(1) + 0.7 * table(2)


def make(
    *,
    seed: int = 0,
    rule: Any = None,
    draft: Any = "model",
    argmax: bool = False,
    k: int = 2,
    adaptive: bool = False,
    n_ctx: int = 64,
    draft_n_ctx: int = 64,
    target_table: np.ndarray = TARGET,
    draft_table: np.ndarray = DRAFT,
    **options: Any,
) -> Speculation:
    target = TableModel(target_table, n_ctx=n_ctx)
    sampling = Sampling(**options)
    if draft == "model":
        draft = ModelDraft(
            model=TableModel(draft_table, n_ctx=draft_n_ctx),
            sampling=sampling,
            n_vocab=target.n_vocab,
            seed=seed,
            argmax=argmax,
        )
    return Speculation(
        target=target,
        draft=draft,
        rule=cr.Lossless() if rule is None else rule,
        sampling=sampling,
        seed=seed,
        num_draft_tokens=k,
        adaptive=adaptive,
    )


def run(
    speculation: Speculation, max_tokens: int | None, end: int | None = None
) -> tuple[list[int], list[Round]]:
    rounds = list(speculation.run(PROMPT, max_tokens, lambda token: token == end))
    return [token for r in rounds for token in r.token_ids], rounds


def counted(runs: int, length: int, shown: int, **options: Any) -> np.ndarray:
    counts = np.zeros((4,) * shown)
    for seed in range(runs):
        ids, _ = run(make(seed=seed, **options), length)
        counts[tuple(ids[:shown])] += 1
    return counts


def joint(first: Any, second: Any) -> np.ndarray:
    """Law (4, 4) of two tokens after the prompt, `first` and `second` giving single laws."""
    one = first(PROMPT[-2], PROMPT[-1])
    return np.stack([one[a] * second(PROMPT[-1], a) for a in range(4)])


@pytest.mark.parametrize(
    "options",
    [
        {"k": 2},
        {"k": 3, "adaptive": True},
        {"k": 2, "argmax": True},
        {"k": 2, "draft": NgramDraft()},
        {"k": 2, "argmax": True, "rule": "sample-match"},
    ],
    ids=str,
)
def test_lossless_text_follows_the_target(options: dict[str, Any]) -> None:
    if options.get("rule") == "sample-match":
        options = options | {"rule": cr.SampleMatch()}
    counts = counted(RUNS, 3, 3, **options)
    q = softmax(TARGET)
    law = np.zeros((4, 4, 4))
    for a, b, c in np.ndindex(4, 4, 4):
        law[a, b, c] = q[2, 3, a] * q[3, a, b] * q[a, b, c]
    assert chi_square(counts, law) > LEVEL


@pytest.mark.parametrize("rule", [cr.Cactus(0.1), cr.Mentored(0.1), cr.Lenience(1.5)], ids=repr)
def test_lossy_text_follows_the_output_law(rule: Any) -> None:
    p, q = softmax(DRAFT), softmax(TARGET)
    counts = counted(RUNS, 4, 2, rule=rule)

    def law(a: int, b: int) -> np.ndarray:
        return np.asarray(cr.output_law(p[a, b], q[a, b], rule))

    assert chi_square(counts, joint(law, law)) > LEVEL
    assert chi_square(counts, joint(lambda a, b: q[a, b], lambda a, b: q[a, b])) < 1e-9


def test_a_filter_holds_for_both_models() -> None:
    counts = counted(RUNS, 3, 2, top_k=2, temperature=0.7)
    q = softmax(TARGET / 0.7)
    q = np.where(q >= np.sort(q)[..., -2:-1], q, 0)
    q /= q.sum(-1, keepdims=True)
    assert chi_square(counts, joint(lambda a, b: q[a, b], lambda a, b: q[a, b])) > LEVEL


@pytest.mark.parametrize("vocab", [3, 6])
def test_a_draft_with_another_vocabulary_size(vocab: int) -> None:
    counts = counted(RUNS, 3, 1, draft_table=table(5, vocab=vocab))
    assert chi_square(counts, softmax(TARGET)[2, 3]) > LEVEL


@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize("draft", ["model", NgramDraft()], ids=["model", "ngram"])
def test_greedy_equals_plain_greedy(k: int, draft: Any) -> None:
    plain, _ = run(make(draft=NoDraft(), temperature=0), 40)
    assert run(make(draft=draft, k=k, temperature=0), 40)[0] == plain
    assert run(make(draft=draft, k=k, temperature=0, rule=cr.Mentored(0.5)), 40)[0] == plain


@pytest.mark.parametrize("max_tokens", range(1, 12))
@pytest.mark.parametrize(
    "rule", [cr.Lossless(), cr.Lenience(1e6)], ids=["lossless", "all accepted"]
)
def test_max_tokens_is_exact(max_tokens: int, rule: Any) -> None:
    speculation = make(k=4, rule=rule)
    ids, rounds = run(speculation, max_tokens)
    assert len(ids) == max_tokens
    assert [r.finish_reason for r in rounds] == [None] * (len(rounds) - 1) + ["length"]
    assert speculation.target.length == len(PROMPT) + max_tokens - 1


def test_the_target_is_called_once_per_round_and_never_drafts_in_vain() -> None:
    speculation = make(k=4, rule=cr.Lenience(1e6))
    _, rounds = run(speculation, 12)
    assert speculation.target.steps == [5, 5, 2]  # type: ignore[attr-defined]
    assert [len(r.token_ids) for r in rounds] == [5, 5, 2]


@pytest.mark.parametrize("n_ctx", range(4, 12))
def test_the_context_is_filled_and_not_exceeded(n_ctx: int) -> None:
    ids, rounds = run(make(k=4, n_ctx=n_ctx), None)
    assert len(PROMPT) + len(ids) == n_ctx + 1
    assert rounds[-1].finish_reason == "length"


def test_a_short_draft_context_ends_the_drafts_only() -> None:
    ids, rounds = run(make(k=4, draft_n_ctx=8), 20)
    assert len(ids) == 20
    assert max(len(r.token_ids) for r in rounds[:3]) > 1
    assert {len(r.token_ids) for r in rounds[-8:]} == {1}


def test_a_prompt_longer_than_the_draft_context_decodes_plainly() -> None:
    speculation = make(k=4, draft_n_ctx=2)
    assert len(run(speculation, 5)[0]) == 5
    assert speculation.metrics.num_draft_tokens == 0


def test_an_end_token_inside_an_accepted_run_ends_it() -> None:
    cut = 0
    for seed in range(200):
        speculation = make(k=4, rule=cr.Lenience(1e6), seed=seed)
        ids, rounds = run(speculation, 30, end=0)
        if 0 in ids:
            assert ids.index(0) == len(ids) - 1
            assert rounds[-1].finish_reason == "stop"
            assert speculation.target.length == len(PROMPT) + len(ids) - 1
            cut += len(rounds[-1].token_ids) < 5
    assert cut > 20


def test_caches_hold_all_but_the_last_token_after_each_round() -> None:
    speculation = make(k=3)
    text = list(PROMPT)
    for committed in speculation.run(PROMPT, 30, lambda token: False):
        text += committed.token_ids
        target: Any = speculation.target
        draft: Any = speculation.draft
        assert target.tokens == text[:-1]
        assert draft.model.tokens == text[: draft.model.length]
        assert len(text) - draft.model.length <= 2


def test_a_cached_prefix_is_not_evaluated_again() -> None:
    speculation = make(k=2)
    expected, _ = run(make(k=2), 10)
    speculation.target.prefill(PROMPT[:2])
    ids, _ = run(speculation, 10)
    assert ids == expected


def test_log_probabilities_are_those_of_the_target() -> None:
    ids, rounds = run(make(k=3, temperature=0.8), 20)
    got = [x for r in rounds for x in r.logprobs]
    text = PROMPT + ids
    q = softmax(TARGET / 0.8)
    expected = [np.log(q[text[i - 2], text[i - 1], text[i]]) for i in range(3, len(text))]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_rows_follow_the_true_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Penalties are computed anew here, from the rows that verify() was given."""
    seen: list[tuple[Any, Any, Any]] = []
    real = cr.verify

    def verify(p: Any, q: Any, ids: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((p, q, ids))
        return real(p, q, ids, *args, **kwargs)

    monkeypatch.setattr(loop.cr, "verify", verify)
    options = {"repetition_penalty": 1.4, "frequency_penalty": 0.3, "presence_penalty": 0.2}
    _, rounds = run(make(k=3, penalty_last_n=4, temperature=0.9, **options), 24)
    text = list(PROMPT)

    def expected(tables: np.ndarray, prefix: list[int]) -> np.ndarray:
        row = tables[prefix[-2], prefix[-1]].copy()
        for token, count in Counter(prefix[-4:]).items():
            row[token] = row[token] / 1.4 if row[token] > 0 else row[token] * 1.4
            row[token] -= 0.3 * count + 0.2
        return softmax(row / 0.9)

    for (p, q, ids), committed in zip(seen, rounds, strict=True):
        for i in range(len(ids) + 1):
            prefix = text + ids[:i].tolist()
            np.testing.assert_allclose(q[i], expected(TARGET, prefix), rtol=1e-4)
            if i < len(ids):
                np.testing.assert_allclose(p[i], expected(DRAFT, prefix), rtol=1e-4)
        text += committed.token_ids


def test_no_random_number_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts: list[tuple[int, ...]] = []
    calls: list[tuple[int, int]] = []
    real_uniforms, real_verify = cr.uniforms, cr.verify

    def uniforms(seed: int, step: int, k: int, stream: Any) -> Any:
        drafts.append((seed, step, k, int(stream)))
        return real_uniforms(seed, step, k, stream)

    def verify(*args: Any, seeds: int, steps: int, **kwargs: Any) -> Any:
        calls.append((seeds, steps))
        return real_verify(*args, seeds=seeds, steps=steps, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(cr, "uniforms", uniforms)
        patch.setattr(cr, "verify", verify)
        run(make(seed=9, k=3), 30)
    assert len(set(drafts)) == len(drafts) > 20
    assert {stream for *_, stream in drafts} == {int(cr.Stream.DRAFT)}
    assert calls == [(9, step) for step in range(len(calls))]


def test_the_same_seed_repeats_and_another_differs() -> None:
    assert run(make(seed=3, k=3), 30) == run(make(seed=3, k=3), 30)
    assert run(make(seed=3, k=3), 30) != run(make(seed=4, k=3), 30)


@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"temperature": 0}], ids=str)
@pytest.mark.parametrize("draft", ["model", NoDraft(), NgramDraft()], ids=["model", "none", "n"])
def test_a_row_without_a_law_is_told_after_the_tokens_before_it(
    draft: Any, options: dict[str, Any]
) -> None:
    def spoil(prefix: np.ndarray, row: np.ndarray) -> np.ndarray:
        return row if len(prefix) < 9 else row * np.nan

    made: list[Round] = []
    speculation = make(draft=draft, k=4, logits_processor=spoil, **options)
    with pytest.raises(EngineError, match=r"for position 9 of the text .* holds NaN; look at"):
        made.extend(speculation.run(PROMPT, 30, lambda token: False))
    assert sum(len(r.token_ids) for r in made) == 9 - len(PROMPT)
    assert all(r.token_ids and r.finish_reason is None for r in made)


def test_a_bad_row_behind_the_end_or_a_rejection_is_not_told() -> None:
    def spoil(prefix: np.ndarray, row: np.ndarray) -> np.ndarray:
        return row if 0 not in prefix else row * np.nan

    for seed in range(20):
        speculation = make(k=4, rule=cr.Lenience(1e6), seed=seed, logits_processor=spoil)
        ids, rounds = run(speculation, None, end=0)
        assert rounds[-1].finish_reason == ("stop" if ids[-1] == 0 else "length")


def test_a_bad_draft_row_ends_the_draft() -> None:
    broken = DRAFT.copy()
    broken[:, 0] = np.nan
    counts = counted(RUNS, 3, 2, draft_table=broken)
    q = softmax(TARGET)
    assert chi_square(counts, joint(lambda a, b: q[a, b], lambda a, b: q[a, b])) > LEVEL


def test_metrics_identities() -> None:
    speculation = make(k=3)
    ids, rounds = run(speculation, 60)
    metrics = speculation.metrics
    drafted = [n - 1 for n in speculation.target.steps]  # type: ignore[attr-defined]
    assert metrics.num_draft_tokens == sum(drafted)
    assert metrics.num_drafts == sum(n > 0 for n in drafted)
    assert metrics.num_accepted_tokens == len(ids) - len(rounds)
    assert sum(metrics.num_accepted_tokens_per_pos) == metrics.num_accepted_tokens
    assert 0 < metrics.draft_acceptance_rate < 1
    assert metrics.mean_acceptance_length == pytest.approx(
        1 + metrics.num_accepted_tokens / metrics.num_drafts
    )


def test_drafts_adapt_to_the_acceptance_seen() -> None:
    length = DraftLength(8)
    for _ in range(30):
        length.update(0, length.next())
    assert length.next() == 1
    for _ in range(60):
        length.update(length.next(), length.next())
    assert length.next() == 8
    fixed = DraftLength(5, adaptive=False)
    fixed.update(0, 5)
    assert fixed.next() == 5


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 2, [9, 1]),
        ([1, 2, 3, 9, 5, 2, 3], 3, [9, 5, 2]),
        ([7, 1, 8, 1, 9, 1], 2, [9, 1]),
        ([4, 4, 4, 4, 4, 4], 2, [4, 4]),
        ([1, 2, 3], 2, []),
        ([5], 2, []),
    ],
)
def test_ngram_drafts(text: list[int], count: int, expected: list[int]) -> None:
    proposal = NgramDraft().propose(text, count, 0)
    assert proposal.token_ids.tolist() == expected
    assert proposal.probs is None


def test_ngram_bounds_are_checked() -> None:
    with pytest.raises(ValueError, match="shortest=3, longest=2: give 1 <= shortest <= longest"):
        NgramDraft(longest=2, shortest=3)


def test_fit_cuts_and_pads() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(fit(rows, 2), rows[:, :2])
    assert fit(rows, 3) is not None
    padded = fit(rows, 5)
    np.testing.assert_array_equal(padded[:, :3], rows)
    assert np.all(padded[:, 3:] == -np.inf)


def test_candidate_lists_of_different_lengths_are_stacked() -> None:
    short = cr.Sparse(np.array([3]), np.array([1.0]))
    long = cr.Sparse(np.array([2, 0]), np.array([0.75, 0.25]))
    both = stack([short, long])
    assert isinstance(both, cr.Sparse)
    np.testing.assert_array_equal(both.ids, [[3, -1], [2, 0]])
    np.testing.assert_array_equal(both.probs, [[1, 0], [0.75, 0.25]])


def test_a_proposal_of_nothing_is_plain_decoding() -> None:
    class Silent(NoDraft):
        def propose(self, tokens: Any, count: int, step: int) -> Proposal:
            return Proposal(np.empty(0, np.int64), None)

    assert run(make(draft=Silent(), k=4), 10) == run(make(draft=NoDraft(), k=1), 10)
