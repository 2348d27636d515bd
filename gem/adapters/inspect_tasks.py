"""Play gem's environments as a task of Inspect.

::

    inspect eval gem/task -T env=game:GuessTheNumber-v0-easy -T n=20 --model openai/gpt-4o-mini

The episodes are those that ``gem-gym eval`` plays for the same seed. An episode without a verdict is an error
of its sample: it is in no metric, and it does not end the run. The record of each episode is in its sample's
store, so that ``gem-gym import LOG STORE`` restores the episodes.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Literal

from gem import registry, seeding
from gem.adapters.inspect_logs import message_of, tool_of
from gem.adapters.records import KEY, carry, describe_failure, read_record
from gem.content import ToolCall
from gem.errors import NoVerdict, check_argument, needs_extra
from gem.record import Episode, Limits, Reply, RunInfo
from gem.rollout.conversation import Conversation
from gem.rollout.episode import versions

with needs_extra("a task of Inspect", "inspect-ai", "inspect"):
    from anyio import CancelScope, to_thread
    from inspect_ai import Task, task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import GenerateConfig, ModelOutput, get_model
    from inspect_ai.scorer import Score, Scorer, Target, accuracy, mean, scorer, stderr
    from inspect_ai.solver import Generate, Solver, TaskState, solver
    from inspect_ai.util import LimitExceededError

FINISHES = {"max_tokens": "length", "model_length": "context", "tool_calls": "stop"}


@task(name="task")
def gem_task(
    env: str,
    n: int = 100,
    seed: int = 0,
    tools: Literal["native", "text"] = "native",
    turns: int | None = None,
    tokens: int | None = None,
) -> Task:
    """Return the episodes of an environment as a task.

    Set limits here (`turns`, `tokens`): episodes truncated by Inspect's own limits have no verdict.

    Args:
        env: an environment's id; the model takes every seat.
        n: how many episodes, each with its own seed.
        seed: the same seed gives the same episodes.
        tools: ``native`` gives an environment's tools as schemas; with ``text``, the model writes calls as
            text.
        turns: truncate each episode after this many turns.
        tokens: truncate each episode after this many generated tokens.

    Raises:
        BadArgument: for a value that is not accepted. UnknownEnv: for an id that nobody registered.
    """
    check_argument("n", n, n >= 1, "1 episode or more")
    check_argument("tools", tools, tools in ("native", "text"), "native, text")
    spec, seed = registry.spec_named(env), seeding.check(seed)
    seeds = [seeding.derive(seed, "eval", number) for number in range(n)]
    samples = [
        Sample(id=number, input=f"{env}, seed {each}", metadata={"env": env, "seed": str(each)})
        for number, each in enumerate(seeds)
    ]
    return Task(
        dataset=MemoryDataset(samples, name=env),
        solver=episode_of(env, tools, Limits(turns=turns, tokens=tokens), spec.waits),
        scorer=[success(), earned()],
        display_name=env,
        fail_on_error=False,
    )


task(name="gem/task")(gem_task)  # Inspect puts the package's name before a task only in site-packages


@solver
def episode_of(env: str, tools: str, limits: Limits, waits: bool) -> Solver:
    """Return a solver that plays the episode of a sample with the evaluated model."""
    runs: dict[str, RunInfo] = {}
    tries: Counter[tuple[str, str, int]] = Counter()

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        model = get_model()
        name = str(model)
        settings = model.config.model_dump(exclude_none=True, exclude={"extra_headers"})  # they may hold keys
        run = runs.setdefault(
            name,
            RunInfo(agent="Inspect", model=name, sampling=settings, limits=limits, versions=versions()),
        )
        job, sample = str(state.sample_id), state.epoch - 1
        begin: dict[str, Any] = {"run": run, "job": job, "sample": sample, "group": job}
        with CancelScope(shield=True):  # what is made is closed, whenever somebody stops it
            talk = await _call(waits, lambda: Conversation(env, int(state.metadata["seed"]), limits, **begin))
        talk.episode.attempt = tries[name, job, sample]
        tries[name, job, sample] += 1
        state.messages = []
        try:
            while talk.asks:
                replies = []
                for ask in talk.asks:
                    prompt = list(map(message_of, ask.messages))
                    offered = [tool_of(tool) for tool in ask.tools] if tools == "native" else []
                    config = GenerateConfig(max_tokens=ask.max_tokens)
                    try:
                        output = await model.generate(prompt, tools=offered, config=config)
                        replies.append(reply_of(output))
                    except LimitExceededError:
                        raise
                    except Exception as error:
                        talk.fail(error)
                        break
                    state.messages, state.output = [*prompt, output.message], output
                else:
                    await _call(waits, lambda answers=tuple(replies): talk.answer(*answers))
        finally:
            talk.cancel()
            state.store.set(KEY, carry(talk.episode))
            with CancelScope(shield=True):
                await _call(waits, talk.close)
        _require_verdict(talk.episode)
        return state

    return solve


async def _call(waits: bool, work: Any) -> Any:
    """Do what calls the environment; in a thread where that waits for something."""
    return await to_thread.run_sync(work) if waits else work()


def reply_of(output: ModelOutput) -> Reply:
    """Convert the output of a model of Inspect to a reply.

    Raises:
        NoVerdict: for an answer that the model did not give: none, a filtered one, or an empty one for which
            no token was sampled.
    """
    if output.empty or output.error is not None or output.stop_reason == "content_filter":
        why = output.error or ("the answer was filtered" if not output.empty else "there is no answer")
        raise NoVerdict(f"the model gave no usable answer: {why}")
    message, usage = output.message, output.usage
    parts = message.content if isinstance(message.content, list) else []
    thoughts = [part.reasoning for part in parts if part.type == "reasoning" and part.reasoning]
    calls = tuple(
        ToolCall(call.id, call.function, json.dumps(call.arguments)) for call in message.tool_calls or ()
    )
    sampled = usage is not None and usage.output_tokens > 0
    finish = FINISHES.get(output.stop_reason, "stop")
    if not message.text and not calls and not thoughts and not sampled and finish == "stop":
        raise NoVerdict("the model gave no usable answer: it is empty, and no token was sampled")
    if finish == "context" and message.text:
        finish = "length"
    counts = {}
    if usage is not None:
        cached = usage.input_tokens_cache_read or 0
        prompt = usage.input_tokens + cached + (usage.input_tokens_cache_write or 0)
        counts = {"prompt_tokens": prompt, "completion_tokens": usage.output_tokens}
        counts |= {"cached_tokens": cached} if cached else {}
    return Reply(
        message.text,
        finish=finish,
        tool_calls=calls,
        reasoning="\n".join(thoughts) or None,
        usage=counts,
        policy_s=output.time,
    )


def _require_verdict(episode: Episode) -> Episode:
    if episode.scored:
        return episode
    why = describe_failure(episode, f"stop: {episode.stop}")
    raise NoVerdict(f"the episode has no verdict: {why}")


@scorer(metrics=[accuracy(), stderr()], name="success")
def success() -> Scorer:
    """Return a scorer of success: 1 if the task was solved."""

    async def score(state: TaskState, target: Target) -> Score:
        episode = _require_verdict(read_record(state.store.get(KEY)))
        if episode.success is None:
            return Score.unscored(explanation="the environment does not say")
        return Score(value="C" if episode.success else "I", explanation=f"stop: {episode.stop}")

    return score


@scorer(metrics=[mean(), stderr()], name="return")
def earned() -> Scorer:
    """Return a scorer of the return."""

    async def score(state: TaskState, target: Target) -> Score:
        episode = _require_verdict(read_record(state.store.get(KEY)))
        rewards = [turn.reward for turn in episode.turns]
        return Score(
            value=episode.earned(), metadata={"rewards": rewards}, explanation=f"stop: {episode.stop}"
        )

    return score
