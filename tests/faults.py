"""One-line source faults that the tests must catch: see `planted_faults.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Replace `old`, which is there once, by `new` in `cactus_rules/file`; `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


# The tests that a fault is expected to break, the fewest that do: a run takes minutes.
ENUMERATED = "test_output_law.py::test_output_law_is_the_enumerated_one_for_each_rule"
LAW = (ENUMERATED,)
WALK = ("test_verification_law.py::test_token_walk_emits_the_enumerated_law",)
PADS = ("test_errors.py::test_rows_past_the_first_pad_are_never_read",)
BOOST = ("test_boost.py::test_exact_solver_stays_within_delta_and_takes_the_largest_cap",)
BUDGET = ("test_clip_rules.py::test_output_law_of_mentored_stays_within_delta",)
RULES = (
    "test_rules.py::test_numbers",
    "test_rules.py::test_ties_at_a_floor_go_to_the_lower_id",
)
DRAW = ("test_residual.py::test_draw_is_the_inverse_cdf_in_id_order",)
BAD_DRAFT = ("test_safe_policy.py::test_a_bad_draft_row_is_read_as_one_hot",)
BAD_TARGET = (
    "test_safe_policy.py::test_a_bad_target_emits_its_finite_argmax",
    "test_safe_policy.py::test_a_rule_that_reads_a_bad_target_row_keeps_nothing",
)
OUTSIDE = (
    "test_safe_policy.py::test_a_draw_never_leaves_the_vocabulary",
    "test_safe_policy.py::test_a_token_outside_the_vocabulary_is_rejected_and_the_target_drawn_from",
)
PHILOX = ("test_random.py::test_philox_gives_the_published_vectors",)
NAMES = ("test_random.py::test_every_part_of_the_name_counts",)
KERNELS = "adapters/test_kernels.py::"
KERNEL_BUDGET = (KERNELS + "test_the_search_keeps_the_budget_on_the_output_law",)
KERNEL_SEARCH = (KERNELS + "test_the_search_finds_what_the_core_finds",)
KERNEL_STEPS = (KERNELS + "test_the_steps_on_numpy_are_the_search",)
KERNEL_ROUNDING = (KERNELS + "test_a_budget_that_rounding_could_break",)
KERNEL_REPORTS = (KERNELS + "test_reports",)

FAULTS = (
    # The accept test and the walk.
    Fault("<= for < in the accept test", "_walk.py",
          "u[..., :k, 0] * at.p_n < at.numbers.cap", "u[..., :k, 0] * at.p_n <= at.numbers.cap",
          ("test_reports.py::test_sglang_35771_a_coin_of_zero_keeps_no_excluded_token",)),
    Fault("<= for < in decide", "acceptance.py",
          "return u * self._at.p_n < self.cap", "return u * self._at.p_n <= self.cap",
          ("test_acceptance.py::test_the_coin_is_strict",)),
    Fault("coin reused for the draw", "_walk.py",
          "at_position(xp, u[..., 1], stop)", "at_position(xp, u[..., 0], stop)", WALK),
    Fault("coin reused for the draw in sample", "acceptance.py",
          "drawn = draw_index(xp, self._weights(), asarray(xp, rng.random(shape), target))",
          "drawn = draw_index(xp, self._weights(), rng.random(shape) * 0 + 0.25)",
          ("test_acceptance.py::test_sample_keeps_the_token_or_draws_from_the_residual",)),
    Fault("-1 pads read as drafts", "verification.py",
          "before(xp, tokens == -1)", "before(xp, tokens < -1)", PADS),
    Fault("bonus token from the row before", "_walk.py",
          "q_row = row_at(xp, target, stop)\n    if k == 0:",
          "q_row = row_at(xp, target, xp.minimum(stop, stop * 0 + k - 1))\n    if k == 0:", WALK),
    Fault("residual row off by one", "_walk.py",
          "p_row = None if draft is None else row_at(xp, draft, tested)",
          "p_row = None if draft is None else row_at(xp, draft, 0 * tested)", WALK),
    Fault("tokens accepted after a rejection", "_walk.py",
          "stop = xp.sum(xp.astype(before(xp, ~kept), xp.int64), axis=-1)",
          "stop = xp.sum(xp.astype(kept, xp.int64), axis=-1)", WALK),
    Fault("log-probability of the next position", "_walk.py",
          "q_emitted = xp.where(here, q_last, xp.concat([at.q_n, 0 * q_last], axis=-1))",
          "q_emitted = xp.where(here, q_last, xp.concat([q_last, at.q_n], axis=-1))",
          ("test_verification.py::test_tokens_lengths_and_log_probabilities_fit_together",)),
    # The residual and the draw.
    Fault("draft not subtracted in the residual", "residual.py",
          "xp.ones_like(scale), scale) * q - p", "xp.ones_like(scale), scale) * q - 0 * p", LAW),
    Fault("p and q swapped in the residual", "residual.py",
          "weights = positive(xp, surplus)", "weights = positive(xp, -surplus)", LAW),
    Fault("scale ignored", "residual.py",
          "surplus = xp.where(whole, xp.ones_like(scale), scale) * q - p",
          "surplus = xp.ones_like(scale) * q - p", LAW),
    Fault("renormalisation forgotten in the draw", "residual.py",
          "bar = u[..., None] * last", "bar = u[..., None] * xp.ones_like(last)", WALK),
    Fault("renormalisation forgotten in residual", "acceptance.py",
          "return weights / xp.sum(weights, axis=-1)[..., None]", "return weights",
          ("test_reports.py::test_transformers_28508_the_residual_is_renormalised_not_softmaxed",)),
    Fault("token of weight zero drawn", "residual.py",
          "below = sums <= bar", "below = sums < bar", DRAW),
    Fault("draw beyond the vocabulary", "residual.py",
          "below = below & (sums < last)", "below = below & (sums <= last)", OUTSIDE),
    Fault("draw summed in float32", "residual.py",
          "sums = cumulative_sum(xp, weights)",
          "sums = cumulative_sum(xp, xp.astype(weights, xp.float32))",
          DRAW),
    Fault("ties at a floor to the higher id", "residual.py",
          "(ids <= floor_id)", "(ids >= floor_id)", RULES),
    Fault("infinite scale subtracts the draft", "residual.py",
          "p = xp.where(whole, xp.zeros_like(p), p)", "p = xp.where(whole, p, p)", LAW),
    # Reading and repairing.
    Fault("support rule forgotten", "_positions.py",
          "cap = xp.where((q_n > 0) & (numbers.cap >= 0),", "cap = xp.where((numbers.cap >= 0),",
          ("test_rules.py::test_a_one_hot_target_is_an_exact_match",)),
    Fault("NaN of the target repaired to accept", "_positions.py",
          "q_n = xp.where(q_fine & inside, q_n, 0.0)", "q_n = xp.where(q_fine & inside, q_n, 1.0)",
          BAD_TARGET),
    Fault("NaN of a rule accepted", "_positions.py",
          "(numbers.cap >= 0), numbers.cap + 0 * q_n, 0 * q_n)",
          "(numbers.cap >= 0), numbers.cap + 0 * q_n, q_n * 9)",
          ("test_safe_policy.py::test_a_rule_that_answers_not_a_number_keeps_nothing",)),
    Fault("improper draft accepted with certainty", "_positions.py",
          "p_n = xp.where(p_fine & inside, p_n, 1.0 + 0 * q_n)",
          "p_n = xp.where(p_fine & inside, p_n, 0 * q_n)", BAD_DRAFT),
    Fault("bad draft row subtracted", "_positions.py",
          "broken = at.one_hot | ~_is_measure(xp, p)", "broken = at.one_hot", BAD_DRAFT),
    Fault("token outside taken as token 0", "_positions.py",
          "unreduced = (at.status & int(Status.TOKEN_OUTSIDE)) > 0",
          "unreduced = (at.status & int(Status.TOKEN_OUTSIDE)) > 99", OUTSIDE),
    # Solvers and divergences.
    Fault("Taylor in place of the exact solver", "boost.py",
          'if solver == "taylor":', 'if solver != "closed":', BOOST),
    Fault("rounded away from q", "boost.py",
          "x = x - 4 * _EPS * (q + x)", "x = x + 4 * _EPS * (q + x)", BOOST),
    Fault("error of the root not subtracted", "boost.py",
          "x = _rounded_down(x - _error(record, x, q, room, delta, xp), q)",
          "x = _rounded_down(x, q)", BOOST),
    Fault("two Newton steps too few", "boost.py", "_NEWTON_STEPS = 6", "_NEWTON_STEPS = 4", BOOST),
    Fault("log in place of log1p", "divergences.py",
          "log = xp.log1p(t)\n        return (1 + t) * log - t, log",
          "log = xp.log(1 + t)\n        return (1 + t) * log - t, log", BOOST),
    Fault("at equal ratio the wrong sign", "divergences.py",
          "return t - xp.log1p(t), t / (1 + t)", "return xp.log1p(t) - t, t / (1 + t)",
          ("test_divergences.py::test_generator_is_convex_with_its_minimum_0_at_ratio_1",)),
    Fault("Python floats read as float32", "_arrays.py",
          "dtype = xp.float64 if isinstance(value, float)",
          "dtype = xp.float32 if isinstance(value, float)",
          ("test_boost.py::test_the_solve_runs_in_float64",)),
    # The clip rules.
    Fault("clip b ignored", "rules/mentored.py",
          "return Numbers(a * at.q_n, b)", "return Numbers(a * at.q_n, 1.0)", LAW),
    Fault("excluded draft mass left out of the balance", "_ratio_order.py",
          "q, ratio = xp.where(known, q, 0 * q),", "p, q, ratio = xp.where(known, p, 0 * p), "
          "xp.where(known, q, 0 * q),", LAW),
    Fault("budget of the clip doubled", "_clip.py",
          "ulps, xp), delta + 0", "ulps, xp), 2 * delta + 0", LAW),
    Fault("rounding of the clip not spent", "_clip.py",
          "value = value + ulps * (value + hidden + clip.moved)", "value = value + 0 * hidden",
          BUDGET),
    Fault("clip depends on its batch", "_clip.py",
          "better = within & ~done", "better = within",
          ("test_random.py::test_a_request_gets_the_same_tokens_in_any_slot_and_batch",
           "test_clip_rules.py::test_clip_rules_are_the_same_in_any_batch")),
    Fault("a block of tokens counted twice", "_clip.py",
          "low = self.at(self.q_before, j)", "low = self.at(self.q_before, j + 1)",
          ("test_clip_rules.py::test_sums_of_wide_rows_are_those_of_all_tokens",)),
    Fault("keys that differ in their last bits left out of order", "_ratio_order.py",
          "if np.all(found[..., 1:] >= found[..., :-1]):", "if np.all(found == found):",
          ("test_clip_rules.py::test_packed_keys_sort_as_ratios_do",)),
    # Rules.
    Fault("factor of lenience squared", "rules/lenience.py",
          "Numbers(self.factor * at.q_n, 1.0)", "Numbers(self.factor * self.factor * at.q_n, 1.0)",
          RULES),
    Fault("weights of the ensemble swapped", "rules/ensemble.py",
          "self.weight * at.q_n + (1 - self.weight) * at.p_n",
          "self.weight * at.p_n + (1 - self.weight) * at.q_n", LAW),
    Fault("larger bound of typical acceptance", "rules/typical.py",
          "threshold = xp.minimum(threshold,", "threshold = xp.maximum(threshold,", RULES),
    Fault("surrogate keeps its mass", "rules/cactus.py",
          "scale = (1 - cap) / at.xp.where(", "scale = 1 / at.xp.where(", LAW),
    Fault("nucleus one token short", "rules/top_set.py",
          "before = cumulative_sum(xp, descending) - descending",
          "before = cumulative_sum(xp, descending)", RULES),
    # The kernels.
    Fault("kernel: <= for < in the accept test", "adapters/kernels/programs.py",
          "coin * p_n >= cap", "coin * p_n > cap", KERNEL_REPORTS),
    Fault("kernel: a floor keeps the higher id of a tie", "adapters/kernels/programs.py",
          "(ids <= floor_id)", "(ids >= floor_id)", KERNEL_REPORTS),
    Fault("kernel: the draw from the block before", "adapters/kernels/programs.py",
          "reached > bar), blocks, final", "reached > bar), blocks - 1, final",
          (KERNELS + "test_the_largest_vocabulary",)),
    Fault("kernel: a search on the first position's draft", "adapters/kernels/clip.py",
          "pair % K * draft_k", "0 * draft_k", KERNEL_STEPS),
    Fault("kernel: excluded draft mass is not rejected", "adapters/kernels/clip.py",
          "above = p > a * q", "above = known & (p > a * q)", KERNEL_STEPS),
    Fault("kernel: rounding is not counted as spent", "adapters/kernels/clip.py",
          "spent += rounding * (spent + hidden)", "spent += 0.0 * hidden", KERNEL_BUDGET),
    Fault("kernel: a surplus beyond the rejected mass costs nothing", "adapters/kernels/clip.py",
          "most = spent - tl.where(excess > 0.0, excess * drawn, 0.0)", "most = spent",
          KERNEL_BUDGET),
    Fault("kernel: tokens raised beyond q cost nothing", "adapters/kernels/clip.py",
          "(emitted <= delta) &", "(most <= delta) &", KERNEL_BUDGET),
    Fault("kernel: rounding of the surplus is not spent", "adapters/kernels/clip.py",
          "lost * (lost / left)", "0.0 * lost", KERNEL_ROUNDING),
    Fault("rounding of the surplus is not spent", "_clip.py",
          " + lost * (lost / surplus)", "", KERNEL_ROUNDING),
    Fault("kernel: a draw from an empty surplus", "adapters/kernels/clip.py",
          "& ((left > 0.0) | (right == 0.0))", "& ((left > 0.0) | (right >= 0.0))",
          KERNEL_BUDGET),
    Fault("kernel: only the masses at the ends have rounding", "adapters/kernels/clip.py",
          "whole + rounding * (whole + 2.0 * surplus)", "whole + rounding * whole",
          KERNEL_BUDGET),
    Fault("an end may reach what counts as excluded", "_clip.py", "FAR = 1e250", "FAR = 1e300",
          KERNEL_ROUNDING),
    Fault("rounding of the rejected mass is not spent", "_clip.py",
          "(low + clip.taken) * slope_b", "low * slope_b",
          KERNEL_ROUNDING),
    Fault("kernel: a moves though its cost is in doubt", "adapters/kernels/clip.py",
          "tl.where(within, 1.0, 0.03125)", "1.0", KERNEL_SEARCH),
    Fault("kernel: 12 passes in place of 24", "adapters/kernels/launch.py",
          "_PASSES = 24", "_PASSES = 12", KERNEL_SEARCH),
    # Everything around.
    Fault("stream ignored", "random.py", "zero + int(stream),", "zero,", NAMES),
    Fault("one Philox round too few", "random.py", "_ROUNDS = 10", "_ROUNDS = 9", PHILOX),
    Fault("high half of the step ignored", "random.py",
          "zero + ((step >> 32) & _MASK),", "zero,", NAMES),
    Fault("block walk with the residual of the token walk", "_block.py",
          "_weights(xp, p, h, q, kept_r, stop, length)",
          "_weights(xp, p, h, q, 1 + 0 * kept_r, stop, length)",
          ("test_verification_law.py::test_tokens_of_both_walks_have_the_law_of_the_rule",)),
    Fault("candidate lists matched by index", "sparse.py",
          "np.add.at(row, np.searchsorted(union, ids[kept]), probs[kept])",
          "row[: len(probs[kept])] = probs[kept]",
          ("test_reports.py::test_llama_cpp_candidate_lists_are_matched_by_id",)),
    Fault("candidates listed twice lose mass", "sparse.py",
          "np.add.at(row, np.searchsorted(union, ids[kept]), probs[kept])",
          "row[np.searchsorted(union, ids[kept])] = probs[kept]",
          ("test_sparse.py::test_a_token_listed_twice_has_the_sum",)),
    Fault("temperature after the filters", "warp.py",
          "return filtered(xp, probs, order,", "return filtered(xp, softmax(xp, wide, 1.0), order,",
          ("test_warp.py::test_temperature_comes_before_the_filters",)),
    Fault("temperature ignored", "warp.py",
          "xp.exp(below / temperature)", "xp.exp(below)",
          ("test_warp.py::test_temperature_comes_before_the_filters",)),
    Fault("nucleus taken from too few tokens", "warp.py",
          "bar * (1 + 1e-9)", "bar * 0.9",
          ("test_warp.py::test_a_nucleus_of_any_size_is_that_of_a_full_sort",)),
    Fault("mean acceptance length without the bonus token", "metrics.py",
          "return 1 + self.num_accepted_tokens / self.num_drafts",
          "return self.num_accepted_tokens / self.num_drafts",
          ("test_metrics.py::test_identities",)),
    Fault("telemetry reads half of what was gained", "_walk.py",
          "kl = log_moved - log_q", "kl = (log_moved - log_q) / 2",
          ("test_telemetry.py::test_spent_sums_run_over_the_positions_that_were_tested",)),
    Fault("a rule reads the rows to be checked", "acceptance.py",
          "with quiet(xp):\n        at = read_positions(",
          "with quiet(xp):\n        xp.sum(q)\n        at = read_positions(",
          ("test_vocabulary_work.py::test_accept_and_decide_read_two_numbers",)),
)  # fmt: skip
