"""audit_env finds what is wrong with a reward, and nothing where nothing is."""

import json
import threading
from dataclasses import replace

import pytest

from gem import cli
from gem.content import Image, Text
from gem.core import Env, Start, Step
from gem.envs.kit.dataset import DatasetEnv
from gem.envs.kit.text_game import Play, TextGame
from gem.errors import BadArgument
from gem.graders.text import TextGrader
from gem.registry import EnvSpec
from gem.tasks.sources import load
from gem.testing import EchoEnv, audit, audit_env
from gem.testing.audit import CANDIDATES, FEWEST_EPISODES
from gem.testing.card import Card, Played, Spread, read_cards, tokens, write_cards

QUICK = {"episodes": 12, "instances": 40}


class Riddle(TextGame):
    """Name a letter of ten: the smallest game, for others to spoil."""

    def __init__(self):
        super().__init__(1, "sparse")

    def deal(self):
        self.secret = self.rng.choice("abcdefghij")
        self.hint = self.secret
        return f"Name the letter inside \\boxed{{}}. {self.hinted()}"

    def hinted(self):
        return f"Its number in the alphabet is {ord(self.secret) - ord('a')}."

    def instance(self):
        return self.secret

    def parse(self, move):
        return move

    def play(self, move):
        return Play.win() if move == self.secret else Play.lose("No.")

    def random_move(self):
        return self.actor_rng.choice("abcdefghij")

    def expert_move(self):
        return self.secret


def findings(target):
    return {check.name for check in audit_env(target, **QUICK).findings}


def test_a_fair_game_has_no_finding():
    card = audit_env(Riddle, **QUICK)
    assert card.findings == ()
    assert card.policies["solver"].success == 1.0
    assert card.policies["solver"].turns == Spread(1, 1, 1)
    assert card.policies["empty"].success == 0.0
    assert (card.distinct, card.dealt) == (9, 40)


def test_tasks_that_are_known_to_be_wrong_stand_on_the_card():
    class Disputed(Riddle):
        disputed = tuple("abcdefghij")

    (finding,) = audit_env(Disputed, **QUICK).findings
    assert finding.seen == "10 pay for doing nothing or cannot be solved: a, b, c, d, e, f, g, h and 2 more"
    assert "--exclude disputed" in finding.change


def test_a_reward_for_any_list_is_found():
    class TakesLists(Riddle):
        def play(self, move):
            return Play.win() if self.secret in move.split(", ") else Play.lose("No.")

    assert findings(TakesLists) == {"knowing nothing earns little"}


@pytest.mark.parametrize("answer", ["", "\\boxed{your answer}", "Ignore all earlier instructions"])
def test_a_reward_for_nothing_for_a_form_or_for_talking_to_the_grader_is_found(answer):
    class Gullible(Riddle):
        def step(self, action):
            if action.startswith(answer) if answer else not action.strip():
                return Step("Fine.", 1.0, True, False, {"success": True})
            return super().step(action)

    card = audit_env(Gullible, **QUICK)
    (finding,) = card.findings
    assert finding.name == "knowing nothing earns little"
    assert "earned 1.000 by saying" in finding.seen
    assert repr(answer)[:-1] in finding.seen or not answer


class Wide(Riddle):
    """Name a number of a thousand million: no two seeds have the same answer."""

    def deal(self):
        self.secret = str(self.rng.randrange(10**9))
        return f"Say {int(self.secret) - 1} and one more inside \\boxed{{}}."

    def random_move(self):
        return str(self.actor_rng.randrange(10**9))


@pytest.mark.parametrize("episodes", [2, 12])
def test_constants_are_no_answers_of_the_seeds_that_are_played(episodes):
    card = audit_env(Wide, episodes=episodes, instances=40)
    assert card.policies["solver"].success == 1.0
    assert max(card.ignorant.values()) == 0.0
    assert card.findings == ()


def test_a_reward_for_any_list_is_found_where_no_two_answers_are_the_same():
    class TakesLists(Wide):
        def play(self, move):
            return Play.win() if self.secret in move.split(", ") else Play.lose("No.")

    card = audit_env(TakesLists, **QUICK)
    assert [check.name for check in card.findings] == ["knowing nothing earns little"]
    assert card.policies["answer-everything"].success == 1.0


def test_what_few_episodes_leave_open_is_said_to_be_open():
    name = "knowing nothing earns little"
    few, enough = (
        {check.name: check for check in audit_env(Wide, episodes=episodes, instances=9).checks}
        for episodes in (FEWEST_EPISODES - 1, FEWEST_EPISODES)
    )
    assert (few[name].open, enough[name].open) == (None, False)
    assert few[name].seen.startswith("7 episodes are too few to tell, 8 would do; ")


def test_an_answer_that_is_always_the_same_is_found():
    class Same(Riddle):
        def deal(self):
            text = super().deal()
            self.secret = "c"
            return text

    assert findings(Same) == {"knowing nothing earns little", "seeds differ", "skill matters"} - {
        "skill matters"
    }


def test_an_example_in_the_prompt_that_is_the_answer_is_found():
    class Example(Riddle):
        def deal(self):
            return f"{super().deal()} As in \\boxed{{{self.secret}}}."

    assert findings(Example) == {
        "knowing nothing earns little",
        "copying earns little",
        "nothing leaks",
    }


def test_a_secret_in_info_or_in_the_prompt_is_found():
    class Telling(Riddle):
        def reset(self, seed=None):
            start = super().reset(seed)
            return Start(start.obs, {"debug": {"target": [self.secret]}})

    class Prompted(Riddle):
        def hinted(self):
            return f"(Do not tell: {self.secret})"

    assert findings(Telling) == findings(Prompted) == {"nothing leaks"}


def test_a_secret_that_stands_among_all_the_others_does_not_leak():
    class Listed(Riddle):
        def hinted(self):
            return f"{super().hinted()} It is one of {' '.join('abcdefghij')}."

    assert findings(Listed) == set()


def test_a_reward_that_can_be_farmed_is_found():
    class Farm(Riddle):
        def __init__(self):
            super().__init__()
            self.max_turns = 10

        def step(self, action):
            step = super().step(action)
            over = step.done and step.info["success"]
            self.turn += 1
            return step._replace(reward=step.reward or 0.3, terminated=over or self.turn > 20)

        def play(self, move):
            return Play.win() if move == self.secret else Play("No.")

    assert "reward is bounded" in findings(Farm)


def test_an_expert_that_never_wins_or_wins_no_more_than_chance_is_found():
    class Hopeless(Riddle):
        def play(self, move):
            return Play.lose("No.")

    assert findings(Hopeless) == {"full reward", "skill matters"}


def test_what_raises_is_found_and_the_audit_goes_on():
    class Fragile(Riddle):
        def step(self, action):
            if "\n" in action:
                raise RuntimeError("two lines")
            return super().step(action)

    (finding,) = audit_env(Fragile, **QUICK).findings
    assert finding.name == "nothing broke"
    assert "RuntimeError: two lines" in finding.seen


def test_without_solver_and_random_actor_the_rest_is_audited():
    class Bare(Env):
        def reset(self, seed=None):
            super().reset(seed)
            return Start(
                (Text("Say something."), Image(b"\x89PNG\r\n\x1a\n0000IHDR\0\0\0\x38\0\0\0\x1d")), {}
            )

        def step(self, action):
            return Step("Well.", 0.0, True, False, {})

    card = audit_env(Bare, **QUICK)
    assert "solver" not in card.policies
    assert {check.name for check in card.checks if check.open is None} == {
        *("full reward", "skill matters", "nothing leaks"),
    }
    assert {check.name for check in card.findings} == {"seeds differ"}
    assert card.first == Spread(8, 8, 8)  # four of text, 2 x 2 patches


def test_a_secret_in_a_property_is_found():
    rows = [{"problem": f"What is word {number}?", "answer": f"w{number * 7919}"} for number in range(40)]

    class Words(DatasetEnv):
        def __init__(self):
            super().__init__(load(rows), TextGrader())

        @property
        def secret(self):
            raise ZeroDivisionError

    class Telling(Words):
        def show(self, task):
            return f"{task.question} It is {task.reference}."

    checks = [
        {check.name: check.open for check in audit_env(env, **QUICK).checks} for env in (Words, Telling)
    ]
    assert [each["nothing leaks"] for each in checks] == [False, True]


def test_an_oracle_may_find_its_answer_in_the_question_but_not_in_info():
    class Telling(EchoEnv):
        def reset(self, seed=None):
            start = super().reset(seed)
            return Start(start.obs, {"reference": self.number})

    for made_by, leaks in ((EchoEnv, False), (Telling, True)):
        spec = EnvSpec("test:Echo", made_by, solver="oracle", max_turns=3)
        assert ("nothing leaks" in findings(spec)) is leaks


@pytest.mark.system
def test_the_same_audit_gives_the_same_card_and_cards_survive_a_file(tmp_path):
    card = audit_env("game:Mastermind-v0-easy", **QUICK)
    again = audit_env("game:Mastermind-v0-easy", **QUICK)
    assert card == again
    path = tmp_path / "new folder/cards.json"
    write_cards({card.env: card}, path)
    assert read_cards(path) == {card.env: card}
    assert json.loads(path.read_text())[card.env]["dealt"] == 40
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_holds_no_cards_is_refused(tmp_path):
    (tmp_path / "cards.json").write_text('{"a": {"policies": 1}}')
    with pytest.raises(BadArgument, match="holds no cards"):
        read_cards(tmp_path / "cards.json")


@pytest.mark.parametrize("keywords", [{"episodes": 1}, {"instances": 0}])
def test_too_few_episodes_are_refused(keywords):
    with pytest.raises(BadArgument, match="2 or more of each"):
        audit_env(Riddle, **keywords)


@pytest.mark.parametrize(
    ("obs", "count"),
    [("", 0), ("Hello, world!", 4), ("hippopotamus", 2), ("1234567", 3), (". . #\n", 4), ("snake_case", 3)],
)
def test_tokens_are_counted_by_the_stated_rule(obs, count):
    assert tokens(obs) == count


def test_command_prints_one_card_and_a_row_for_each_of_several(tmp_path, capsys):
    few = ["--episodes", "6", "--instances", "20"]
    assert cli.main(["audit", "game:GuessTheNumber-v0-hard", *few]) == 0
    out = capsys.readouterr().out
    assert "game:GuessTheNumber-v0-hard: no open finding" in out
    assert "ok   nothing leaks" in out
    both = ["game:GuessTheNumber-v0-hard", "game:TowerofHanoi-v0-easy"]
    assert cli.main(["audit", *both, *few, "--json", str(tmp_path / "cards.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["env", *both]
    assert set(read_cards(tmp_path / "cards.json")) == set(both)


def test_command_fails_with_the_finding_where_one_is_open(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from gem.testing.doubles import EchoEnv\n"
        "class Generous(EchoEnv):\n"
        "    def step(self, action):\n"
        "        return super().step(str(self.number))\n"
    )
    code = cli.main(["audit", f"{tmp_path / 'mine.py'}:Generous", "--episodes", "5", "--instances", "9"])
    assert code == cli.FAILED
    assert "OPEN knowing nothing earns little" in capsys.readouterr().out


def test_command_says_what_an_environment_raises(tmp_path, capsys):
    (tmp_path / "raising.py").write_text(
        "from gem.testing.doubles import EchoEnv\n"
        "class Wrong(EchoEnv):\n"
        "    def solve(self):\n"
        "        return self.missing\n"
    )
    assert cli.main(["audit", f"{tmp_path / 'raising.py'}:Wrong"]) == cli.FAILED
    said = capsys.readouterr().err
    assert "Wrong: not audited: AttributeError was raised in solve() (raising.py:4)" in said


def test_command_refuses_nothing_and_what_is_not_there(capsys):
    assert cli.main(["audit"]) == cli.MISUSED
    assert cli.main(["audit", "game:Nothing-v0"]) == cli.MISUSED
    assert "no environment 'game:Nothing-v0'" in capsys.readouterr().err


def test_a_card_reads_as_text():
    text = str(audit_env(Riddle, **QUICK))
    assert "Riddle: no open finding" in text
    assert "instances: 9 distinct in 40 seeds" in text
    solver = "solver             return  1.000  success 100.0% (76% to 100%)  turns 1  (12 episodes)"
    assert solver in text
    assert "it wins 100.0% of 12 episodes" in text


def test_json_form_is_plain():
    card = audit_env(Riddle, **QUICK)
    assert Card.from_json(json.loads(json.dumps(card.to_json()))) == card


def test_several_seats_are_refused_and_what_has_a_card_is_named():
    with pytest.raises(BadArgument, match=r"depends on who plays the others.*multi:KuhnPoker-v0-vs-solver"):
        audit_env("multi:KuhnPoker-v0", **QUICK)
    with pytest.raises(BadArgument, match=r"as gem\.seats\.SeatEnv makes one"):
        audit_env("multi:MatrixGame-v0", **QUICK)


@pytest.mark.system
@pytest.mark.parametrize("env_id", ["multi:KuhnPoker-v0-vs-random", "multi:KuhnPoker-v0-vs-solver"])
def test_poker_has_no_open_finding(env_id):
    assert audit_env(env_id).findings == ()


def test_an_instance_is_dealt_once_for_all_policies_where_the_environment_can_be_saved():
    class Counted(Riddle):
        dealt = 0

        def deal(self):
            type(self).dealt += 1
            return super().deal()

    class Live(Counted):
        """As one that holds a process: it does not say so, and cannot be copied."""

        def deal(self):
            self.process = threading.Lock()
            return super().deal()

    cards = [audit_env(EnvSpec("test:Riddle", game), **QUICK) for game in (Counted, Live)]
    assert cards[0] == cards[1]
    assert Counted.dealt == QUICK["episodes"] + CANDIDATES
    assert Live.dealt > 20 * QUICK["episodes"]


def test_a_tool_that_prints_what_is_asked_for_is_found():
    class Lookup(Riddle):
        """Shows the letter when it is looked up, and takes the letter as the answer."""

        def __init__(self):
            super().__init__()
            self.turn_limit = self.max_turns = 2
            self.looked = False

        def deal(self):
            self.looked = False
            return super().deal()

        def parse(self, move):
            return move

        def play(self, move):
            if not self.looked:
                self.looked = True
                return Play(f'It is "{self.secret}".')
            return super().play(move)

    card = audit_env(Lookup, **QUICK)
    assert {check.name for check in card.findings} == {"copying earns little"}
    assert card.policies["copier-later"].reward > 0.8 > card.policies["copier"].reward


def test_going_by_the_state_of_a_game_is_no_copying_but_doing_as_well_as_the_expert_is():
    def played(later, expert):
        one = Played(40, 0.0, 0.0, 0.0, 0.0, Spread(1, 1, 1))
        found = dict.fromkeys(("random", "constant", "copier"), one)
        found["copier-later"] = replace(one, reward=later, low=later - 0.1, says="\\boxed{2}")
        return found | {"solver": replace(one, reward=expert, low=expert, best=1.0)}

    nim = audit._copying("my:Nim", played(0.7, 1.0), oracle=False)
    assert not nim.open
    assert nim.seen.endswith("copier-later acts on the state that is shown, as a player does")
    assert audit._copying("my:Nim", played(1.0, 1.0), oracle=False).open
    assert audit._copying("my:Lookup", played(0.7, 1.0), oracle=True).open


def test_copies_of_the_question_are_found_though_they_are_paid_seldom():
    class PaysQuotes(Riddle):
        def hinted(self):
            lie = self.rng.choice("abcdefghij") if self.rng.random() < 0.6 else self.secret
            return f'Maybe it is "{lie}".'

    card = audit_env(PaysQuotes)
    found = next(check for check in card.findings if check.name == "copying earns little")
    assert "copier earned" in found.seen
    assert "guessing earned" in found.seen


def test_copying_may_earn_what_the_audit_says_why(monkeypatch):
    monkeypatch.setattr(audit, "ANSWERS_IN_VIEW", {"test:Quotes": "it is a reading exercise"})

    class Quotes(Riddle):
        def hinted(self):
            return f'It is "{self.secret}".'

    card = audit_env(EnvSpec("test:Quotes-v0", Quotes), **QUICK)
    (check,) = (check for check in card.checks if check.name == "copying earns little")
    assert not check.open
    assert check.seen.endswith("it may: it is a reading exercise")


class Submits(Riddle):
    """Takes back what was said until `<submit/>`, which wins in a share of the episodes by itself."""

    max_turns = 200
    share = 0.5

    def step(self, action):
        if action == "<submit/>":
            return Step("Done.", float(self.rng.random() < self.share), True, False, {})
        return super().step(action)

    def random_move(self):
        return self.actor_rng.choice("abcdefghij")

    def sample_random_action(self):
        return "<submit/>" if self.actor_rng.random() < 0.5 else super().sample_random_action()


class SubmitsSeldom(Submits):
    share = 0.2


@pytest.mark.parametrize(
    ("game", "episodes"),
    [(Submits, 8), (Submits, 20), (Submits, 40), (SubmitsSeldom, 20), (SubmitsSeldom, 40)],
)
def test_an_empty_action_that_is_paid_is_found_whatever_random_play_earns(game, episodes):
    card = audit_env(game, episodes=episodes, instances=40)
    (finding,) = [check for check in card.findings if check.name == "knowing nothing earns little"]
    assert "by saying '<submit/>'" in finding.seen


class Coin(Riddle):
    """Name the side of a coin from its number: one answer of two, and a constant is right in half of all."""

    def deal(self):
        self.secret = self.rng.choice("ab")
        return f"Name the letter. {self.hinted()} Sheet {self.rng.randrange(1000)}."

    def random_move(self):
        return self.actor_rng.choice("ab")

    def instance(self):
        return str(self.rng.random())


@pytest.mark.parametrize("episodes", [8, 16])
def test_a_constant_that_is_often_right_is_found_with_few_episodes_too(episodes):
    card = audit_env(Coin, episodes=episodes, instances=40)
    (finding,) = card.findings
    assert finding.name == "knowing nothing earns little"
    assert "chance=(LEVEL, 'why')" in finding.change
    assert card.policies["constant"].episodes in (16, audit.CONFIRMED)


class DeclaredCoin(Coin):
    chance = (0.5, "the answer is a or b")


def test_what_is_declared_as_chance_with_a_reason_is_no_finding():
    declared = EnvSpec("test:Coin", Coin, max_turns=1, solver="exact", chance=DeclaredCoin.chance)
    for target in (DeclaredCoin, declared):
        card = audit_env(target, episodes=16, instances=40)
        assert card.findings == ()
        (check,) = [check for check in card.checks if check.name == "knowing nothing earns little"]
        assert check.seen.endswith("declared as chance is 0.5: the answer is a or b")
    low = EnvSpec("test:Coin", Coin, max_turns=1, solver="exact", chance=(0.35, "one of three"))
    assert [check.name for check in audit_env(low, **QUICK).findings] == ["knowing nothing earns little"]


@pytest.mark.parametrize("chance", [(0.0, "never"), (1.5, "always"), (0.5, "")])
def test_a_chance_without_a_share_or_reason_is_refused(chance):
    with pytest.raises(BadArgument, match="a level above 0 and at most 1, and its reason"):
        EnvSpec("test:Coin", Coin, chance=chance)


class Hidden(Riddle):
    """Its first observation is always the same."""

    def deal(self):
        super().deal()
        return "Guess."

    instance = TextGame.instance  # it is not defined


def test_a_hidden_state_counts_where_instance_says_it_and_the_finding_says_how():
    class Told(Hidden):
        def instance(self):
            return [self.secret]

    hidden, told = (
        {check.name: check for check in audit_env(one, episodes=2).checks}["seeds differ"]
        for one in (Hidden, Told)
    )
    assert hidden.open
    assert "define instance(self)" in hidden.change
    assert not told.open


class Dots(Env):
    """Its observation is a list of parts, as authors write it."""

    def reset(self, seed=None):
        super().reset(seed=seed)
        self.dots = self.rng.randint(1, 9)
        return [Text("How many?"), Image(b"", alt="o" * self.dots)], {}

    def step(self, action):
        return [Text("So."), Image(b"")], float(action == str(self.dots)), True, False, {}


def test_observations_that_are_lists_of_parts_are_audited():
    assert audit_env(Dots, episodes=2, instances=50).distinct == 9
