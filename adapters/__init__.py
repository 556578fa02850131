"""Adapters: the acceptance rules of `cactus_rules` inside inference engines.

An adapter guards its import, translates between the engine's data and rows of probabilities, and
wraps the result. It holds no acceptance rule. Import the one you need by name, for example
``from cactus_rules.adapters.llamacpp import SpeculativeLlama``.
"""
