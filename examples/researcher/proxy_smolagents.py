"""Train the model of an unchanged smolagents program: SmolLM2-135M behind the recording proxy.

The program is an ordinary one: it asks an OpenAI-compatible server for a line of Python, lets smolagents run
it, and returns the result. It contains no training code. The server is gem's proxy over a local model. It
records each call with its token ids, and the answer gets a reward. The recorded episodes train the model,
which then answers the next programs.

    python examples/researcher/proxy_smolagents.py [--iterations 8]

Needs: pip install 'gem-gym[llm,serve]' smolagents openai, gem-gym models --fetch smollm2. Verified with
smolagents 1.26.0, tier A: a real training, on two cores.
"""

import argparse
import random
from concurrent.futures import ThreadPoolExecutor

from smolagents import CodeAgent, LogLevel, OpenAIModel
from smolagents.agents import EMPTY_PROMPT_TEMPLATES

from gem.record import Episode
from gem.serve.proxy.server import Server
from gem.train.config import TrainConfig
from gem.train.learn import policy_gradient
from gem.train.learn.learner import Learner, Settings
from gem.train.learn.policy import make_policy, resolve_dtype
from gem.train.learn.steps import Progress

# -- the program

PROMPTS = {
    **EMPTY_PROMPT_TEMPLATES,
    "system_prompt": """Solve tasks with one line of Python.
How much is 8 less than 20? <code>final_answer(20 - 8)</code>
What is 12 times 34? <code>final_answer(12 * 34)</code>
How much is 51 and 6 together? <code>final_answer(51 + 6)</code>""",
}


def program(question: str, base_url: str, api_key: str) -> object:
    """Return an agent's answer."""
    model = OpenAIModel("any", api_base=base_url, api_key=api_key, max_tokens=16)
    agent = CodeAgent([], model, PROMPTS, max_steps=1, verbosity_level=LogLevel.OFF)
    return agent.run(question)


# -- its training

BEGUN = "<code>final_answer("
"""What every answer begins with; so small a model would seldom begin so, and then nothing can be learnt."""

ASKED = (
    ("How much is {a} and {b} together?", lambda a, b: a + b),
    ("What is {a} times {b}?", lambda a, b: a * b),
    ("I had {a} coins and found {b} more. How many have I?", lambda a, b: a + b),
)


def task(rng: random.Random) -> tuple[str, int]:
    """Return a question and its answer."""
    words, truth = rng.choice(ASKED)
    a, b = rng.randint(11, 99), rng.randint(11, 99)
    return words.format(a=a, b=b), truth(a, b)


def play(
    server: Server, pool: ThreadPoolExecutor, tasks: list[tuple[str, int]], group: int = 1
) -> list[Episode]:
    """Let `group` programs work on each task, and return the episodes."""

    def one(number: int) -> None:
        question, truth = tasks[number]
        opened = server.open(group=f"task-{number}")
        try:
            right = str(program(question, opened.base_url, opened.api_key)) == str(truth)
        except Exception:  # the program broke; if that was for want of an answer, the proxy knows
            right = False
        server.reward(opened.id, float(right), success=right)

    list(pool.map(one, [number for number in range(len(tasks)) for _ in range(group)]))
    return server.take()


def success(episodes: list[Episode]) -> float:
    """Return the share of the episodes with a verdict that were solved."""
    scored = [episode for episode in episodes if episode.scored]
    return sum(bool(episode.success) for episode in scored) / max(1, len(scored))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=8, help="tasks of an iteration")
    parser.add_argument("--group", type=int, default=6, help="programs that work on each task")
    given = parser.parse_args()
    batch = given.tasks * given.group
    config = resolve_dtype(
        TrainConfig(
            env="proxy:agent",
            model="smollm2",
            algorithm="rloo",
            train_layers=18,
            max_tokens=16,
            answer_prefix=BEGUN,
            lr=5e-5,
            lr_ramp=0,
            lr_end=0.0,
            gamma=0.3,
            epochs=2,
            episodes=51_200,
            group=given.group,
            batch=batch,
            minibatch=batch,
        )
    )
    policy = make_policy(config)
    learner = Learner(policy, Settings(lr=config.lr))
    rng, held_out = random.Random(0), random.Random(1)
    test = [task(held_out) for _ in range(48)]
    with Server(policy.agent) as server, ThreadPoolExecutor(16) as pool:
        print(f"before: {success(play(server, pool, test)):.1%} of 48 held-out tasks", flush=True)
        for iteration in range(given.iterations):
            episodes = play(server, pool, [task(rng) for _ in range(given.tasks)], given.group)
            policy_gradient.learn(learner, episodes, config, Progress(iteration, given.iterations))
            server.publish(iteration + 1)
            print(f"iteration {iteration + 1}: {success(episodes):.1%}", flush=True)
        print(f"after: {success(play(server, pool, test)):.1%}")


if __name__ == "__main__":
    main()
