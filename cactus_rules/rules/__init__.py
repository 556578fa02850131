"""All acceptance rules, one file each; `REGISTRY` maps a rule's name to its class."""

from cactus_rules.rules.band import Band
from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule
from cactus_rules.rules.cactus import Cactus
from cactus_rules.rules.ensemble import Ensemble
from cactus_rules.rules.lenience import Lenience
from cactus_rules.rules.lossless import Lossless
from cactus_rules.rules.mentored import Mentored
from cactus_rules.rules.reducible_fuzzy import ReducibleFuzzy
from cactus_rules.rules.sample_match import SampleMatch
from cactus_rules.rules.threshold import Threshold
from cactus_rules.rules.top_set import MinP, Nucleus, RelaxedTopN, TopK
from cactus_rules.rules.typical import Typical

REGISTRY: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        Lossless,
        SampleMatch,
        Cactus,
        Mentored,
        Band,
        Lenience,
        Ensemble,
        ReducibleFuzzy,
        Typical,
        Threshold,
        TopK,
        Nucleus,
        MinP,
        RelaxedTopN,
    )
}

__all__ = [
    "REGISTRY",
    "Band",
    "Cactus",
    "Drafted",
    "Ensemble",
    "Guarantee",
    "Lenience",
    "Lossless",
    "Mentored",
    "MinP",
    "Nucleus",
    "Numbers",
    "ReducibleFuzzy",
    "RelaxedTopN",
    "Rule",
    "SampleMatch",
    "Threshold",
    "TopK",
    "Typical",
]
