"""Conformance kit: does your kernel or engine do what its rule says?

`check_verifier` tests any callable in the form of `cactus_rules.verify`; `check_proposal` tests
that logged draft tokens were really drawn from the logged draft probabilities. Both return a
`Report` that names what is wrong where the pattern is recognisable:

    >>> from cactus_rules.testing import check_verifier
    >>> report = check_verifier(my_verify, cr.Lossless())
    >>> assert report.ok, report
"""

from cactus_rules.testing.proposal import check_proposal
from cactus_rules.testing.report import Finding, Report
from cactus_rules.testing.verifier import Verifier, check_verifier

__all__ = ["Finding", "Report", "Verifier", "check_proposal", "check_verifier"]
