"""The contract suite over every registered id whose package is installed."""

import pytest
from representatives import first_of_each

import gem
from gem.errors import MissingData, MissingExtra
from gem.registry import FAMILIES
from gem.sandbox import SandboxFailed, default_sandbox
from gem.testing import check_env
from gem.testing.transcripts import hash_seed_dependent, host_dependent, transcript

FOREIGN = {prefix for prefix, family in FAMILIES.items() if family.is_here()}
"""Families over another package or world: many ids, some of them slow to make."""

TERMINAL_IDS = gem.ids("terminal")
DATABASE_IDS = gem.ids("db")
OWN_IDS = [i for i in gem.ids() if i.partition(":")[0] not in (*FAMILIES, "terminal", "db", "mcp")]
EMBEDDED_IDS = [i for i in OWN_IDS if gem.spec(i).data is None and gem.spec(i).deterministic]
"""Those that need no data set. The others are tried on small files by tests/envs/test_data_ids.py."""

FOREIGN_IDS = [i for i in gem.ids() if i.partition(":")[0] in FOREIGN and not i.startswith(("ta:", "data:"))]
"""Without TextArena's 238, some of which take seconds to begin: tests/envs/bridges/ plays them. The family
data: needs a file of one's own: tests/envs/data/ has one."""

SAMPLE = [
    i
    for i in gem.ids()
    if i
    in (
        *("agentdojo:slack", "babyai:GoToLocal-v0", "minigrid:DoorKey-8x8-v0"),
        *("bfcl:multi_turn_miss_func", "bfcl:multiple", "miniwob:login-user"),
        *("rg:chain_sum", "rg:isomorphic_strings", "rg:pool_matrix", "rg:rush_hour"),
        *("ta:GuessTheNumber-v0", "ta:Hangman-v0", "ta:KuhnPoker-v0", "ta:LiarsDice-v0", "ta:TicTacToe-v0"),
        *("tau2:airline", "tau2:telecom-scripted", "tau2:telecom-solo", "textworld:coin_collector"),
    )
    and i.partition(":")[0] in FOREIGN
]

OF_WORLDS = [i for i in SAMPLE if FAMILIES[i.partition(":")[0]].world]

pytestmark = [  # of what other packages do in their own files
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::SyntaxWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.mark.parametrize(
    "env_id",
    [
        *first_of_each(OWN_IDS + [i for i in SAMPLE if i not in OF_WORLDS], mark=pytest.mark.slow),
        *(pytest.param(i, marks=pytest.mark.system) for i in OF_WORLDS),
    ],
)
def test_every_rule_holds(env_id, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # a data set is here, or the id is skipped
    try:
        report = check_env(env_id)
    except MissingData as absent:
        pytest.skip(str(absent))
    report.raise_if_broken()


THINKING = "<thinking>\n{}\nor <submit/>, <answer>2</answer>, [up], \\boxed{{done}}?\n</thinking>\n"


@pytest.mark.parametrize(
    "env_id",
    [
        *first_of_each(EMBEDDED_IDS + [i for i in SAMPLE if i not in OF_WORLDS], mark=pytest.mark.slow),
        *(pytest.param(i, marks=pytest.mark.system) for i in OF_WORLDS),
    ],
)
def test_thinking_in_front_of_an_action_changes_nothing(env_id):
    def think(env):
        action = next(actions)
        if isinstance(action, str):
            return THINKING.format(draft) + action
        return {seat: THINKING.format(draft) + text for seat, text in action.items()}

    with gem.make(env_id) as env:
        draft = str(transcript(env, 1, 1)[1][0])
        plain = transcript(env, 0, 3)
        actions = iter([turn[0] for turn in plain[1:]])
        thought = transcript(env, 0, len(plain) - 1, think)
        assert [turn[1:] for turn in thought] == [turn[1:] for turn in plain]


@pytest.mark.parametrize(
    "env_id",
    [pytest.param(i, marks=[pytest.mark.slow] * (i != "terminal:GitMerge-v0-easy")) for i in TERMINAL_IDS],
)
def test_every_rule_holds_at_a_terminal(env_id):
    try:
        gem.make(env_id).close()
    except (SandboxFailed, MissingExtra) as absent:
        pytest.skip(str(absent))
    check_env(env_id, seeds=[0]).raise_if_broken()


@pytest.mark.system
@pytest.mark.parametrize(
    "env_id", [pytest.param(i, marks=[pytest.mark.slow] * ("Library" not in i)) for i in DATABASE_IDS]
)
def test_every_rule_holds_at_a_database(env_id):
    try:
        default_sandbox()
    except SandboxFailed as absent:
        pytest.skip(str(absent))
    everything = "Library" in env_id  # on every host and under two hash seeds: the code is the same for all
    check_env(env_id, seeds=[0], turns=4, hosts=everything, hash_seed=everything).raise_if_broken()


@pytest.mark.slow
@pytest.mark.parametrize("env_id", gem.ids("mcp"))
def test_every_rule_holds_at_an_mcp_server(env_id, postgres_dsn, monkeypatch):
    pytest.importorskip("mcp", reason="needs mcp: pip install 'gem-gym[mcp]'")
    monkeypatch.setenv("GEM_POSTGRES_DSN", postgres_dsn)
    check_env(env_id, seeds=[0], turns=3).raise_if_broken()


@pytest.mark.parametrize(
    "env_id",
    [
        pytest.param(
            i,
            marks=[pytest.mark.slow]
            if FAMILIES[i.partition(":")[0]].world and i not in SAMPLE
            else [pytest.mark.system] * (i not in SAMPLE or i in OF_WORLDS),
        )
        for i in FOREIGN_IDS
    ],
)
def test_foreign_worlds_can_be_won_and_leave_the_global_generators_alone(env_id):
    check_env(env_id, seeds=[0], rules=["global-rng", "solver"]).raise_if_broken()


@pytest.mark.slow
@pytest.mark.parametrize("env_id", FOREIGN_IDS)
def test_every_rule_holds_in_foreign_worlds(env_id):
    check_env(env_id, seeds=[1, 2]).raise_if_broken()


@pytest.mark.system
def test_own_transcripts_depend_on_no_hash_seed():
    assert hash_seed_dependent([gem.spec(env_id) for env_id in EMBEDDED_IDS], [0]) == []


@pytest.mark.system
def test_own_transcripts_are_the_same_on_every_host():
    assert host_dependent([gem.spec(env_id) for env_id in EMBEDDED_IDS], [0]) == []


@pytest.mark.slow
def test_foreign_transcripts_depend_on_no_hash_seed():
    assert hash_seed_dependent([gem.spec(env_id) for env_id in FOREIGN_IDS], [0, 1]) == []


@pytest.mark.slow
def test_foreign_transcripts_are_the_same_on_every_host():
    """All ids of the fetched worlds, and some others; nobody plays TextArena's games but by name."""
    tried = [i for i in FOREIGN_IDS if i in SAMPLE or FAMILIES[i.partition(":")[0]].world]
    assert host_dependent([gem.spec(env_id) for env_id in tried], [0]) == []
