"""`gem-gym eval` and `play` with local agents."""

import pytest

from gem import cli


def test_eval_prints_a_row_per_environment(capsys):
    assert cli.main(["eval", "game:GuessTheNumber-v0-easy", "--agent", "solver", "--episodes", "8"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["env", "success"]
    assert row.split()[:2] == ["game:GuessTheNumber-v0-easy", "100.0%"]
    assert row.split()[-1] == "8/8"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["eval"], "no environment was named"),
        (["eval", "game:GuessTheNumber-v0-esy"], "Did you mean"),
        (["eval", "game:GuessTheNumber-v0-easy", "--agent", "no/such/run"], "accepted: random, solver"),
        (["eval", "game:GuessTheNumber-v0-easy", "--episodes", "0"], "episodes is 0"),
    ],
)
def test_wrong_input_is_told_in_one_line(args, said, capsys):
    assert cli.main(args) == cli.MISUSED
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_folder_without_a_run_is_told(tmp_path, capsys):
    pytest.importorskip("torch")  # a run's model needs it
    assert cli.main(["eval", "game:GuessTheNumber-v0-easy", "--agent", str(tmp_path)]) == cli.MISUSED
    assert "holds no run" in capsys.readouterr().err
