import gem
from gem.record import Reply, StopReason
from gem.rollout import Job, rollout

EASY = "game:GuessTheNumber-v0-easy"


class Fives:
    def __init__(self):
        self.forgotten = []

    def __call__(self, asks):
        return [Reply(r"\boxed{5}") for _ in asks]

    async def ask(self, ask):
        return self([ask])[0]

    def forget(self, episode):
        self.forgotten.append(episode)


def test_episodes_come_in_the_order_of_the_jobs_and_each_is_forgotten_once():
    agent = Fives()
    jobs = [Job(EASY, seed) for seed in range(40)]
    episodes = rollout(jobs, agent, concurrency=7)
    assert [episode.seed for episode in episodes] == list(range(40))
    assert sorted(agent.forgotten) == sorted(episode.id for episode in episodes)
    assert {episode.stop for episode in episodes} == {StopReason.SOLVED, StopReason.TURN_BUDGET}


def test_an_episode_holds_what_the_environment_said_and_paid():
    (episode,) = rollout([Job(EASY, 3)], Fives())
    env = gem.make(EASY)
    observation, _ = env.reset(seed=3)
    for turn in episode.turns:
        assert turn.observation == observation
        observation, reward, _, _, _ = env.step(turn.action)
        assert turn.reward == reward
    assert episode.final_observation == observation
