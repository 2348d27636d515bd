import pytest

torch = pytest.importorskip("torch")

from gem.envs.multiagent.kuhn_poker import KuhnPoker
from gem.envs.multiagent.matrix_game import MatrixGame
from gem.estimators import turn_advantages
from gem.parsing import boxed
from gem.record import Episode, SeatEnd, StopReason, Turn, Verdict
from gem.registry import ENV_REGISTRY, EnvSpec, register
from gem.tokens.rows import rows
from gem.train.config import TrainConfig
from gem.train.policy_gradient import Trainer, Watcher, make_policy
from gem.train.run import RunFolder
from gem.train.warmup import warm_up

TERSE = "test:TerseKuhn-v0"
ITERATIONS = 12


class TerseKuhn(KuhnPoker):
    """Kuhn poker for a tiny model: the card as a digit; 0 is to check or fold, 1 to bet or call."""

    def tell(self, agent, text):
        """Say the card first, and then only whether the other was bold."""
        word = str(self.cards[agent]) if text.startswith("You are") else None
        if text.startswith("player_"):
            word = "1" if "bets" in text else "0" if "checks" in text else None
        if word:
            super().tell(agent, word)

    def play(self, moves):
        ((player, text),) = moves.items()
        said = boxed(text)
        super().play({player: f"\\boxed{{{self.allowed[int(said)] if said in ('0', '1') else '?'}}}"})

    def random_action(self, agent):
        return f"\\boxed{{{self.actor_rng_of(agent).randrange(2)}}}"


@pytest.fixture
def terse():
    register(EnvSpec(TERSE, TerseKuhn, max_turns=3, seats=KuhnPoker.possible_agents))
    yield
    del ENV_REGISTRY[TERSE]


def trainer(tmp_path, **changes):
    config = TrainConfig(
        env=TERSE,
        out=tmp_path / "run",
        width=24,
        layers=1,
        heads=1,
        batch=changes.pop("batch", 256),
        minibatch=changes.pop("minibatch", 64),
        gamma=1.0,
        max_tokens=4,
        warmup_steps=25,
        warmup_batch=16,
        warmup_lr=1e-2,
        threads=1,
        **changes,
    )
    policy = make_policy(config)
    optimiser = torch.optim.AdamW(policy.model.parameters(), lr=config.lr, weight_decay=0.0)
    run = Trainer(config, RunFolder(config.out), policy, optimiser, Watcher())
    warm_up(
        policy,
        run.maker,
        seed=0,
        steps=config.warmup_steps,
        batch=config.warmup_batch,
        lr=config.warmup_lr,
        max_grad_norm=1.0,
    )
    return run


def test_every_seat_is_trained_on_its_own_turns(terse, tmp_path):
    run = trainer(tmp_path, episodes=64, batch=64)
    episodes = run.sample()
    assert {turn.agent for episode in episodes for turn in episode.turns} == {"player_0", "player_1"}
    for episode in episodes:
        for seat in episode.seats:
            mine = [token for turn in episode.turns_of(seat) for token in turn.token_ids]
            learnt = [
                token
                for row in rows(episode, seat)
                for token, learn in zip(row.ids, row.mask, strict=True)
                if learn
            ]
            assert learnt == mine
    figures, tokens = run.learn(episodes)
    assert figures
    assert tokens > sum(len(turn.token_ids) for episode in episodes for turn in episode.turns)


def test_a_seat_without_a_turn_does_not_count_in_its_group():
    def game(*paid, group="g"):
        turns = [Turn("a", "", "x", reward=reward) for reward in paid]
        ends = {"a": SeatEnd(StopReason.ENDED, True), "b": SeatEnd(StopReason.ENDED, True)}
        return Episode("e", "x", 0, group=group, turns=turns, ends=ends, verdict=Verdict.SCORED)

    found = turn_advantages([game(3.0), game(1.0), game()], "dr_grpo", 1.0, "a")
    assert found == [[1.0], [-1.0], []]


class TerseCoordination(MatrixGame):
    """One round of pure coordination for a tiny model: both say 0 or 1 at once, and are paid for the same."""

    def __init__(self):
        super().__init__("coordination", rounds=1)

    def tell(self, agent, text):
        super().tell(agent, "go" if text.startswith("You are") else "over")

    def play(self, moves):
        said = {seat: boxed(text) for seat, text in moves.items()}
        super().play(
            {s: f"\\boxed{{{self.actions[int(w)] if w in ('0', '1') else '?'}}}" for s, w in said.items()}
        )

    def random_action(self, agent):
        return f"\\boxed{{{self.actor_rng_of(agent).randrange(2)}}}"


@pytest.mark.slow
def test_self_play_learns_to_coordinate(tmp_path, monkeypatch):
    """Both seats are the same policy, unable to talk: together they settle on one of two equal answers."""
    spec = EnvSpec(TERSE, TerseCoordination, max_turns=1, seats=MatrixGame.possible_agents)
    monkeypatch.setitem(ENV_REGISTRY, TERSE, spec)
    run = trainer(tmp_path, episodes=ITERATIONS * 128, batch=128, lr=5e-3, kl=0.0)
    paid = []
    for iteration in range(1, ITERATIONS + 1):
        episodes = run.sample()
        paid.append(
            [sum(e.reward(seat) for e in episodes) / len(episodes) for seat in MatrixGame.possible_agents]
        )
        run.learn(episodes)
        run.iteration = iteration
        run.policy.updated(iteration)
    assert max(paid[0]) < 0.65  # well-formed answers, at random
    assert min(paid[-1]) > 0.95
