"""Graders: functions that score an answer against a reference."""

MADE = {
    "text": "gem.graders.text:TextGrader",
    "math": "gem.graders.math:MathGrader",
    "number": "gem.graders.number:NumberGrader",
    "choice": "gem.graders.choice:ChoiceGrader",
    "code": "gem.graders.code:CodeGrader",
}
"""The graders that need no more than their name, each a `gem.graders.base.DataGrader`.

``data:NAME``, ``--grader NAME``, help and messages follow from it. What else there is to say of a grader
stands in its class.
"""

GIVEN = ("judge", "function")
"""The kinds of graders that are no name alone."""
