import io
import json

import pytest

pillow = pytest.importorskip("PIL.Image")

from gem.content import Image, Text
from gem.envs.vision.env import MathVisualEnv
from gem.errors import BadArgument
from gem.testing import check_env


def png(colour):
    file = io.BytesIO()
    pillow.new("RGB", (8, 8), colour).save(file, "PNG")
    return file.getvalue()


ROWS = [
    {"problem": "<image>What colour is this?", "answer": "red", "images": [png("red")]},
    {"problem": "How many pictures?", "answer": "2", "images": [png("red"), png("blue")]},
]


def test_pictures_stand_where_the_problem_says_or_before_it():
    env = MathVisualEnv(dataset=ROWS)
    form = Text("Give your final answer inside \\boxed{}.")
    assert env.reset(idx=0).obs == (Image(png("red")), Text("What colour is this?"), form)
    assert env.step("\\boxed{red}").reward == 1.0
    assert [type(part) for part in env.reset(idx=1).obs] == [Image, Image, Text, Text]


def test_any_column_names_and_files_beside_the_rows_will_do(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/1.png").write_bytes(png("green"))
    row = {"ask": "What colour?", "gold": "green", "figure": "pictures/1.png"}
    (tmp_path / "set.jsonl").write_text(json.dumps(row))
    env = MathVisualEnv(
        dataset=tmp_path / "set.jsonl", question_key="ask", answer_key="gold", image_key="figure"
    )
    assert env.reset(seed=0).obs[0] == Image(png("green"))
    assert env.step(env.solve()).reward == 1.0


def test_the_contract_holds_with_pictures():
    check_env(lambda: MathVisualEnv(dataset=ROWS, max_attempts=2)).raise_if_broken()


def test_a_missing_column_of_pictures_is_named():
    with pytest.raises(BadArgument, match="no column 'images'"):
        MathVisualEnv(dataset=[{"problem": "?", "answer": 1}])
