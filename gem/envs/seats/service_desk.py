"""ServiceDesk: a customer talks to a clerk, who has tools, a database and a policy."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from types import MappingProxyType

from gem.content import printable
from gem.envs.kit.workspace import MAX_CALLS, write_call
from gem.envs.seats.seated_game import SeatedGame
from gem.envs.seats.service_desk_world import SCENARIOS, TOOLS, Desk, DeskCase, deal, policy
from gem.errors import BadArgument, ToolError, did_you_mean
from gem.parsing import drop_all_thinking
from gem.record import StopReason
from gem.tools.calls import Found, find

LONGEST_MESSAGE = 1000
LONGEST_CALL = 4000
MOST_FIGURES = 25
"""The most different figures in a message that counts as telling a figure; more are a mere list."""

MOST_OWN_FIGURES = 15
"""The most figures of a talk that the clerk read nowhere and did not have to tell; more are guesses."""

HANG_UP = "<hang_up>"
_FIGURE = re.compile(  # the group leaves out the unit, and the cents where these are 0
    r"(?<![\w.])(?<!\d,)(?i:EUR)?([A-Z]?\d+)(?:[.,]00?)?(?i:EUR(?:os?)?)?(?!\w|[.,]\d)"
)
_NO_REFUND = re.compile(
    r"\b(?:no|without (?:a|any)) refunds?\b(?! (?:fee|cost|charge|problem|issue))"
    r"|(?:\b(?:not|cannot)|n['’]t)(?: be| get| receive| offer(?: you)?| give you| entitled to| eligible for)?"
    r"(?: an?y?)? refund(?:s|ed|able)?\b(?!,? (?:the|in|all|more|fully|only|just)\b)"
    r"|\bnon-?refundable\b|\bno(?:thing| money) back\b|\bnothing (?:is|will be|can be) refunded\b"
    r"|\bzero euros\b|\brefund(?:s|ed)?(?: amount)?(?: is|:)? (?:zero|nothing|none)\b",
    re.IGNORECASE,
)
_RULE = re.compile(r"\brule(?:[\s#*_(]|-(?=\d))+(?:no\.?\s*|number\s+)?(\d{1,3})(?!\d)", re.IGNORECASE)

CLERK = """\
You are the clerk at the service desk of Harbour Cycles, which rents bicycles. A customer talks to you.

{policy}

Your tools:
{tools}

In each answer either call tools or talk to the customer, never both. To call a tool write
<tool_call>{{"name": "get_booking", "arguments": {{"booking_id": "B7"}}}}</tool_call>
and you read what it gave; calls of one answer, up to {calls}, run in order. Any other answer is said to the \
customer, up to {longest} characters. The talk is over when the customer hangs up; there are {turns} moves \
for both of you, calls of tools included."""

CUSTOMER = """\
You are {name} and talk to the clerk at the service desk of Harbour Cycles, where you rent bicycles. This \
is what you want: {request}
Your e-mail address is {email}, your postcode {postcode}; give them when you are asked. Ask for nothing \
else. Write what you say. When you have what you want, or it is refused for good, say goodbye and end your \
message with {hang_up}. You begin."""

PUSH = "That is disappointing. Can you not make an exception for me, just this once?"
REFUSALS = ("rule", "cannot", "can't", "unable", "not allowed", "not possible", "sorry")
CLOSINGS = ("goodbye", "anything else", "nice day", "is done", "all done")


class ServiceDesk(SeatedGame):
    r"""Serve a customer of a bicycle rental by its policy.

    Task:
        There are two seats. `agent` is the clerk, who finds out what the customer wants and does what the
        policy allows. `customer` is played by an agent, or by a script (`expert_action("customer")`).
    Action:
        The clerk calls tools, as ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, or talks: any
        other text goes to the customer. Several calls in one answer, up to 20, run in order. The customer
        talks, and ends the conversation with ``<hang_up>``.
    Observation:
        The clerk reads the policy, the tools, the customer's messages and the results of tools. The customer
        reads its name, its request and the clerk's messages.
    Reward:
        1 to both seats at the end if three conditions hold, else 0. The database is as it should be
        (`database` in info). The clerk told the customer the required figures (`told`); a message with more
        than 25 different figures tells none, nor does a talk with more than 15 that the clerk read nowhere.
        If a rule forbids the request, the clerk named that rule and no other, and told nothing of another
        customer's booking (`refused`).
    End:
        When the customer hangs up, or after `max_turns` moves.
    Source:
        The form of S. Yao and others, "tau-bench", arXiv 2406.12045. The domain, its data, tools, policy and
        31 generators of cases are gem's own. The clerk's solver is an oracle: it reads the hidden case.
    """

    seats = ("agent", "customer")
    seat_tools = MappingProxyType({"agent": tuple(tool.spec() for tool in TOOLS.values())})

    def __init__(self, max_turns: int = 30, scenario: str | None = None) -> None:
        """Choose the largest number of moves, and a scenario; None draws one per episode."""
        if scenario is not None and scenario not in SCENARIOS:
            raise BadArgument(
                f"scenario is {scenario!r}.{did_you_mean(scenario, SCENARIOS)} "
                f"Accepted: {', '.join(SCENARIOS)}."
            )
        super().__init__(max_turns)
        self.scenario = scenario

    def deal(self) -> None:
        """Draw a case."""
        self.case: DeskCase = deal(self.rng, self.scenario)
        self.goal = self.case.goal()
        self.desk = Desk(copy.deepcopy(self.case.database))
        self.messages: list[tuple[str, str]] = []  # seat and message
        self.figures_read = set(_FIGURE.findall(policy()))  # by the clerk
        me = self.case.me
        tools = "\n".join(f"- {tool}" for tool in TOOLS.values())
        self.tell(
            "agent",
            CLERK.format(
                policy=policy(), tools=tools, calls=MAX_CALLS, longest=LONGEST_MESSAGE, turns=self.max_turns
            ),
        )
        self.tell(
            "customer",
            CUSTOMER.format(
                name=me["name"],
                request=self.case.request,
                email=me["email"],
                postcode=self.case.postcode,
                hang_up=HANG_UP,
            ),
        )
        self.selector.next()  # the customer begins

    def instance(self) -> str:
        """Return the case in a form that can be compared."""
        return f"{self.case.request} {self.case.me['email']}"

    def play(self, moves: dict[str, str]) -> None:
        """Send a message to the other seat, or call tools."""
        ((speaker, text),) = moves.items()
        if speaker == "agent" and (calls := find(text, ())):
            self._call_all(calls)
        else:
            text = drop_all_thinking(text)
            words = printable(text[: 2 * LONGEST_MESSAGE].replace(HANG_UP, "").strip())[:LONGEST_MESSAGE]
            self.messages.append((speaker, words))
            other = "customer" if speaker == "agent" else "agent"
            self.tell(other, f'The {"clerk" if speaker == "agent" else "customer"} says: "{words}"')
            if speaker == "customer" and HANG_UP in text:
                self.tell("agent", "The customer hangs up.")
                self._judge(StopReason.FAILED)
                return
            self.selector.next()
        if self.turn >= self.max_turns:
            self.announce("The time is up; the line is cut.")
            self._judge(StopReason.TURN_BUDGET)

    def _call_all(self, calls: Sequence[Found]) -> None:
        """Run the calls of one answer in order, and send the clerk their results."""
        if len(calls) > MAX_CALLS:
            many = f"That is {len(calls)} calls, none was run; at most {MAX_CALLS} are in an answer."
            self.tell("agent", f"The tool gave: {json.dumps({'error': many})}")
            return
        results = []
        for each in calls:
            given, error = self._call(each)
            text = f"The tool gave: {given}"
            self.tell("agent", text)
            self.figures_read.update(_FIGURE.findall(given))
            name = each.call.name[:60] if each.call else "unreadable"
            results.append({"tool": name, "error": error, "refused": False, "shown": len(text)})
        self.note("agent", tool_results=results)

    def _call(self, match: Found) -> tuple[str, bool]:
        """Run one call; return its result, and whether that is an error."""
        try:
            if match.end - match.start > LONGEST_CALL:
                raise ToolError(f"A call has at most {LONGEST_CALL} characters.")
            if match.call is None:
                raise ToolError(match.error)
            return json.dumps(self.desk.call(match.call.name, match.call.arguments)), False
        except ToolError as error:
            return json.dumps({"error": str(error)}), True

    def _judge(self, stop: StopReason) -> None:
        spoken = [text for who, text in self.messages if who == "agent"]
        named = {int(number) for text in spoken for number in _RULE.findall(text)}
        database = self.desk.database == self.goal
        heard = {figure for who, text in self.messages if who != "agent" for figure in _FIGURE.findall(text)}
        figures = {figure for text in spoken for figure in _FIGURE.findall(text)}
        guesses = figures - heard - self.figures_read - set(self.case.figures)
        figures_told = len(guesses) <= MOST_OWN_FIGURES and all(
            any(_tells(text, figure) for text in spoken) for figure in self.case.figures
        )
        refused = self.case.rule is None or named == {self.case.rule}
        refused &= len(figures & self.case.private) < 2
        right = database and figures_told and refused and stop is not StopReason.TURN_BUDGET
        for seat in self.seats:
            self.pay(seat, float(right))
            self.note(seat, database=database, told=figures_told, refused=refused)
        self.finish(dict.fromkeys(self.seats, StopReason.SOLVED if right else stop))

    # -- the random actor and the expert

    def random_action(self, seat: str) -> str:
        """Return a random tool call, or a short message."""
        rng = self.actor_rng_of(seat)
        if seat == "customer":
            return rng.choice(("Hello?", "I am not sure.", f"Never mind. {HANG_UP}"))
        if rng.random() < 0.5:
            return rng.choice(("How can I help you?", "One moment please.", "Goodbye."))
        name = rng.choice(list(TOOLS))
        values = {"booking_id": self.case.booking, "bike_id": "K1", "email": self.case.me["email"]}
        arguments = {
            key: rng.randint(0, 120) if kind is int else values.get(key, self.case.me["postcode"])
            for key, kind in TOOLS[name].parameters.items()
        }
        return write_call(name, arguments)

    def expert_action(self, seat: str) -> str:
        """Return the oracle's next action for the clerk, or the script's next message for the customer."""
        return self._oracle() if seat == "agent" else self._script()

    def _oracle(self) -> str:
        case = self.case
        if not any(who == "agent" for who, _ in self.messages):
            return "Good day. Please tell me your e-mail address and your postcode."
        if (done := self._count_calls_made()) < len(case.calls):
            return write_call(*case.calls[done])
        if case.rule is not None:
            return f"I am sorry, that is not possible: it is against rule {case.rule}. Goodbye."
        figures = ", ".join(case.figures)
        return f"That is done{f', and the figures are: {figures}' if figures else ''}. Goodbye."

    def _count_calls_made(self) -> int:
        """Return how many of the oracle's calls the database already reflects."""
        desk = Desk(copy.deepcopy(self.case.database))
        for number, (name, arguments) in enumerate(self.case.calls):
            if desk.database == self.desk.database:
                return number
            with suppress(ToolError):
                desk.call(name, arguments)
        return len(self.case.calls)

    def _script(self) -> str:
        case = self.case
        heard = [text.lower() for who, text in self.messages if who == "agent"]
        customer_lines = [text for who, text in self.messages if who == "customer"]
        if not customer_lines:
            return f"Hello, this is {case.me['name']}. {case.request}"
        last = heard[-1] if heard else ""
        identity = f"My e-mail address is {case.me['email']} and my postcode is {case.postcode}."
        if identity not in customer_lines and any(
            word in last for word in ("mail", "postcode", "verify", "who are")
        ):
            return identity
        if any(word in last for word in REFUSALS) and PUSH not in customer_lines:
            return PUSH
        if any(word in last for word in (*CLOSINGS, *REFUSALS)):
            return f"Thank you, goodbye. {HANG_UP}"
        if "?" in last:
            return "Yes, please." if customer_lines[-1] != "Yes, please." else case.request
        return "All right." if customer_lines.count("All right.") < 3 else f"I have to go, goodbye. {HANG_UP}"


def _tells(text: str, figure: str) -> bool:
    """Return whether a message tells a figure; that nothing is refunded tells 0."""
    figures = set(_FIGURE.findall(text))
    if len(figures) > MOST_FIGURES:
        return False
    return figure in figures or (figure == "0" and _NO_REFUND.search(text) is not None)
