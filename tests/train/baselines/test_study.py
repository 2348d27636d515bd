import pytest

from gem.errors import BadArgument, GemError, NoSolver, UnknownEnv
from gem.train.baselines.study import read_study, slug

GUESS = '[[environments]]\n    id = "game:GuessTheNumber-v0-easy"\n'


def test_every_environment_meets_every_variant(study):
    found = study(
        parts=GUESS
        + """
    name = "a: b"
    [[environments]]
    id = "game:Mastermind-v0-easy"
    [[variants]]
    name = "one"
    [[variants]]
    name = "two"
    """
    )
    assert [cell.slug for cell in found.cells] == [
        "a-b--one",
        "a-b--two",
        "game-Mastermind-v0-easy--one",
        "game-Mastermind-v0-easy--two",
    ]


def test_a_variants_settings_go_before_the_environments_and_these_before_the_common(study):
    found = study(
        settings="lr = 1\n    kl = 0.5\n    gamma = 0.7\n    env_kwargs = {min_number = 2}",
        parts=GUESS
        + """
    kl = 0.25
    gamma = 0.8
    env_kwargs = {reward = "sparse", max_turns = 5}
    [[variants]]
    name = "own"
    gamma = 0.9
    env_kwargs = {max_turns = 6}
    """,
    )
    config = found.config(found.cells[0])
    assert (config.lr, config.kl, config.gamma) == (1.0, 0.25, 0.9)
    assert config.env_kwargs == {"min_number": 2, "reward": "sparse", "max_turns": 6}


def test_defaults_fit_the_variants_algorithm(study):
    found = study(parts=GUESS + '[[variants]]\n    name = "grpo"\n    algorithm = "grpo"')
    assert found.config(found.cells[0]).gamma == 1.0


def test_a_search_tries_every_combination_everywhere(study):
    found = study(
        parts=GUESS + '[[variants]]\n    name = "a"\n    [search]\n    seeds = [9]\n'
        "    grid = {lr = [1, 0.1], kl = [0, 0.5]}"
    )
    tried = [found.config(found.cells[0], point) for point in found.search.points]
    assert [(config.lr, config.kl) for config in tried] == [(1, 0), (1, 0.5), (0.1, 0), (0.1, 0.5)]


def test_policies_are_transferred_to_ids_and_to_environments_of_the_study(study):
    found = study(
        head='title = "t"\n    seeds = [1]\n    transfer = ["other", "game:GuessTheNumber-v0-hard"]',
        parts=GUESS
        + '    name = "first"\n'
        + GUESS
        + """
    name = "other"
    env_kwargs = {max_turns = 9}
    [[variants]]
    name = "a"
    """,
    )
    first, other = found.cells
    moved = found.transfers(first, found.config(first))
    assert {name: config.env for name, config in moved.items()} == {
        "other": "game:GuessTheNumber-v0-easy",
        "game:GuessTheNumber-v0-hard": "game:GuessTheNumber-v0-hard",
    }
    assert moved["other"].env_kwargs == {"max_turns": 9}
    assert list(found.transfers(other, found.config(other))) == ["game:GuessTheNumber-v0-hard"]


HEADED = 'title = "t"\n    seeds = [1]'
VARIANT = '[[variants]]\n    name = "a"\n'
WRONG = [
    ({"head": "seeds = [1]"}, "no title"),
    ({"head": 'title = "t"'}, "no seeds"),
    ({"head": 'title = "t"\n    seeds = []'}, "no seeds"),
    ({"head": 'title = "t"\n    seeds = [1, 1]'}, r"seeds is \[1, 1\]"),
    ({"head": 'title = "t"\n    seeds = [-1]'}, r"seeds is \[-1\]"),
    ({"head": 'title = "t"\n    seeds = [true]'}, "expected `int`"),
    ({"head": 'title = "a | b"\n    seeds = [1]'}, "title is"),
    ({"head": HEADED + "\n    sedes = [2]"}, "sedes.*Did you mean 'seeds'"),
    ({"head": HEADED + "\n    cpu_s = 0"}, "cpu_s of the study is 0"),
    ({"head": HEADED + '\n    score = "sucess"'}, "accepted: auto, success, return, turns.*'success'"),
    ({"head": HEADED + '\n    transfer = ["game:Nothing"]'}, "game:Nothing"),
    ({"settings": "lrr = 1"}, r"\[settings\] has 'lrr'.*Did you mean 'lr'"),
    ({"settings": 'lr = "a"'}, "lr is 'a'; accepted: a number"),
    ({"settings": "lr = nan"}, r"\[settings\]: lr is nan; accepted: 0 or more"),
    ({"settings": "curriculum = []"}, "one environment"),
    ({"settings": "seed = 3"}, "sets seed; a study has `seeds`"),
    ({"settings": 'out = "x"'}, "sets out"),
    ({"settings": 'opponent = ["random"]'}, "sets opponent; a study measures policies that play every seat"),
    ({"settings": 'title = "x"'}, "title, which belongs to the study: put it above"),
    ({"settings": "batch = 0"}, r"\[settings\]: batch is 0; accepted: 1 or more"),
    ({"settings": "lr = 0.0\ncritic_lr = 0.1"}, "guess, rebn: critic_lr is 0.1"),
    ({"settings": "env_kwargs = {a = 2020-01-01}"}, "env_kwargs is "),
    ({"settings": "env_kwargs = {a = nan}"}, "accepted: values that JSON has too"),
    ({"settings": "env_kwargs = {turnz = 1}"}, "turnz"),
    ({"settings": 'wrappers = ["nope"]'}, "nope"),
    ({"settings": 'algorithm = "rebm"'}, "accepted: .*rebn"),
    ({"parts": VARIANT}, "no environments"),
    ({"parts": GUESS}, "no variants"),
    ({"parts": '[[environments]]\n    name = "a"\n' + VARIANT}, "id None"),
    ({"parts": GUESS + GUESS + VARIANT}, "twice"),
    ({"parts": GUESS + VARIANT + VARIANT}, "twice"),
    ({"parts": GUESS + '[[variants]]\n    algorithm = "rebn"'}, "name None"),
    ({"parts": GUESS + '[[variants]]\n    name = "../.."'}, "name is"),
    ({"parts": GUESS + VARIANT + '    env = "x"'}, "sets env; environments are"),
    ({"parts": GUESS + VARIANT + "[search]\n    grid = {lr = [1, 2]}"}, "seeds of .search. is"),
    ({"parts": GUESS + VARIANT + "[search]\n    seeds = [2]\n    grid = {lr = [1]}"}, "1 points"),
    ({"parts": GUESS + VARIANT + "[search]\n    seeds = [2]\n    grid = {lr = [1, 1]}"}, "a point twice"),
    ({"parts": GUESS + VARIANT + "[search]\n    seeds = [2]\n    grid = {lr = 1}"}, "lists of values"),
    (
        {"parts": GUESS + VARIANT + "[search]\n    seeds = [1]\n    grid = {lr = [1, 2]}"},
        "seed 1 is in the study",
    ),
    (
        {"parts": GUESS + VARIANT + "    lr = 1\n[search]\n    seeds = [2]\n    grid = {lr = [1, 2]}"},
        "leave one",
    ),
    (
        {
            "parts": '[[environments]]\n    id = "rg:rush_hour"\n' + VARIANT,
            "settings": 'warmup_by = "solver"',
        },
        "rg:rush_hour has none",
    ),
    ({"parts": GUESS + VARIANT + "[serch]\n    seeds = [2]"}, "Did you mean 'search'"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_wrong_is_said_before_anything_runs(study, given, said):
    with pytest.raises(GemError, match=rf"mine\.toml: .*{said}") as refused:
        study(**{"head": HEADED, **given})
    assert isinstance(refused.value, BadArgument | UnknownEnv | NoSolver)


def test_a_file_that_is_no_study_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text("title = ")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    for name, said in (
        ("a.toml", "is not TOML"),
        ("b.toml", "is not TOML"),
        ("c.toml", "cannot be read"),
        ("d", "ends in"),
    ):
        with pytest.raises(BadArgument, match=said):
            read_study(tmp_path / name)


@pytest.mark.parametrize("name", ["a--b", "a b", "a/b", "..a..", "ümlaut", "a  -  b"])
def test_a_slug_is_a_plain_file_name_without_two_dashes(name):
    assert "--" not in slug(name)
    assert "/" not in slug(name)
    assert slug(name)[0] not in ".-"
