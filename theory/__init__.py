"""What each acceptance rule really does: claims, derivations, independent checks, figures.

`theory/README.md` is the table of claims. `verify.main` (the command ``cactus-rules theory``)
checks all of them again on fresh random instances.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("mpmath") is None:
    raise ImportError(
        "the theory checks need mpmath: run pip install '.[theory]' in the project's folder"
    )

from cactus_rules.theory.claim import Claim, Result

__all__ = ["Claim", "Result"]
