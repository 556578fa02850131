"""The errors that adapters raise: each message names the argument, its value and the remedy."""


def install_hint(extra: str) -> str:
    """How to install the engine of an adapter; the package is not on PyPI."""
    return f"install it with: pip install '.[{extra}]' in the project's folder"


class AdapterError(Exception):
    """Base class of every error that an adapter raises on purpose."""


class MissingEngineError(AdapterError, ImportError):
    """The inference engine is not installed, or its version lacks something that is needed."""


class ModelFileError(AdapterError, ValueError):
    """A model file is missing, truncated, not a GGUF file, or cannot be loaded."""


class ContextOverflowError(AdapterError, ValueError):
    """More tokens than the context of a model holds."""


class VocabularyMismatchError(AdapterError, ValueError):
    """Target and draft do not give the same text to the same token ids."""


class UnsupportedError(AdapterError, NotImplementedError):
    """The request is meaningful, but this adapter does not support it yet."""


class EngineError(AdapterError, RuntimeError):
    """The engine reported a failure of its own."""
