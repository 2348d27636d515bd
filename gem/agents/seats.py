"""SeatAgents: combine the agents of all seats into one agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gem import registry
from gem.agents.base import Answer, BaseAgent, batch_answers, settle
from gem.errors import BadArgument
from gem.record import Agent, Ask, Reply


class SeatAgents(BaseAgent):
    """An agent that passes each ask to the agent of its seat; an agent of several seats gets one batch.

    Drivers make it from a mapping of agents. `RandomAgent` and `SolverAgent` can play seats too.
    """

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        """Keep the agents by seat.

        Raises:
            BadArgument: for an empty mapping, or a value that is not an agent.
        """
        for seat, agent in agents.items():
            if not callable(agent):
                raise BadArgument(f"the agent of seat {seat!r} is {agent!r:.80}; accepted: an Agent.")
        if not agents:
            raise BadArgument("agents is an empty mapping; give each seat an agent.")
        self.agents = dict(agents)
        verbs = {seat: getattr(agent, "verb", None) for seat, agent in agents.items()}
        self.verbs = {seat: verb for seat, verb in verbs.items() if verb is not None}
        """The seats played by the environment itself, each with the method to call."""

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Ask each agent once.

        Raises:
            BadArgument: for a seat without an agent. BatchBroken: when some asks failed.
        """
        batches: dict[int, list[int]] = {}
        for place, ask in enumerate(asks):
            batches.setdefault(id(self.holder(ask)), []).append(place)
        answers: list[Answer] = [BadArgument("never asked")] * len(asks)
        for places in batches.values():
            agent = self.holder(asks[places[0]])
            for place, answer in zip(places, batch_answers(agent, [asks[i] for i in places]), strict=True):
                answers[place] = answer
        return settle(answers)

    async def ask(self, ask: Ask) -> Reply:
        """Ask the agent of the seat."""
        return await self.holder(ask).ask(ask)

    def forget(self, episode: str) -> None:
        """Call forget of every agent once."""
        for agent in {id(agent): agent for agent in self.agents.values()}.values():
            agent.forget(episode)

    def check(self, seats: Sequence[str]) -> None:
        """Check that every seat has an agent, and every agent a seat.

        Raises:
            BadArgument: when they do not match; the message lists both.
        """
        if set(seats) != set(self.agents):
            raise BadArgument(f"agents hold the seats {sorted(self.agents)}; the game has {sorted(seats)}.")

    def holder(self, ask: Ask) -> Agent:
        """Return the agent that answers an ask.

        Raises:
            BadArgument: for a seat without an agent.
        """
        if ask.seat not in self.agents:
            raise BadArgument(f"seat {ask.seat!r} has no agent; there are agents for {sorted(self.agents)}.")
        return self.agents[ask.seat]


def make_others(
    env_id: str, seat: str | None, others: str | Agent | None, make: Callable[[str], Agent]
) -> dict[str, Agent]:
    """Return the agents of the seats other than `seat`: one for all of them; empty if no seat is named.

    `others` is that agent, or its name for `make`; random if None.

    Raises:
        BadArgument: when the environment has one seat only, or not this one.
    """
    if seat is None and others is None:
        return {}
    seats = registry.spec(env_id).seats
    if len(seats) == 1:
        raise BadArgument(
            f"{env_id} has one seat; --seat and --others are for games of several. Leave them out."
        )
    if seat is None:
        raise BadArgument(f"others is {others!r} without a seat; give --seat: {', '.join(seats)}.")
    if seat not in seats:
        raise BadArgument(f"seat is {seat!r}; accepted in {env_id}: {', '.join(seats)}.")
    player = make(others or "random") if others is None or isinstance(others, str) else others
    return {other: player for other in seats if other != seat}
