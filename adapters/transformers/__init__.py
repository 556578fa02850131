"""Any acceptance rule of `cactus_rules` in the `generate` of transformers, for one sequence.

>>> from cactus_rules.adapters.transformers import speculative
>>> model.generate(**inputs, custom_generate=speculative(draft_model=small, rule=cr.Mentored(0.1)))
"""

from ..ngram import NgramDraft
from . import library as library  # The guard of the import: it must come before what needs torch.
from .decoding import Observer, Speculative, SpeculativeOutput, speculative

__all__ = ["NgramDraft", "Observer", "Speculative", "SpeculativeOutput", "speculative"]
