"""The bridge to TextArena: games of the package, mended for many environments in one process."""

import builtins
import copy
import pickle
import random
import sys
from importlib.util import find_spec

import pytest

import gem
from gem.envs.bridges.specs import TEXTARENA_GAMES
from gem.errors import BadArgument, MissingData, MissingExtra, UnknownArgument, UnknownEnv

pytestmark = [
    pytest.mark.skipif(
        find_spec("textarena") is None, reason="textarena is not installed"
    ),  # imported: seconds
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from gem.envs.bridges import textarena as bridge

ANSWERS = (
    "hello",
    "[left]",
    "[1]",
    "[a]",
    "[1 2]",
    "[crane]",
    "[stop]",
    "[0 0]",
    "[pass]",
    "[C]",
    "{hi} [5]",
)


def played(env, turns=16):
    """Everything that a game says, does and pays to answers that are mostly wrong."""
    start = env.reset(seed=3)
    said = [start.obs]
    for turn in range(turns):
        answer = ANSWERS[turn % len(ANSWERS)]
        acting = getattr(env, "acting", None)
        step = env.step(answer if acting is None else dict.fromkeys(acting, answer))
        said.append(step[:4])
        if step.done:
            break
    return said


def test_what_the_package_cannot_play_is_found_without_making_every_game(monkeypatch):
    made = []
    init = bridge.Game.__init__
    monkeypatch.setattr(
        bridge.Game, "__init__", lambda game, name, config: (made.append(name), init(game, name, config))[1]
    )
    missing = bridge.find_missing()
    assert {"CharacterConclave-v0", "DontSayIt-v0-unlimited", "ScorableGames-v0-game1"} <= set(missing)
    assert "its votes raise a TypeError" in missing["CharacterConclave-v0"]
    assert not {"TicTacToe-v0", "DontSayIt-v0", "Wordle-v0"} & set(missing)
    assert len(made) < 150
    for name in list(missing)[::8]:
        with pytest.raises((MissingData, MissingExtra)):
            gem.make(f"ta:{name}")


def test_the_catalogue_lists_the_installed_games():
    listed = sorted(name for games in TEXTARENA_GAMES.values() for name in games.split())
    assert listed == bridge.names()


@pytest.mark.parametrize("absent", ["nltk", "textarena.envs.registration"])
def test_without_the_package_making_one_names_the_extra(monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[textarena\]"):
        gem.make("ta:TicTacToe-v0")


@pytest.mark.parametrize("name", ["GuessTheNumber-v0", "Hangman-v0", "TicTacToe-v0", "LiarsDice-v0"])
def test_a_game_is_blind_to_its_neighbours_and_leaves_the_generators_alone(name):
    alone = played(gem.make(f"ta:{name}"))
    env, other = gem.make(f"ta:{name}"), gem.make("ta:2048-v0-ultra-easy")
    state = random.getstate()
    start = env.reset(seed=3)
    other.reset(seed=4)
    said = [start.obs]
    for turn in range(16):
        other.step("[left]" if turn % 2 else "[up]") if not other_over(other) else other.reset()
        random.random()  # noqa: TID251  the caller draws for itself
        answer = ANSWERS[turn % len(ANSWERS)]
        acting = getattr(env, "acting", None)
        step = env.step(answer if acting is None else dict.fromkeys(acting, answer))
        said.append(step[:4])
        if step.done:
            break
    assert said == alone
    random.setstate(state)
    played(gem.make(f"ta:{name}"))
    assert random.getstate() == state


def other_over(env):
    return env._game.over


def test_words_stand_in_where_nltk_has_none_and_the_start_says_so():
    env = gem.make("ta:Hangman-v0")
    info = env.reset(seed=0).info
    assert info == ({"words": "wordfreq"} if env._game.stand_in else {})


def test_a_won_game_pays_one():
    env = gem.make("ta:GuessTheNumber-v0")
    env.reset(seed=0)
    low, high = 1, 20
    while True:
        guess = (low + high) // 2
        step = env.step(f"[{guess}]")
        if step.done:
            break
        if "higher" in step.obs:
            low = guess + 1
        else:
            high = guess - 1
    assert (step.reward, step.info["success"]) == (1.0, True)


def test_two_players_meet_and_one_wins():
    env = gem.make("ta:TicTacToe-v0")
    env.reset(seed=0)
    for cell in (0, 3, 1, 4, 2):
        step = env.step({env.acting[0]: f"[{cell}]"})
    assert step.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert step.infos["player_0"]["success"]
    assert not step.infos["player_1"]["success"]


def test_thinking_is_neither_played_nor_shown():
    env = gem.make("ta:KuhnPoker-v0")
    env.reset(seed=0)
    first, second = env.acting[0], next(seat for seat in env.seats if seat not in env.acting)
    step = env.step({first: "<think>I have the king. [bet]? No.</think>[check]"})
    assert "[check]" in step.obs[second]
    assert "king" not in step.obs[second]
    assert "[bet]?" not in step.obs[second]
    env = gem.make("ta:FrozenLake-v0")
    env.reset(seed=0)
    plain = env.fork().step("[right]")
    assert env.fork().step("<think>Not [down].</think> right")[:4] == plain[:4]
    assert env.step("<thinking>[down] is a hole, so:</thinking>[right]")[:4] == plain[:4]


def test_a_game_that_everybody_left_ends():
    env = gem.make("ta:PublicGoodsGame-v0")
    env.reset(seed=0)
    for _ in range(1000):
        step = env.step({env.acting[0]: "nothing that can be read"})
        if step.done:
            break
    assert step.done


def test_twins_go_on_alike():
    env = gem.make("ta:2048-v0-easy")
    env.reset(seed=1)
    env.step("[up]")
    twins = [env.fork(), pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    for answer in ("[left]", "[down]", "[up]"):
        expected = env.step(answer)
        assert [twin.step(answer) for twin in twins] == [expected] * 3


def test_nothing_is_printed(capsys):
    env = gem.make("ta:SettlersOfCatan-v0")
    env.reset(seed=0)
    assert capsys.readouterr().out == ""
    assert print is builtins.print


def test_errors():
    with pytest.raises(UnknownEnv, match="TicTacToe-v0"):
        gem.make("ta:TicTacTo-v0")
    with pytest.raises(UnknownArgument, match="num_players"):
        gem.make("ta:TicTacToe-v0", boards=3)
    with pytest.raises(BadArgument, match="num_players is 5"):
        gem.make("ta:TicTacToe-v0", num_players=5).reset(seed=0)
    with pytest.raises(MissingData, match="OPENROUTER_API_KEY"):
        gem.make("ta:TwentyQuestions-v0")


SLOW = ("RushHour-v0", "Sudoku-v0-hard", "Stratego-v0", "SpellingBee-v0", "WordLadder-v0")
"""Games that the package takes seconds to set up."""

FIRST_OF_EACH = sorted(
    {
        name.split("-v0")[0]: name for games in TEXTARENA_GAMES.values() for name in reversed(games.split())
    }.values()
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FIRST_OF_EACH if name not in SLOW])
def test_every_game_is_deterministic_and_survives_wrong_answers(name):
    try:
        env = gem.make(f"ta:{name}")
    except MissingData as error:
        pytest.skip(str(error))
    state = random.getstate()
    first = played(env)
    assert played(gem.make(f"ta:{name}")) == first
    assert random.getstate() == state
