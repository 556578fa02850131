"""The transformers library, imported with a hint and probed for all that the adapter relies on."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from ..errors import MissingEngineError, install_hint

NAMES = (
    "DynamicCache",
    "LogitsProcessorList",
    "PreTrainedModel",
    "StoppingCriteriaList",
    "cache_utils.Cache.activate_past_recording",
    "cache_utils.Cache.crop",
    "cache_utils.Cache.get_seq_length",
    "cache_utils.Cache.is_croppable",
    "generation.GenerateDecoderOnlyOutput",
    "generation.GenerationConfig.get_generation_mode",
    "generation.GenerationMixin.generate",
    "generation.GenerationMixin.prepare_inputs_for_generation",
)
PARAMETERS = {
    "generation.GenerationMixin.generate": ("custom_generate", "streamer"),
    "generation.GenerationMixin.prepare_inputs_for_generation": (
        "is_first_iteration",
        "next_sequence_length",
    ),
}
MINIMUM = (5, 18)
"""Before it, recording layers with a sliding window returned more states than the mask covers."""
INSTALL_HINT = install_hint("transformers")


def missing(library: Any) -> list[str]:
    """Names and parameters that the adapter uses and `library` lacks; all of them are public."""
    lacking = [name for name in NAMES if _find(library, name) is None]
    for name, parameters in PARAMETERS.items():
        if function := _find(library, name):
            present = inspect.signature(function).parameters
            lacking += [
                f"{name}({parameter}=)" for parameter in parameters if parameter not in present
            ]
    return lacking


def load_library(name: str = "transformers") -> Any:
    """Import the library, or raise `MissingEngineError` saying what to install."""
    try:
        importlib.import_module("torch")
        library = importlib.import_module(name)
    except ImportError as error:
        raise MissingEngineError(f"{name} cannot be imported ({error}); {INSTALL_HINT}") from error
    version = str(library.__version__)
    written_for = f"the adapter is written for transformers 5.18 and 5.19: {INSTALL_HINT}"
    if tuple(map(int, version.split(".")[:2])) < MINIMUM:
        raise MissingEngineError(f"{name} {version} is too old; {written_for}")
    if lacking := missing(library):
        raise MissingEngineError(f"{name} {version} lacks {', '.join(lacking)}; {written_for}")
    return library


def streamer_of_generate() -> Any:
    """The `streamer=` of the `generate` call that is running, which put the prompt on it already.

    `generate` hands a `custom_generate` callable everything but its streamer (5.18, 5.19).
    """
    code = inspect.unwrap(transformers.generation.GenerationMixin.generate).__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return None if frame is None else frame.f_locals["streamer"]


def _find(library: Any, name: str) -> Any:
    found = library
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


transformers = load_library()
