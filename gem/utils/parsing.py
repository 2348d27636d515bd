"""Upstream's names of the parsers, which are defined in `gem.parsing`."""

from gem.parsing import boxed as extract_last_boxed_answer
from gem.parsing import code as _code
from gem.parsing import tagged as extract_last_tagged_answer

__all__ = ["extract_code_from_model", "extract_last_boxed_answer", "extract_last_tagged_answer"]


def extract_code_from_model(model_response: str) -> str | None:
    """Return the last fenced block of Python, or else of any label; None if there is none."""
    found = _code(model_response, "python")
    return _code(model_response) if found is None else found
