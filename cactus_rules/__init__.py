"""Acceptance rules for speculative decoding, with each rule's guarantee stated exactly.

A rule decides which tokens of a small draft model a large target model keeps. `accept` judges one
token, `verify` a whole batch of drafts, `audit` says exactly how far a rule moves the output.
"""

from cactus_rules import divergences
from cactus_rules._positions import Status
from cactus_rules.acceptance import Acceptance, accept
from cactus_rules.boost import boost
from cactus_rules.budget import Budgeted
from cactus_rules.law import Audit, audit, output_law
from cactus_rules.metrics import Metrics
from cactus_rules.random import Stream, uniforms
from cactus_rules.residual import draw
from cactus_rules.rules import (
    REGISTRY,
    Band,
    Cactus,
    Drafted,
    Ensemble,
    Guarantee,
    Lenience,
    Lossless,
    Mentored,
    MinP,
    Nucleus,
    Numbers,
    ReducibleFuzzy,
    RelaxedTopN,
    Rule,
    SampleMatch,
    Threshold,
    TopK,
    Typical,
)
from cactus_rules.sparse import Sparse
from cactus_rules.verification import Verification, verify
from cactus_rules.warp import candidates, warp

__version__ = "0.1.0"

__all__ = [
    "REGISTRY",
    "Acceptance",
    "Audit",
    "Band",
    "Budgeted",
    "Cactus",
    "Drafted",
    "Ensemble",
    "Guarantee",
    "Lenience",
    "Lossless",
    "Mentored",
    "Metrics",
    "MinP",
    "Nucleus",
    "Numbers",
    "ReducibleFuzzy",
    "RelaxedTopN",
    "Rule",
    "SampleMatch",
    "Sparse",
    "Status",
    "Stream",
    "Threshold",
    "TopK",
    "Typical",
    "Verification",
    "accept",
    "audit",
    "boost",
    "candidates",
    "divergences",
    "draw",
    "output_law",
    "uniforms",
    "verify",
    "warp",
]
