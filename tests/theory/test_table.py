"""The table of claims is complete, and the verifier's command does what it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cactus_rules.theory import verify
from cactus_rules.theory.claim import Claim, Tally
from cactus_rules.theory.registry import CLAIMS, markdown

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_holds_the_table_of_the_registry() -> None:
    assert markdown() in (ROOT / "theory" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_column_points_to_something_that_exists(claim: Claim) -> None:
    assert (ROOT / "theory" / claim.derivation).is_file()
    assert (ROOT / "theory" / claim.script).is_file()
    assert (ROOT / "docs" / "figures" / claim.figure).is_file()
    assert (ROOT / claim.test.split("::")[0]).is_file()
    assert claim.statement.endswith(".")


def test_ids_are_unique_and_every_group_has_a_claim() -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    assert {int("".join(c for c in i if c.isdigit())) for i in ids} == set(range(1, 12))


def test_no_derivation_is_orphaned() -> None:
    files = {path.name for path in (ROOT / "theory" / "derivations").glob("*.md")}
    assert files == {c.derivation.split("/")[-1] for c in CLAIMS} | {"00-notation.md"}


def test_json_names_claim_instances_margin_and_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verify.main(["--quick", "--json", "--seed", "3", "3a", "4"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["seed"] == 3
    assert report["holds"] is True
    assert [row["claim"] for row in report["claims"]] == ["3a", "4"]
    assert all(row["instances"] > 0 and row["holds"] for row in report["claims"])


def test_the_table_ends_with_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["--quick", "1c"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("claim")
    assert out.rstrip().endswith("1 of 1 claims hold on 60 instances.")


def test_the_same_seed_gives_the_same_instances() -> None:
    first, second, other = (
        verify.check(next(c for c in CLAIMS if c.id == "6b"), seed, 0.0) for seed in (1, 1, 2)
    )
    assert first == second
    assert first != other


def test_a_budget_buys_more_instances() -> None:
    claim = next(c for c in CLAIMS if c.id == "3a")
    assert verify.check(claim, 0, 0.3).instances > verify.check(claim, 0, 0.0).instances


def test_an_unknown_claim_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        verify.main(["99z"])
    assert "no such claim: 99z" in capsys.readouterr().err


def test_list_prints_every_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CLAIMS)


def test_a_tally_fails_on_excess_beyond_the_slack_and_on_nan() -> None:
    tally = Tally()
    tally.at_most(1.0 + 1e-12, 1.0, 1e-11, "within slack")
    assert tally.result().ok
    tally.equal(np.array([1.0, np.nan]), np.array([1.0, 2.0]), 1e-9, "nan")
    assert not tally.result().ok
    tally = Tally()
    tally.at_most(2.0, 1.0, 0.5, "too much")
    tally.at_most(0.0, 9.0, 0.0, "fine")
    assert not tally.result().ok
    assert "too much" in tally.result().detail
