"""The troubleshooting page has every error, its cause and its cure."""

import re

import pytest

from gem import errors


@pytest.fixture(scope="module")
def error_pages(script):
    return script("error_pages")


def test_every_error_of_the_tree_is_reachable_by_its_name_with_cause_and_cure(error_pages):
    text = "".join(error_pages.files().values())
    names = set(re.findall(r"\|?[|'] *[|']?- (\w+)  ", errors.__doc__))
    assert {"UnknownEnv", "DuplicateEpisode", "ToolError", "NoVerdict", "WorkerDied"} <= names
    assert names == {error.__name__ for error in error_pages.classes()}
    for name in names:
        section = text.partition(f"\n### {name} {{ #{name} }}\n")[2].partition("\n### ")[0]
        assert re.search(r"^- \*\*Cause\.\*\* \S", section, re.MULTILINE), name
        assert re.search(r"^- \*\*Cure\.\*\* \S", section, re.MULTILINE), name


def test_errors_of_other_modules_stand_under_the_one_they_derive_from(error_pages):
    text = "".join(error_pages.files().values())
    assert "[SandboxFailed](troubleshooting/episodes.md#SandboxFailed)" in text
    after = text.partition("\n### NoVerdict {")[2].partition("\n### ")[0]
    assert "\n- `gem.sandbox.base.SandboxFailed`{ #SandboxFailed } is one too. " in after


def test_an_error_stands_where_its_reader_looks(error_pages):
    assert error_pages.group(errors.BadArgument) == "Errors that you see"
    assert error_pages.group(errors.ToolError) == "Messages that the agent reads"
    assert error_pages.group(errors.AgentUnavailable) == "Failures around the task"


def test_a_docstring_without_cure_is_refused(error_pages):
    class Bare(errors.GemError):
        """Something is wrong."""

    with pytest.raises(ValueError, match="Bare has to say"):
        error_pages.parts(Bare)
