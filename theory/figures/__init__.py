"""Scripts that draw docs/figures; run one with ``python -m cactus_rules.theory.figures.NAME``.

They need matplotlib: ``pip install '.[figures]'`` in the project's folder.
"""
