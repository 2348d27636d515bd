import ast
import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

import gem
from gem.envs.bridges.specs import RG_NAMES, RG_UNSOLVED
from gem.errors import BadArgument, MissingExtra, NoSolver, NoVerdict, UnknownArgument, UnknownEnv

pytest.importorskip("reasoning_gym")
pytestmark = [  # of what the package does in its own files
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import DATASETS

from gem.envs.bridges import reasoning_gym as bridge
from gem.envs.bridges.reasoning_gym_screens import SCREENS


def start(name, seed=0, **config):
    env = gem.make(f"rg:{name}", **config)
    env.reset(seed=seed)
    return env


def answer(env, text):
    return env.fork().step(f"\\boxed{{{text}}}")


# -- the family


def test_listing_the_family_imports_nothing():
    code = (
        "import gem, sys; "
        "print(len(gem.ids('rg')), [n for n in ('reasoning_gym', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "105 []"


def test_the_names_are_those_of_the_package():
    assert sorted([*RG_NAMES, "composite"]) == bridge.names()
    assert gem.spec("rg:composite").id == "rg:composite"  # asked of the package: it needs a configuration


def test_a_name_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(UnknownEnv, match="rg:chain_sum"):
        gem.make("rg:chian_sum")
    with pytest.raises(UnknownEnv, match="chain_sum"):
        bridge.ReasoningGymEnv("chian_sum")


def test_without_the_package_making_one_names_the_extra_and_a_typo_is_still_a_typo(monkeypatch):
    monkeypatch.delitem(sys.modules, "gem.envs.bridges.reasoning_gym")
    for module in [name for name in sys.modules if name.partition(".")[0] == "reasoning_gym"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    monkeypatch.setitem(sys.modules, "reasoning_gym.dataset", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[rg\]"):
        gem.make("rg:chain_sum")
    with pytest.raises(UnknownEnv, match="rg:chain_sum"):
        gem.make("rg:chian_sum")


# -- configuration


def test_keywords_reach_the_data_set():
    env = start("chain_sum", min_terms=9, max_terms=9)
    assert len([c for c in env._entry["metadata"]["expression"] if c in "+-"]) == 8


@pytest.mark.parametrize(
    ("kwargs", "error", "said"),
    [
        ({"max_term": 3}, UnknownArgument, "'max_terms'.*It takes: size, seed, min_terms, "),
        ({"min_terms": 9, "max_terms": 2}, BadArgument, "refuses"),
        ({"min_terms": "many"}, BadArgument, "refuses"),
        ({"size": 0}, BadArgument, "1 or more"),
        ({"size": "all"}, BadArgument, "a whole number"),
    ],
)
def test_wrong_configuration_is_refused(kwargs, error, said):
    with pytest.raises(error, match=said):
        gem.make("rg:chain_sum", **kwargs)


def test_a_data_set_that_needs_a_configuration_says_so():
    with pytest.raises(BadArgument, match="at least one dataset"):
        gem.make("rg:composite")


def questions(name, episodes=60, **kwargs):
    env = bridge.ReasoningGymEnv(name, **kwargs)
    return {env.reset(seed=s).obs for s in range(episodes)}


def test_size_bounds_the_questions_and_seed_chooses_them():
    few = questions("chain_sum", size=5)
    assert len(few) == 5
    assert few == questions("chain_sum", size=5, episodes=90)
    assert few.isdisjoint(questions("chain_sum", size=5, seed=7))


def test_neighbouring_seeds_share_no_question():
    # the package's own: item i + 1 of seed s is item i of seed s + 1
    assert questions("chain_sum", size=40, seed=1).isdisjoint(questions("chain_sum", size=40, seed=2))


# -- an episode


def test_one_question_one_answer():
    env = gem.make("rg:chain_sum")
    obs, info = env.reset(seed=0)
    assert obs.endswith(f"\n\n{bridge.ANSWER_FORM}")
    assert info == {}
    reference = env._entry["answer"]
    obs, reward, terminated, truncated, info = env.step(f"It is \\boxed{{{reference}}}.")
    assert (obs, reward, terminated, truncated) == ("Your answer scores 1 of 1.", 1.0, True, False)
    assert info == {"success": True, "correct": True, "parsed_action": reference, "stop": "solved"}


def test_tags_are_read_where_there_is_no_box():
    env = start("chain_sum")
    reference = env._entry["answer"]
    assert env.fork().step(f"<answer>{reference}</answer>").reward == 1.0
    assert env.fork().step(f"<answer>0.5</answer> \\boxed{{{reference}}}").reward == 1.0


def test_part_of_the_score_is_no_success():
    env = start("sentence_reordering")
    words = env._entry["answer"].split()
    step = answer(env, " ".join([words[1], words[0], *words[2:]]))
    assert 0 < step.reward < 1
    assert (step.info["success"], step.info["correct"], step.info["stop"]) == (False, False, "failed")


def test_an_unreadable_answer_ends_the_episode_with_nothing():
    step = start("chain_sum").step("I do not know")
    assert (step.reward, step.terminated, step.info["stop"]) == (0.0, True, "unreadable")


def test_braces_that_a_box_would_lose_travel_in_tags():
    assert bridge._answer('{"a": 1}') == '\\boxed{{"a": 1}}'
    assert bridge._answer("}") == "<answer>}</answer>"


def test_a_random_answer_is_another_questions():
    env = start("knights_knaves")
    assert env.fork().step(env.sample_random_action()).info["stop"] in ("failed", "solved")
    assert start("rush_hour").step(start("rush_hour").sample_random_action()).reward < 1


# -- the tables


@pytest.mark.parametrize("name", RG_UNSOLVED)
def test_unsolved_sets_give_no_reference(name):
    env = start(name)
    assert env._entry["answer"] is None
    with pytest.raises(NoSolver):
        env.solve()


@pytest.mark.parametrize("name", sorted(bridge.EXAMPLES))
def test_a_right_answer_stands_in_the_metadata_of_sets_that_have_several(name):
    for seed in range(5):
        env = start(name, seed)
        assert env._entry["answer"] is None
        assert env.step(env.solve()).reward == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", RG_NAMES)
def test_every_reference_scores_in_full(name):
    """The table of solvers, measured: 20 questions, or as many as 6 s give."""
    env, began = gem.make(f"rg:{name}"), monotonic()
    for seed in range(20):
        env.reset(seed=seed)
        if name not in RG_UNSOLVED:
            assert env.fork().step(env.solve()).reward == 1.0, env._entry
        if monotonic() - began > 6:
            break


@pytest.mark.system
@pytest.mark.parametrize("name", sorted(bridge.RESEEDABLE))
def test_an_instance_given_a_seed_makes_what_a_new_one_makes(name):
    for seed in (3, 4):
        with bridge._foreign(seed):
            reused = bridge._generator(name, {})
            reused.seed = seed
            item = reused[0]
        with bridge._foreign(seed):
            assert item == bridge._build(name, {"seed": seed})[0]


@pytest.mark.parametrize("name", ["acre", "gsm_symbolic", "list_functions"])
def test_what_draws_in_its_constructor_is_built_anew(name):
    """Otherwise every episode would have the first instance's task."""
    assert name not in bridge.RESEEDABLE
    assert len(questions(name, episodes=12)) > 1


UNORDERED = ["isomorphic_strings", "ransom_note", "polynomial_multiplication", "word_ladder", "knight_swap"]


@pytest.mark.slow
def test_repairs_are_needed_and_hold():
    code = (
        "import warnings; warnings.simplefilter('ignore'); import gem, sys; "
        "from gem.envs import reasoning_gym as b; b.REPAIRS = {} if sys.argv[1] == 'off' else b.REPAIRS; "
        f"envs = [gem.make('rg:' + n) for n in {UNORDERED}]; "
        "print([(e.env_id, e.reset(seed=s).obs, e.solve()) for e in envs for s in range(4)])"
    )

    def said(repairs, hash_seed):
        done = subprocess.run(
            [sys.executable, "-c", code, repairs],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return ast.literal_eval(done.stdout)

    assert said("on", "1") == said("on", "2")
    changed = {one[0] for one, other in zip(said("off", "1"), said("off", "2"), strict=True) if one != other}
    assert changed == {f"rg:{name}" for name in UNORDERED}


def test_a_failed_item_is_drawn_again():
    env = gem.make("rg:base_conversion", size=2000)
    assert all(env._item(index)["answer"] for index in range(400))


# -- hostile answers


@pytest.mark.parametrize(
    "name",
    [
        *("binary_matrix", "n_queens", "spiral_matrix", "string_insertion", "countdown", "puzzle24"),
        *("intermediate_integration", "polynomial_multiplication", "simple_integration"),
    ],
)
@pytest.mark.parametrize("call", ["open('ran', 'w')", "[open('ran', 'w')]", "x + open('ran', 'w').fileno()"])
def test_no_answer_is_run(name, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = answer(start(name), call)
    assert step.reward == 0.0
    assert step.info["why"] == "the answer is wrong, or not in the form asked for"
    assert not Path("ran").exists()


def test_the_scorers_would_run_it(tmp_path, monkeypatch):
    """The screens are needed: without them the package does run answers."""
    monkeypatch.chdir(tmp_path)
    for name in ("spiral_matrix", "countdown"):
        env = start(name)
        env._generator.score_answer("[open('ran', 'w').close()]", env._entry)
        assert Path("ran").exists(), name
        Path("ran").unlink()


@pytest.mark.parametrize(
    ("name", "hostile"),
    [
        ("polynomial_multiplication", "9**9**9**9"),
        ("simple_integration", "((x-x+9)**99)**99)**99"),
        ("intermediate_integration", "2**(x-x+999999999)"),
        ("simple_integration", "1e300**1e300"),
        ("simple_integration", "sin(cos(" * 30 + "x" + "))" * 30),
        ("intermediate_integration", "(1+x)**30*" * 20 + "x"),
        ("countdown", "9**9**9**9"),
        ("countdown", "99999999!"),
        ("rubiks_cube", "U999999999"),
        ("coin_flip", "1e999999999"),
        ("coin_flip", "1e9_9_9_9_9_9"),
        ("propositional_logic", "∨".join("abcdefghijklmnopqrstuvwxyz"[i] + "a" for i in range(26))),
        ("propositional_logic", "PQ" * 50),
        ("propositional_logic", "P(Q)"),
        ("codeio", '{"a":' * 400 + "1" + "}" * 400),
        ("chain_sum", "1" * 5000),
    ],
)
def test_an_answer_that_would_keep_the_scorer_busy_is_refused(name, hostile):
    env = start(name)
    if name == "codeio":
        env._entry["answer"] = '{"a": "' + "x" * 60 + '"}'
    assert answer(env, hostile).info["why"].startswith("the answer is ")


@pytest.mark.parametrize("name", ["simple_integration", "intermediate_integration"])
@pytest.mark.parametrize(
    "behind",
    [" + (C-1)*({})", " + 1e-12*{}", " + (sin(x)**2 + cos(x)**2 - 1)*{}"],
    ids=["C", "little", "zero"],
)
def test_a_right_integral_and_many_functions_are_refused_before_the_scorer_is_busy(name, behind):
    env = start(name)
    variable = env._entry["metadata"]["variable"]
    many = "*".join(f"sin(x+{i})" for i in range(1, 9))
    hostile = env._entry["answer"] + behind.format(many).replace("x", variable)
    assert answer(env, hostile).info["why"].startswith("the answer is wrong")


@pytest.mark.parametrize(
    ("name", "worthless"),
    [
        ("coin_flip", "0"),
        ("complex_arithmetic", "nan"),
        ("complex_arithmetic", "nan+nanj"),
        ("game_of_life_halting", "perhaps"),
    ],
)
def test_what_the_scorer_pays_for_nothing_earns_nothing(name, worthless):
    env = gem.make(f"rg:{name}")
    for seed in range(6):
        env.reset(seed=seed)
        assert answer(env, worthless).reward < 1


def test_a_list_of_nan_is_not_sorted():
    env = start("number_sorting")
    count = env._entry["answer"].count(",")
    assert answer(env, "[" + "NaN, " * count + "NaN]").reward == 0.0


@pytest.mark.parametrize(
    ("name", "right"),
    [
        # answers other than the reference that deserve what the scorer gives them
        (
            "polynomial_multiplication",
            lambda ref, meta: "+".join(f"({t})" for t in reversed(ref.split(" + "))),
        ),
        ("simple_integration", lambda ref, meta: "C + " + ref.removesuffix(" + C")),
        ("intermediate_integration", lambda ref, meta: "7 + " + ref),
        ("simple_integration", lambda ref, meta: ref.replace("+ C", "+ K")),
        ("simple_integration", lambda ref, meta: ref.replace("+ C", "+ constant")),
        ("intermediate_integration", lambda ref, meta: ref.replace("+ C", "- c")),
        ("intermediate_integration", lambda ref, meta: ref.replace("+ C", "+ 2*const")),
        ("countdown", lambda ref, meta: f"({ref})"),
        ("puzzle24", lambda ref, meta: f"({ref})"),
        ("coin_flip", lambda ref, meta: f"{float(ref):.6f}"),
        ("codeio", lambda ref, meta: f" {ref}  "),
        ("complex_arithmetic", lambda ref, meta: ref.replace(" ", "")),
        ("number_sorting", lambda ref, meta: ref.replace(" ", "")),
        ("n_queens", lambda ref, meta: meta["valid_answers"][-1]),
    ],
)
def test_right_answers_in_another_form_pass_the_screen(name, right):
    env = gem.make(f"rg:{name}")
    for seed in range(5):
        env.reset(seed=seed)
        assert answer(env, right(env._entry["answer"], env._entry["metadata"])).reward == 1.0


@pytest.mark.parametrize("answered", ["3*8*3/3", "3*8/(1*1)", "7*4-7/3-1", "(8/(3-8/3))", "3*8*", "9" * 4000])
def test_24_takes_the_numbers_given_and_nothing_but_24(answered):
    env = start("puzzle24")
    env._entry = {**env._entry, "answer": "7*4 - 3 - 1", "metadata": {"numbers": [7, 4, 3, 1]}}
    assert answer(env, answered).reward == 0.0
    env = start("puzzle24")
    env._entry = {**env._entry, "answer": "8/(3 - 8/3)"}
    assert answer(env, "8 / (3 - (8 / 3))").reward == 1.0


def test_lists_still_earn_their_part():
    env = start("spiral_matrix")
    assert answer(env, "[" + env._entry["answer"].replace(" ", ", ") + "]").reward == 0.1


@pytest.mark.parametrize("premise", ["(P ∨ Q)", "P", "¬P", "((P → Q) ∧ ¬(Q ↔ P))", "(P∧Q)"])
def test_logical_formulas_pass(premise):
    assert SCREENS["propositional_logic"](premise, {})


def test_every_screen_belongs_to_a_data_set():
    assert set(SCREENS) | bridge.RESEEDABLE | set(bridge.REPAIRS) | set(bridge.BLANK) <= set(DATASETS)


# -- scorers that fail


def test_a_scorer_that_chokes_on_an_answer_gives_nothing_and_says_why():
    step = answer(start("prime_factorization"), "NaN")
    assert (step.reward, step.terminated, step.info["success"]) == (0.0, True, False)
    assert "ValueError" in step.info["why"]


@dataclasses.dataclass
class Config:
    seed: int | None = None
    size: int = 1


class Odd(ProceduralDataset):
    """A data set whose scorer does what `outcome` says."""

    def __init__(self, config):
        super().__init__(config, config.seed, config.size)

    def __getitem__(self, index):
        return {"question": "?", "answer": "42", "metadata": {}}

    def score_answer(self, answer, entry):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture
def odd(monkeypatch):
    monkeypatch.setitem(DATASETS, "odd", (Odd, Config))
    monkeypatch.setitem(SCREENS, "odd", lambda answer, entry: True)

    def make(outcome):
        monkeypatch.setattr(Odd, "outcome", outcome, raising=False)
        return start("odd")

    return make


def test_a_scorer_that_fails_on_its_own_reference_gives_no_verdict(odd):
    with pytest.raises(NoVerdict, match="its own reference answer"):
        answer(odd(KeyError("grid")), "7")


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_earns_nothing(odd, score):
    step = answer(odd(score), "7")
    assert step.reward == 0.0
    assert "returned" in step.info["why"]


def test_a_newer_data_set_is_found_by_asking_the_package(odd):
    assert answer(odd(1), "7").info["success"] is True


@pytest.mark.parametrize(
    ("name", "found", "marked"),
    [
        ("syllogism", r"(.+)", r"\\text{\1}"),
        ("dice", r"(\d+)/(\d+)", r"\\frac{\1}{\2}"),
        ("prime_factorization", "×", r"\\times"),
        ("graph_color", r"[{}]", r"\\\g<0>"),
        ("advanced_geometry", "°", r"^\\circ"),
    ],
)
def test_the_markup_of_a_box_does_not_decide(name, found, marked):
    env = gem.make(f"rg:{name}")
    for seed in range(20):
        env.reset(seed=seed)
        right = env.solve().removeprefix("\\boxed{").removesuffix("}")
        if (text := re.sub(f"^{found}$" if "(" in found else found, marked, right)) != right:
            assert answer(env, text).reward == 1.0, text
            break
    else:
        pytest.fail("no answer has that form")
    assert answer(env, f"\\cancel{{{right}}}").reward < 1.0


MATRICES = (
    "\\begin{bmatrix} ROWS \\end{bmatrix}",
    "$$\\begin{pmatrix} ROWS \\\\ \\end{pmatrix}$$",
    "\\left[\\begin{array}{CCC} ROWS \\end{array}\\right]",
    "ROWS",
)


@pytest.mark.parametrize("name", ["simple_integration", "intermediate_integration"])
def test_a_constant_is_no_variable(name):
    env = gem.make(f"rg:{name}")
    env.reset(seed=0)
    right, variable = env.answer, env._entry["metadata"]["variable"]
    assert answer(env, right).reward == 1.0
    for wrong in (f"{right} + c*{variable}", right.replace(variable, "k"), f"c*({right})"):
        assert answer(env, wrong).reward == 0.0


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("jugs", "```json\n{}\n```"),
        ("group_anagrams", "```\n{}\n```"),
        ("codeio", "```json\n{}\n```"),
        ("game_of_life", "```\n{}\n```"),
        *((name, "```\n{}\n```") for name in ("n_queens", "rotate_matrix", "tower_of_hanoi")),
        *((name, form) for name in ("sudoku", "rotate_matrix", "pool_matrix") for form in MATRICES),
    ],
)
def test_a_fence_or_a_matrix_does_not_spoil_the_answer(name, form):
    env = gem.make(f"rg:{name}")
    env.reset(seed=0)
    cells = [line.split() for line in env.answer.splitlines()]
    rows = " \\\\ ".join(" & ".join(line) for line in cells)
    text = form.replace("{}", env.answer).replace("ROWS", rows).replace("CCC", "c" * len(cells[0]))
    assert answer(env, text).reward == 1.0, text
    last = [cell for line in cells for cell in line][-1]
    wrong = text[: text.rindex(last)] + text[text.rindex(last) + len(last) :]
    assert answer(env, wrong).reward < 1.0, wrong


@pytest.mark.parametrize(
    "form",
    [
        *("W\n```\nR\n```", "```\nR\n```\nW", "```\nR\n```\n```\nW\n```", "```R\nW\n```"),
        "\\begin{bmatrix}W\\end{bmatrix}R",
        "\\begin{bmatrix}{W}\\end{bmatrix}R",
        "\\begin{array}{W}R\\end{array}",
        "\\begin{bmatrix}R\\end{bmatrix} \\begin{bmatrix}W\\end{bmatrix}",
        "W \\\\ R",
        "R \\\\ W",
        "W \\\\[R] W",
    ],
)
@pytest.mark.parametrize("name", ["codeio", "rotate_matrix", "basic_arithmetic"])
def test_of_two_answers_none_is_chosen(name, form):
    env = gem.make(f"rg:{name}")
    env.reset(seed=1)
    other = env.answer
    env.reset(seed=0)
    assert answer(env, form.replace("R", env.answer).replace("W", other)).reward < 1.0


@pytest.mark.parametrize("spoil", ["-{}", "{}^T", "2 {}", "{} or its transpose"])
def test_a_matrix_with_something_beside_it_is_not_the_matrix(spoil):
    env = start("rotate_matrix")
    rows = [row.split() for row in env._entry["answer"].splitlines()]
    matrix = "\\begin{pmatrix}" + r" \\ ".join(" & ".join(row) for row in rows) + "\\end{pmatrix}"
    twin = env.fork()
    assert answer(env, matrix).reward == 1.0
    assert answer(twin, spoil.format(matrix)).reward < 1.0


@pytest.mark.parametrize("name", ["rotate_matrix", "survo", "simple_integration"])
@pytest.mark.parametrize("text", ["\\begin{cases} x \\end{cases}", "\\begin", "\\end{pmatrix}", "\\\\", "$"])
def test_latex_that_is_no_matrix_is_only_a_wrong_answer(name, text):
    assert answer(start(name), text).reward < 1.0
