import pytest

from gem.envs.kit.templates import fill_templates, unwrap_lines


def test_values_stand_in_the_fields_as_text_or_as_sql():
    text, sql = fill_templates(
        "here", ["{name} has {count}", "{name:sql}, {count:sql}, {nothing:sql}"], VALUES
    )
    assert text == "O'Neill {today} has 3"
    assert sql == "'O''Neill {today}', 3, NULL"


VALUES = {"name": "O'Neill {today}", "count": 3, "nothing": None}


@pytest.mark.parametrize(
    ("template", "values"),
    [("{a}", {}), ("{a}", {"a": 1, "b": 2}), ("{}", {"a": 1}), ("{0}", {}), ("{a.real}", {"a": 1}),
     ("{a:quoted}", {"a": "x"}), ("{a", {"a": 1}), ("no field", {"a": 1})],
)  # fmt: skip
def test_fields_and_values_that_do_not_match_are_an_error(template, values):
    with pytest.raises(ValueError, match=r"fields|format|expected '}'"):
        fill_templates("here", [template], values)


def test_common_values_need_not_be_used():
    assert fill_templates("here", ["{a}"], {"a": 1}, {"today": "now"}) == ["1"]


def test_a_line_break_is_a_blank_and_an_empty_line_a_line_break():
    assert unwrap_lines("one\n  two\n\nthree\n") == "one two\nthree"
