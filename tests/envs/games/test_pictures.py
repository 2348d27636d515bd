"""Pictures of boards: they show what the text shows, nothing that is hidden, and leave the game as it is."""

import io
import sys

import pytest

import gem
from gem.content import Image, Text, text_of
from gem.envs.kit import text_game
from gem.errors import BadArgument, MissingExtra
from gem.testing import check_env

pillow = pytest.importorskip("PIL.Image")

GAMES = gem.ids("game")
every_game = pytest.mark.parametrize("env_id", GAMES)
one_id_per_game = pytest.mark.parametrize("env_id", [i for i in GAMES if i.endswith("-easy")])
HIDING = {
    "game:GuessTheNumber-v0-hard": {"secret": 7},
    "game:Mastermind-v0-hard": {"secret": "8765"},
    "game:Minesweeper-v0-hard": {"mines": frozenset({0, 9, 50}), "order": [5, 6, 7]},
    "game:Wordle-v0-hard": {"secret": "zebra"},
    "game:Hangman-v0-hard": {"secret": "zebras"},
}
"""What each game hides, with something else to hide in its place."""


def expert_or_lottery(env, turn):
    return env.solve() if turn % 2 else env.sample_random_action()


@one_id_per_game
def test_as_text_an_episode_with_pictures_is_the_episode_without(env_id):
    plain, drawn = gem.make(env_id), gem.make(env_id, render_mode="image")
    one, other = plain.reset(seed=5), drawn.reset(seed=5)
    signs, board, picture = plain.SIGNS, plain.board(), drawn.PICTURE
    if signs:  # the first observation says what the picture shows; the signs stay with the board
        one = one._replace(obs=one.obs.replace(signs, picture).replace(board, f"{signs}\n{board}"))
    for turn in range(3):
        told = text_of(other.obs)
        assert (told if signs else told.replace(picture, "")) == one.obs
        pictures = [part for part in other.obs if isinstance(part, Image)]
        assert len(pictures) == 1
        assert pictures[0].data == drawn.picture().data
        assert one[1:] == other[1:]
        action = expert_or_lottery(plain, turn)
        one, other = plain.step(action), drawn.step(action)
        if one.done:
            assert text_of(other.obs) == one.obs
            return
    assert text_of(drawn.step("\\boxed{}").obs) == plain.step("\\boxed{}").obs


@one_id_per_game
def test_a_picture_stands_where_the_text_shows_the_board(env_id):
    env = gem.make(env_id, render_mode="image")
    obs = env.reset(seed=2).obs
    texts = "\n".join(part.text for part in obs if isinstance(part, Text))
    (picture,) = (part for part in obs if isinstance(part, Image))
    assert picture.alt == "\n".join(filter(None, (env.SIGNS, env.board())))
    assert picture.described
    assert "\\boxed{}" in texts
    assert env.PICTURE in texts
    assert not env.SIGNS or env.SIGNS not in texts
    if env.board():
        assert env.board() not in texts


@one_id_per_game
def test_pictures_are_pngs_of_a_size_that_models_read(env_id):
    env = gem.make(env_id)
    env.reset(seed=1)
    image = pillow.open(io.BytesIO(env.picture().data))
    image.load()
    assert image.format == "PNG"
    assert min(image.size) >= 64
    assert max(image.size) <= 1024
    assert len(image.getcolors(1 << 20)) > 4
    assert env.picture() == env.picture()


@one_id_per_game
def test_other_boards_are_other_pictures_and_equal_boards_are_equal_pictures(env_id):
    env = gem.make(env_id)
    seen = {}
    for seed in range(3):
        env.reset(seed=seed)
        for turn in range(3):
            shown = env.board() or repr(
                [
                    vars(env).get(name)
                    for name in ("low", "high", "max_number", "length", "highest", "marked", "page", "target")
                ]
            )
            target = vars(env).get("target")  # of 2048 and Hanoi: in the picture, and in the rules
            turns = (env.turn, env.max_turns) if "Hangman" in env_id else ()
            seen.setdefault((shown, target, turns), set()).add(env.picture().data)
            if env.step(expert_or_lottery(env, turn)).done:
                break
    assert all(len(pictures) == 1 for pictures in seen.values())
    assert len(set.union(*seen.values())) == len(seen) > 1


@pytest.mark.parametrize("env_id", HIDING)
def test_a_picture_does_not_depend_on_what_is_hidden(env_id):
    env = gem.make(env_id)
    env.reset(seed=4)
    for turn in range(3):
        env.step(expert_or_lottery(env, turn))
    before = env.picture()
    for name, value in HIDING[env_id].items():
        assert vars(env)[name] != value
        setattr(env, name, value)
    assert env.picture() == before


def test_letters_that_a_crossword_hides_are_not_drawn():
    env = gem.make("game:Crosswords-v0-easy")
    env.reset(seed=0)
    before = env.picture()
    for cell in env.open:
        env.letters[cell] = "?"
    assert env.picture() == before


def test_flags_and_the_mine_that_was_hit_are_drawn():
    env = gem.make("game:Minesweeper-v0-easy")
    env.reset(seed=0)
    pictures = [env.picture()]
    env.step("\\boxed{flag 1 1}")
    pictures.append(env.picture())
    env.step("\\boxed{reveal 5 5}")
    row, column = divmod(next(cell for cell in env.mines if env.cells[cell] == "."), 5)
    assert env.step(f"\\boxed{{{row + 1} {column + 1}}}").done
    pictures.append(env.picture())
    assert len({picture.data for picture in pictures}) == 3


@pytest.mark.system
@pytest.mark.parametrize("env_id", ["game:Sudoku-v0-easy", "game:Wordle-v0-easy"])
def test_the_contract_holds_with_pictures(env_id):
    rules = ["reset-returns", "step-returns", "same-seed", "save-restore", "pickles", "hostile-actions"]
    target = gem.make(env_id, render_mode="image")
    check_env(target, seeds=[0, 1], turns=6, rules=rules).raise_if_broken()


@pytest.mark.slow
@every_game
def test_the_whole_contract_holds_with_pictures(env_id):
    check_env(gem.make(env_id, render_mode="image"), seeds=[0], turns=20).raise_if_broken()


def test_without_pillow_a_game_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[vision\]"):
        gem.make("game:Sudoku-v0-easy", render_mode="image")
    gem.make("game:Sudoku-v0-easy").reset(seed=0)


def test_another_render_mode_is_refused():
    with pytest.raises(BadArgument, match="render_mode is 'human'; accepted: 'text', 'image'"):
        gem.make("game:Sudoku-v0-easy", render_mode="human")


def test_a_game_that_draws_nothing_says_which_method_it_lacks():
    class Bare(text_game.TextGame):
        def __init__(self):
            super().__init__(1)

    with pytest.raises(NotImplementedError, match=r"Bare must define draw_board\(\)"):
        Bare().picture()
    with pytest.raises(NotImplementedError, match=r"Bare must define instance\(\)"):
        Bare().instance()
