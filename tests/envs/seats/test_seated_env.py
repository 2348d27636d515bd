import pickle

import pytest

import gem
from gem.errors import BadAction, BadArgument, ContractBroken, EnvClosed, EpisodeOver, NoSolver, ResetNeeded
from gem.seats import MultiStart, MultiStep, SeatedEnv, SeatSelector
from gem.testing import check_env

LEFT = {"a": "x", "b": "y"}


class Both(SeatedEnv):
    """Two agents at once; a test says what each step returns."""

    seats = ("a", "b")

    def reset(self, seed=None):
        super().reset(seed)
        self.number = self.rng.randrange(10**6)
        return MultiStart({"b": "go", "a": "go"}, {"a": {}, "b": {}})

    def step(self, actions):
        self.seen = actions
        return self.result


def result(obs=("a", "b"), live=("a", "b"), ended=(), **changes):
    step = MultiStep(
        dict.fromkeys(obs, "obs"),
        dict.fromkeys(live, 0.0),
        {agent: agent in ended for agent in live},
        dict.fromkeys(live, False),
        {agent: {} for agent in live},
    )
    return step._replace(**changes)


def begun(step=None):
    env = Both()
    env.reset(seed=1)
    env.result = step or result()
    return env


def test_actions_come_in_the_order_of_the_seats_whoever_wrote_them_first():
    env = begun()
    env.step({"b": "y", "a": "x"})
    assert list(env.seen.items()) == [("a", "x"), ("b", "y")]


@pytest.mark.parametrize("actions", ["x", None, {}, {"a": "x"}, {**LEFT, "c": "z"}, {"a": "x", "b": 1}])
def test_only_texts_of_those_whose_turn_it_is_are_taken(actions):
    env = begun()
    with pytest.raises(BadAction):
        env.step(actions)
    assert env.acting == ("a", "b")
    env.step(LEFT)


def test_who_has_ended_is_out_and_the_rest_play_on():
    env = begun(result(ended=["a"]))
    step = env.step(LEFT)
    assert (step.done, env.live, env.acting) == (False, ("b",), ("b",))
    env.result = result(live=["b"], obs=["b"], ended=["b"])
    assert env.step({"b": "y"}).done
    with pytest.raises(EpisodeOver):
        env.step({})
    env.close()
    with pytest.raises(EnvClosed):
        env.reset()


def test_nobody_draws_before_reset():
    env = gem.make("multi:ConnectFour-v0")
    for call in (lambda: env.random_action(env.seats[0]), lambda: env.seed_actor(1, env.seats[0])):
        with pytest.raises(ResetNeeded):
            call()


def test_a_step_before_reset_is_refused():
    with pytest.raises(ResetNeeded):
        Both().step(LEFT)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (result(obs=[]), "nobody to act"),
        (result(obs=["a", "stranger"]), "stranger"),
        (result(rewards={"a": 0.0}), "rewards"),
        (result(infos={}), "infos"),
        (result(terminations={"a": False, "b": False, "c": False}), "terminations"),
    ],
)
def test_a_step_that_forgets_somebody_is_the_environments_error(step, match):
    with pytest.raises(ContractBroken, match=match):
        begun(step).step(LEFT)


def test_a_fork_with_a_seed_has_actors_of_its_own():
    env = gem.make("multi:KuhnPoker-v0")
    env.reset(seed=3)
    env.actor_rng_of("player_0").random()
    twins = [env.fork(), env.fork(seed=1), env.fork(seed=1), env.fork(seed=2)]
    same, one, again, other = (twin.actor_rng_of("player_0").random() for twin in twins)
    assert one == again
    assert len({same, one, other}) == 3
    assert env.actor_rng_of("player_0").random() == same


def test_seeds_state_and_forks_are_those_of_every_env():
    one, other = Both(), Both()
    one.reset(seed=5)
    other.reset(seed=5)
    assert one.number == other.number
    other.reset()
    other.set_state(one.get_state())
    assert (other.number, other.acting) == (one.number, one.acting)
    assert pickle.loads(pickle.dumps(one)).number == one.number
    twin = one.fork()
    assert [one.actor_rng_of("a").random() for _ in range(3)] == [
        twin.actor_rng_of("a").random() for _ in range(3)
    ]


def test_one_agents_draws_do_not_change_anothers():
    one, other = begun(), begun()
    one.actor_rng_of("a").random()
    assert one.actor_rng_of("b").random() == other.actor_rng_of("b").random()
    one.seed_actor(3)
    other.seed_actor(3)
    assert one.actor_rng_of("b").random() == other.actor_rng_of("b").random()
    assert one.actor_rng_of("a").random() != one.actor_rng_of("b").random()


def test_without_an_expert_there_is_none():
    with pytest.raises(NoSolver, match="expert_action"):
        begun().solve()
    with pytest.raises(NoSolver, match="random_action"):
        begun().sample_random_action()


def test_the_contract_is_judged_and_a_wrong_turn_is_found():
    class Lenient(Both):
        @classmethod
        def _guards(cls):
            reset, _, close = super()._guards()
            return reset, close

        def step(self, actions):
            return result()

    report = check_env(Lenient, rules=["seats"])
    assert not report.ok


def test_a_vector_of_several_seats_is_refused_with_the_way_out():
    with pytest.raises(BadArgument, match="SeatEnv"):
        gem.make_vec("multi:KuhnPoker-v0", num_envs=2)


def test_the_selector_goes_around_and_closes_up():
    turns = SeatSelector("abc")
    assert [turns.selected, turns.next(), turns.next(), turns.next()] == ["a", "b", "c", "a"]
    turns.next()
    turns.remove("b")
    assert (turns.selected, turns.is_last(), len(turns)) == ("c", True, 2)
    turns.remove("c")
    assert turns.acting == ("a",)
    turns.remove("a")
    assert turns.acting == ()
    assert turns.reset() == "a"
    assert SeatSelector("ab", "parallel").acting == ("a", "b")
    for wrong in ([], "aa"):
        with pytest.raises(BadArgument):
            SeatSelector(wrong)
    with pytest.raises(BadArgument, match="mode"):
        SeatSelector("ab", "sideways")


@pytest.mark.parametrize(
    ("env_id", "plain", "marked"),
    [
        ("multi:ConnectFour-v0", "4", (r"\text{4}", "4.")),
        ("multi:KuhnPoker-v0", "check", (r"\text{check}", '"Check"')),
        ("multi:MatrixGame-v0", "cooperate", (r"\textbf{cooperate}", "cooperate.")),
        ("multi:Negotiation-v0", "take 0 0 0", (r"\text{take 0 0 0}", "take 0, 0, 0", r"take 0,\ 0,\ 0")),
        ("multi:Negotiation-v0", "leave", (r"\text{leave}", "leave.")),
    ],
)
def test_the_markup_of_a_box_does_not_decide(env_id, plain, marked):
    env = gem.make(env_id)
    env.reset(seed=3)

    def answer(text):
        return env.fork().step(dict.fromkeys(env.acting, f"\\boxed{{{text}}}"))

    assert "not be read" not in str(answer(plain))
    for text in marked:
        assert answer(text) == answer(plain), text
    assert "not be read" in str(answer(f"\\cancel{{{plain}}}"))
