import math
import re
from pathlib import Path

import pytest

import gem
from gem.envs.games import crosswords
from gem.envs.games.crosswords import ACROSS, Crosswords, Entry, answers, clues
from gem.errors import BadArgument

VARIANTS = ["easy", "hard", "random"]


def dealt(**keywords):
    """A game of "cat" across and "tea" down from its last letter."""
    env = Crosswords(num_words=2, **{"max_turns": 60} | keywords)
    env._cross = lambda count: [
        Entry("cat", 1, 1, ACROSS, clues()["cat"]),
        Entry("tea", 1, 3, crosswords.DOWN, clues()["tea"]),
    ]
    env.reset(seed=0)
    return env


def write(env, text):
    return env.step(f"\\boxed{{{text}}}")


def test_the_file_holds_hundreds_of_words_with_a_clue_each_all_different():
    text = Path(crosswords.__file__).with_name("crossword_clues.tsv").read_text("utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    assert all(len(row) == 2 for row in rows)
    assert len(rows) >= 600
    assert len({word for word, _ in rows}) == len({clue.lower() for _, clue in rows}) == len(rows)
    assert all(re.fullmatch("[a-z]{3,10}", word) for word, _ in rows)


@pytest.mark.system
def test_words_and_clues_are_spelled_as_english_spells_them():
    wordfreq = pytest.importorskip("wordfreq")
    for word, clue in clues().items():
        for each in (word, *re.findall("[A-Za-z]+", clue)):
            assert wordfreq.zipf_frequency(each, "en") >= 1.5, (each, clue)


def test_no_clue_gives_its_word_away():
    for word, clue in clues().items():
        assert word not in re.findall("[a-z]+", clue.lower())
        assert len(word) < 4 or word not in clue.lower()


@pytest.mark.parametrize("variant", VARIANTS)
def test_words_cross_and_touch_nowhere_else(variant):
    env = gem.make(f"game:Crosswords-v0-{variant}")
    counts = set()
    for seed in range(150):
        env.reset(seed=seed)
        counts.add(len(env.entries))
        assert len(env.letters) <= env.max_turns
        cells = {cell: [] for cell in env.letters}
        for entry in env.entries:
            assert answers()[entry.clue] == entry.word
            for cell, letter in zip(entry.cells(), entry.word.upper(), strict=True):
                assert env.letters[cell] == letter
                cells[cell].append(entry)
        assert all(len({entry.way for entry in held}) == len(held) for held in cells.values())
        assert min(row for row, _ in cells) == min(column for _, column in cells) == 1
        runs = re.findall(r"\w{2,}", "\n".join(lines(env, 0)) + "\n" + "\n".join(lines(env, 1)))
        assert sorted(runs) == sorted(entry.word.upper() for entry in env.entries)
        assert all(any(len(cells[cell]) > 1 for cell in entry.cells()) for entry in env.entries)
    assert counts == ({3, 4, 5, 6} if variant == "random" else {3})


def lines(env, axis):
    """The grid's rows, or its columns, as text."""
    height, width = env.size
    cells = [
        [env.letters.get((row, column), ".") for column in range(1, width + 1)]
        for row in range(1, height + 1)
    ]
    return ["".join(line) for line in (cells if axis == 0 else zip(*cells, strict=True))]


def test_lengths_follow_the_difficulty():
    for variant, lengths in (("easy", range(3, 6)), ("hard", range(6, 11))):
        env = gem.make(f"game:Crosswords-v0-{variant}")
        for seed in range(50):
            env.reset(seed=seed)
            assert all(len(entry.word) in lengths for entry in env.entries)


def test_the_clues_say_where_each_word_begins():
    obs = dealt().reset(seed=0).obs
    assert f"- row 1, column 1, across, 3 letters: {clues()['cat']}\n" in obs
    assert f"- row 1, column 3, down, 3 letters: {clues()['tea']}\n" in obs
    assert obs.endswith("    1  2  3\n 1  _  _  _\n 2  .  .  _\n 3  .  .  _")


@pytest.mark.parametrize("text", ["1 1 c", "1 1 C", "1, 1, c", " 1,1,c "])
def test_a_right_letter_stays(text):
    env = dealt()
    step = write(env, text)
    assert step.obs.startswith("C is right in row 1, column 1.")
    assert "\n 1  C  _  _\n" in step.obs
    assert step.reward == pytest.approx(0.5 / 5)


def test_a_wrong_letter_is_told_and_not_written_and_earns_nothing():
    env = dealt()
    for letter in "xyzxyz":
        step = write(env, f"1 1 {letter}")
        assert step.obs.startswith(f"{letter.upper()} is wrong in row 1, column 1.")
        assert (step.reward, step.info) == (0.0, {})
    assert (1, 1) in env.open


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 1 c", "Row 1, column 1 holds C already."),
        ("1 1 x", "Row 1, column 1 holds C already."),
        ("2 2 c", "There is no cell of a word."),
        ("0 1 c", "There is no cell of a word."),
        (f"{'9' * 4000} 1 c", "There is no cell of a word."),
    ],
)
def test_a_move_that_tells_nothing_is_explained_and_costs_the_turn(text, why):
    env = dealt()
    write(env, "1 1 c")
    for _ in range(9):
        step = write(env, text)
        assert step.obs.startswith(why)
        assert (step.reward, step.done, step.info) == (0.0, False, {"legal": False})


@pytest.mark.parametrize("text", ["1 1", "c", "1 1 cat", "1 1 é", "1 1 1", "a b c", f"{'9' * 5000} 1 c", ""])
def test_what_is_no_cell_and_letter_is_unreadable(text):
    assert write(dealt(), text).info["stop"] == "unreadable"


def test_all_letters_win():
    env = dealt()
    steps = [write(env, text) for text in ("1 1 c", "1 2 a", "1 3 t", "2 3 e", "3 3 a")]
    assert [step.done for step in steps] == [False] * 4 + [True]
    assert steps[-1].info == {"success": True, "stop": "solved"}
    assert math.fsum(step.reward for step in steps) == 1.0


def test_the_last_turn_tells_the_words():
    env = dealt(max_turns=9)
    for _ in range(8):
        write(env, "1 1 x")
    assert write(env, "1 1 x").obs.endswith("The words: cat, tea.")


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        ({"num_words": 0}, "num_words is 0"),
        ({"max_turns": 12}, "3 words may need 13 letters"),
        ({"max_turns": 27, "hardcore": True}, "3 words may need 28 letters"),
    ],
)
def test_crosswords_that_cannot_be_are_refused(keywords, why):
    with pytest.raises((BadArgument, UserWarning), match=why):
        Crosswords(**keywords)
