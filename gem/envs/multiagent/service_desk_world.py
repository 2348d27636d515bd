"""The bicycle rental behind the service desk: its tables, its tools, its policy, and what customers want.

A scenario is dealt, not stored: a generator draws who calls and what is asked, and says which calls of the
tools a clerk who follows the policy would make. The goal is the database after those calls.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from gem.content import ToolSpec
from gem.errors import ToolError
from gem.tools.schema import docstring

Database: TypeAlias = dict[str, dict[str, dict[str, Any]]]
Calls: TypeAlias = list[tuple[str, dict[str, Any]]]

TODAY = 100
KINDS = ("city", "cargo", "electric")
TOPICS = ("damage", "theft", "lost key")
FAULTY, LATE = 10, 5
LONGEST_TEXT, LARGEST_NUMBER = 100, 100_000
"""What an argument of a tool may be."""

POLICY = f"""\
Policy of Harbour Cycles. Today is day {TODAY}; days are numbers.
Rule 1. Verify the customer by e-mail address and postcode before anything else. Speak only of this \
customer's own bookings, and change nothing else.
Rule 2. Only a booking with status "booked" can be cancelled. Refund 100 percent when its first day is 3 or \
more days away, 50 percent when it is 1 or 2 days away, 0 percent on the first day itself.
Rule 3. The days of a booking can be changed only while its status is "booked" and its first day is still \
to come, and only to days on which the same bicycle is free.
Rule 4. A bicycle can be swapped only for one of the same kind, and only while the booking's status is \
"booked".
Rule 5. Insurance can be added only while a booking's status is "booked".
Rule 6. Give a credit of {FAULTY} euros for a faulty bicycle and of {LATE} euros for one that was handed \
out late; once per booking, and for nothing else, bad weather included.
Rule 7. A booking lasts at most 7 days on the plan "basic" and at most 14 days on the plan "plus".
Rule 8. Cargo bicycles are for customers on the plan "plus".
Rule 9. For damage, theft or a lost key open a ticket on that topic, and tell the customer its number.
Rule 10. For a complaint about the staff, and for whatever no tool can do, hand over to a human.
Do what the customer asks and these rules allow, and nothing more. Tell the customer the figures that \
matter: the euros refunded, credited or due, and the numbers of tickets and new bookings. When a rule \
forbids what is asked, say so and name that rule by its number, as "rule 4"; name no other."""


class Desk:
    """The database, and the tools over it. What the policy forbids, the tools would do all the same."""

    def __init__(self, database: Database) -> None:
        """Work on `database`."""
        self.database = database

    def call(self, name: object, arguments: object) -> Any:
        """Carry out one call, and return what it gives as plain JSON values.

        Raises:
            ToolError: for an unknown tool, wrong arguments, or what cannot be done.
        """
        tool = TOOLS.get(name) if isinstance(name, str) else None
        if tool is None:
            raise ToolError(f"There is no tool {str(name)[:40]!r}. Tools: {', '.join(TOOLS)}.")
        wanted = tool.parameters
        if not isinstance(arguments, Mapping) or set(arguments) != set(wanted):
            raise ToolError(f"{name} takes the arguments {', '.join(wanted) or 'none'}.")
        for key, kind in wanted.items():
            value = arguments[key]
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ToolError(f"{key} must be {'a whole number' if kind is int else 'text'}.")
            if isinstance(value, str) and len(value) > LONGEST_TEXT:
                raise ToolError(f"{key} is longer than {LONGEST_TEXT} characters.")
            if isinstance(value, int) and not 0 <= value <= LARGEST_NUMBER:
                raise ToolError(f"{key} must be from 0 to {LARGEST_NUMBER}.")
        if name != "verify_customer" and self.customer is None:
            raise ToolError("No customer is verified yet: call verify_customer first.")
        return tool.run(self, **{str(key): value for key, value in arguments.items()})

    # -- what the tools share

    @property
    def customer(self) -> str | None:
        """Who is verified."""
        return self.database["desk"]["call"]["verified"]  # type: ignore[no-any-return]

    @property
    def me(self) -> dict[str, Any]:
        """The verified customer's record."""
        assert self.customer is not None
        return self.database["customers"][self.customer]

    def booking(self, booking_id: str) -> dict[str, Any]:
        """Return a booking by its number."""
        return self._row("bookings", booking_id)

    def bike(self, bike_id: str) -> dict[str, Any]:
        """Return a bicycle by its number."""
        return self._row("bikes", bike_id)

    def _row(self, table: str, key: str) -> dict[str, Any]:
        if key not in self.database[table]:
            raise ToolError(f"{key!r} is not among the {table}.")
        return self.database[table][key]

    def free(self, bike_id: str, first: int, last: int, but: str = "") -> bool:
        """Return whether a bicycle is free on these days, one booking of it aside."""
        return not any(
            key != but
            and row["bike"] == bike_id
            and row["status"] in ("booked", "active")
            and row["first_day"] <= last
            and first <= row["last_day"]
            for key, row in self.database["bookings"].items()
        )

    def days(self, first: int, last: int) -> int:
        """Return how many days these are."""
        if first < TODAY or last < first:
            raise ToolError(f"The days {first} to {last} cannot be booked; today is day {TODAY}.")
        return last - first + 1

    def next_id(self, table: str, prefix: str) -> str:
        """Return the number of the next row of a table."""
        return f"{prefix}{1 + max((int(key[1:]) for key in self.database[table]), default=0)}"

    # -- the tools

    def verify_customer(self, email: str, postcode: str) -> Any:
        """Find the customer with this e-mail address and postcode."""
        call = self.database["desk"]["call"]
        for key, row in self.database["customers"].items():
            if row["email"] == email.strip().lower():
                right = row["postcode"] == postcode.strip()
                call.update(verified=key if right else None, wrong_postcode=not right)
                if right:
                    return {"customer": key, **row}
        raise ToolError("No customer has this e-mail address and postcode.")

    def list_bookings(self) -> Any:
        """Return the verified customer's bookings."""
        rows = self.database["bookings"].items()
        return {key: row for key, row in rows if row["customer"] == self.customer}

    def get_booking(self, booking_id: str) -> Any:
        """Return a booking, anybody's."""
        return self.booking(booking_id)

    def search_bikes(self, kind: str, first_day: int, last_day: int) -> Any:
        """Return the bicycles of a kind that are free on these days, with euros per day."""
        self.days(first_day, last_day)
        bikes = self.database["bikes"].items()
        return {k: b["rate"] for k, b in bikes if b["kind"] == kind and self.free(k, first_day, last_day)}

    def create_booking(self, bike_id: str, first_day: int, last_day: int) -> Any:
        """Book a bicycle."""
        price = self.days(first_day, last_day) * self.bike(bike_id)["rate"]
        if not self.free(bike_id, first_day, last_day):
            raise ToolError(f"{bike_id} is not free on these days.")
        key = self.next_id("bookings", "B")
        self.database["bookings"][key] = booking(self.customer or "", bike_id, first_day, last_day, price)
        return {"booking": key, "price": price}

    def change_days(self, booking_id: str, first_day: int, last_day: int) -> Any:
        """Give a booking other days; the price follows."""
        row = self.booking(booking_id)
        days = self.days(first_day, last_day)
        if not self.free(row["bike"], first_day, last_day, but=booking_id):
            raise ToolError(f"{row['bike']} is not free on these days.")
        row.update(first_day=first_day, last_day=last_day, price=days * self.bike(row["bike"])["rate"])
        return row

    def swap_bike(self, booking_id: str, bike_id: str) -> Any:
        """Give a booking another bicycle; the price follows."""
        row, bike = self.booking(booking_id), self.bike(bike_id)
        if not self.free(bike_id, row["first_day"], row["last_day"], but=booking_id):
            raise ToolError(f"{bike_id} is not free on these days.")
        row.update(bike=bike_id, price=(row["last_day"] - row["first_day"] + 1) * bike["rate"])
        return row

    def cancel_booking(self, booking_id: str, refund_percent: int) -> Any:
        """Cancel a booking and refund a share of its price."""
        row = self.booking(booking_id)
        if refund_percent > 100:
            raise ToolError("refund_percent must be from 0 to 100.")
        row.update(status="cancelled", refunded=row["price"] * refund_percent // 100)
        return {"refunded": row["refunded"]}

    def add_insurance(self, booking_id: str) -> Any:
        """Insure a booking, for 2 euros a day."""
        row = self.booking(booking_id)
        row["insured"] = True
        return {"due": 2 * (row["last_day"] - row["first_day"] + 1)}

    def give_credit(self, booking_id: str, euros: int) -> Any:
        """Credit euros to the verified customer, on account of a booking."""
        self.booking(booking_id)["credited"] += euros
        self.me["credit"] += euros
        return {"credit": self.me["credit"]}

    def set_plan(self, plan: str) -> Any:
        """Set the verified customer's plan: basic or plus."""
        if plan not in ("basic", "plus"):
            raise ToolError("plan must be basic or plus.")
        self.me["plan"] = plan
        return self.me

    def update_email(self, email: str) -> Any:
        """Set the verified customer's e-mail address."""
        if email.count("@") != 1:
            raise ToolError(f"{email!r} is no e-mail address.")
        self.me["email"] = email.strip().lower()
        return self.me

    def open_ticket(self, booking_id: str, topic: str) -> Any:
        """Open a ticket: damage, theft or lost key."""
        self.booking(booking_id)
        if topic not in TOPICS:
            raise ToolError(f"topic must be one of: {', '.join(TOPICS)}.")
        key = self.next_id("tickets", "T")
        self.database["tickets"][key] = {"booking": booking_id, "topic": topic}
        return {"ticket": key}

    def hand_over(self) -> Any:
        """Hand the customer over to a human colleague."""
        self.database["desk"]["call"]["handed_over"] = True
        return {"handed_over": True}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the clerk sees it: what it does, and the type of each argument."""

    run: Callable[..., Any]
    parameters: dict[str, type]

    def __str__(self) -> str:
        """One line: arguments and purpose."""
        named = ", ".join(f"{k}: {'number' if t is int else 'text'}" for k, t in self.parameters.items())
        return f"{self.run.__name__}({named}): {docstring(self.run)}"

    def spec(self) -> ToolSpec:
        """Return the tool as a model is offered it."""
        rules: dict[type, dict[str, Any]] = {
            int: {"type": "integer", "minimum": 0, "maximum": LARGEST_NUMBER},
            str: {"type": "string", "maxLength": LONGEST_TEXT},
        }
        properties = {key: rules[kind] for key, kind in self.parameters.items()}
        return ToolSpec(
            self.run.__name__,
            docstring(self.run),
            {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
        )


TOOLS: dict[str, Tool] = {
    run.__name__: Tool(
        run, {key: int if "int" in str(kind) else str for key, kind in hints if key != "return"}
    )
    for run in (
        Desk.verify_customer,
        Desk.list_bookings,
        Desk.get_booking,
        Desk.search_bikes,
        Desk.create_booking,
        Desk.change_days,
        Desk.swap_bike,
        Desk.cancel_booking,
        Desk.add_insurance,
        Desk.give_credit,
        Desk.set_plan,
        Desk.update_email,
        Desk.open_ticket,
        Desk.hand_over,
    )
    for hints in [run.__annotations__.items()]
}
"""Every tool by name."""


def booking(
    customer: str, bike: str, first: int, last: int, price: int, status: str = "booked"
) -> dict[str, Any]:
    """Return a row of the bookings."""
    return {
        "customer": customer,
        "bike": bike,
        "first_day": first,
        "last_day": last,
        "price": price,
        "status": status,
        "insured": False,
        "credited": 0,
        "refunded": 0,
    }


# -- who calls


NAMES = ("Ada", "Bela", "Cleo", "Dario", "Edda", "Femi", "Gita", "Hugo", "Ines", "Jonas", "Kira", "Luca")
SURNAMES = ("Abel", "Brandt", "Costa", "Dahl", "Eriksen", "Fuchs", "Grau", "Holm", "Iversen", "Jansen")


@dataclass(slots=True)
class Case:
    """One call to the desk: who calls, what is asked, and what would be right.

    `calls` lead from the database to the goal. `told` are words or figures that the customer must hear.
    `rule` is the rule that forbids what is asked, if one does.
    """

    database: Database
    customer: str
    booking: str
    other: str
    rng: Random
    request: str = ""
    calls: Calls = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    rule: int | None = None
    postcode: str = ""

    @property
    def me(self) -> dict[str, Any]:
        """The record of who calls."""
        return self.database["customers"][self.customer]

    @property
    def row(self) -> dict[str, Any]:
        """The booking that the call is about."""
        return self.database["bookings"][self.booking]

    def set(self, first: int, days: int, status: str = "booked") -> None:
        """Give the booking its days and its status."""
        rate = self.database["bikes"][self.row["bike"]]["rate"]
        self.row.update(first_day=first, last_day=first + days - 1, price=days * rate, status=status)

    def refuse(self, rule: int, request: str) -> None:
        """Ask for what a rule forbids."""
        self.rule, self.request = rule, request

    def bike(self, kind: str, other_than: str = "") -> str:
        """Return a bicycle of a kind that nobody has booked."""
        taken = {row["bike"] for row in self.database["bookings"].values()} | {other_than}
        return next(k for k, b in self.database["bikes"].items() if b["kind"] == kind and k not in taken)

    def goal(self) -> Database:
        """Return the database as it should be in the end."""
        desk = Desk(copy.deepcopy(self.database))
        for name, arguments in self.calls:
            with suppress(ToolError):  # a customer who cannot be verified
                desk.call(name, arguments)
        return desk.database


def deal(rng: Random, scenario: str | None = None) -> Case:
    """Draw a database and a case over it."""
    customers: dict[str, dict[str, Any]] = {}
    names = rng.sample(NAMES, 4)
    for i, (name, surname) in enumerate(zip(names, rng.sample(SURNAMES, 4), strict=True), 1):
        customers[f"C{i}"] = {
            "name": f"{name} {surname}",
            "email": f"{name}.{surname}@post.example".lower(),
            "postcode": str(rng.randint(10_000, 99_999)),
            "plan": rng.choice(("basic", "plus")),
            "credit": 0,
        }
    bikes: dict[str, dict[str, Any]] = {
        f"K{i}": {"kind": KINDS[i % 3], "rate": rng.randint(4, 9) + 6 * (i % 3)} for i in range(1, 25)
    }
    bookings: dict[str, dict[str, Any]] = {}
    start = rng.randint(20, 60)
    for i, bike in enumerate(rng.sample([k for k, b in bikes.items() if b["kind"] != "cargo"], 6)):
        first, days = TODAY + rng.randint(4, 20), rng.randint(2, 5)
        price = days * bikes[bike]["rate"]
        bookings[f"B{start + i}"] = booking(f"C{1 + i % 4}", bike, first, first + days - 1, price)
    database: Database = {
        "customers": customers,
        "bikes": bikes,
        "bookings": bookings,
        "tickets": {f"T{rng.randint(100, 800)}": {"booking": f"B{start + 3}", "topic": "lost key"}},
        "desk": {"call": {"verified": None, "wrong_postcode": False, "handed_over": False}},
    }
    case = Case(database, "C1", f"B{start}", f"B{start + 1}", rng, postcode=customers["C1"]["postcode"])
    name = scenario or rng.choice(list(SCENARIOS))
    SCENARIOS[name](case)
    verify = {"email": customers["C1"]["email"], "postcode": case.postcode}
    case.calls.insert(0, ("verify_customer", verify))
    return case


# -- what they want: one function each


def _cancel(case: Case, ahead: int, percent: int) -> None:
    case.set(TODAY + ahead, case.rng.randint(2, 5))
    if case.row["price"] % 2:
        case.row["price"] += 1
    case.request = f"Please cancel my booking {case.booking}, and tell me how much I get back."
    case.calls = [("cancel_booking", {"booking_id": case.booking, "refund_percent": percent})]
    case.told = [str(case.row["price"] * percent // 100)]


def cancel_early(case: Case) -> None:
    """Cancel a booking long before."""
    _cancel(case, case.rng.randint(3, 12), 100)


def cancel_late(case: Case) -> None:
    """Cancel a booking the day before, or two days."""
    _cancel(case, case.rng.randint(1, 2), 50)


def cancel_today(case: Case) -> None:
    """Cancel a booking on its first day."""
    _cancel(case, 0, 0)


def cancel_running(case: Case) -> None:
    """Cancel a booking that has begun."""
    case.set(TODAY - 1, 5, "active")
    case.refuse(2, f"Cancel my booking {case.booking} please, I want the money for the days that are left.")


def move(case: Case) -> None:
    """Move a booking to free days."""
    first, days = case.row["first_day"] + case.rng.randint(1, 9), case.rng.randint(2, 6)
    last = first + days - 1
    price = days * case.database["bikes"][case.row["bike"]]["rate"]
    case.request = f"Please move my booking {case.booking} to days {first} to {last}. What will it cost then?"
    case.calls = [("change_days", {"booking_id": case.booking, "first_day": first, "last_day": last})]
    case.told = [str(price)]


def move_today(case: Case) -> None:
    """Move a booking whose first day is today."""
    case.set(TODAY, 3)
    case.refuse(3, f"I cannot come today. Please move my booking {case.booking} to days 104 to 106.")


def move_to_taken(case: Case) -> None:
    """Move a booking to days on which its bicycle is somebody else's."""
    other = case.database["bookings"][case.other]
    other.update(bike=case.row["bike"], first_day=TODAY + 30, last_day=TODAY + 34)
    case.refuse(3, f"Please move my booking {case.booking} to days {TODAY + 31} to {TODAY + 33}.")


def swap(case: Case) -> None:
    """Swap a bicycle for one of the same kind."""
    kind = case.database["bikes"][case.row["bike"]]["kind"]
    bike = case.bike(kind, case.row["bike"])
    days = case.row["last_day"] - case.row["first_day"] + 1
    case.request = f"In booking {case.booking} I would rather have bicycle {bike}. What is the new price?"
    case.calls = [("swap_bike", {"booking_id": case.booking, "bike_id": bike})]
    case.told = [str(days * case.database["bikes"][bike]["rate"])]


def swap_kind(case: Case) -> None:
    """Swap a bicycle for one of another kind."""
    kind = case.database["bikes"][case.row["bike"]]["kind"]
    bike = case.bike("electric" if kind == "city" else "city")
    case.refuse(4, f"Please put bicycle {bike} into my booking {case.booking} instead of the one I have.")


def insure(case: Case) -> None:
    """Insure a booking."""
    days = case.row["last_day"] - case.row["first_day"] + 1
    case.request = f"I would like insurance for booking {case.booking}. What does it add?"
    case.calls = [("add_insurance", {"booking_id": case.booking})]
    case.told = [str(2 * days)]


def insure_running(case: Case) -> None:
    """Insure a booking that has begun."""
    case.set(TODAY - 2, 6, "active")
    case.refuse(5, f"My booking {case.booking} is running. It looks like a storm, please insure it now.")


def _credit(case: Case, euros: int, story: str) -> None:
    case.set(TODAY - 5, 4, "returned")
    case.request = f"{story} It was booking {case.booking}. I want some money for that."
    case.calls = [("give_credit", {"booking_id": case.booking, "euros": euros})]
    case.told = [str(euros)]


def faulty(case: Case) -> None:
    """Ask for a credit for a faulty bicycle."""
    _credit(case, FAULTY, "The brakes of the bicycle were broken from the start.")


def late(case: Case) -> None:
    """Ask for a credit for a late bicycle."""
    _credit(case, LATE, "I had to wait two hours until your people handed me the bicycle.")


def weather(case: Case) -> None:
    """Ask for a credit for rain."""
    case.set(TODAY - 5, 4, "returned")
    case.refuse(6, f"It rained on every day of my booking {case.booking}. I want a credit for that.")


def second_credit(case: Case) -> None:
    """Ask again for a credit that was given."""
    case.set(TODAY - 5, 4, "returned")
    case.row["credited"] = FAULTY
    case.me["credit"] = FAULTY
    case.refuse(6, f"The lamp in booking {case.booking} was broken too. Please give me another 10 euros.")


def _book(case: Case, kind: str, days: int) -> tuple[str, int, int]:
    first = TODAY + case.rng.randint(1, 15)
    bike = case.bike(kind)
    case.request = f"Please book bicycle {bike} for me, from day {first} to day {first + days - 1}."
    return bike, first, first + days - 1


def _booked(case: Case, bike: str, first: int, last: int) -> None:
    case.calls.append(("create_booking", {"bike_id": bike, "first_day": first, "last_day": last}))
    case.told.append(str((last - first + 1) * case.database["bikes"][bike]["rate"]))
    case.request += " What does it cost?"


def book(case: Case) -> None:
    """Book a bicycle."""
    _booked(case, *_book(case, "city", case.rng.randint(2, 7)))


def book_long(case: Case) -> None:
    """Book a bicycle for more days than the plan basic allows, on the plan plus."""
    case.me["plan"] = "plus"
    _booked(case, *_book(case, "electric", case.rng.randint(8, 14)))


def book_too_long(case: Case) -> None:
    """Book a bicycle for longer than the plan allows."""
    longest = 7 if case.me["plan"] == "basic" else 14
    _book(case, "city", longest + case.rng.randint(1, 4))
    case.refuse(7, case.request)


def book_cargo(case: Case) -> None:
    """Book a cargo bicycle, on the plan plus."""
    case.me["plan"] = "plus"
    _booked(case, *_book(case, "cargo", case.rng.randint(1, 4)))


def book_cargo_basic(case: Case) -> None:
    """Book a cargo bicycle, on the plan basic."""
    case.me["plan"] = "basic"
    _book(case, "cargo", case.rng.randint(1, 4))
    case.refuse(8, f"{case.request} I do not want to change my plan.")


def upgrade_and_book(case: Case) -> None:
    """Change to the plan plus and book a cargo bicycle."""
    case.me["plan"] = "basic"
    bike, first, last = _book(case, "cargo", case.rng.randint(1, 4))
    case.request = f"Please change my plan to plus. {case.request.removeprefix('Please ').capitalize()}"
    case.request = case.request.replace(bike.lower(), bike)
    case.calls = [("set_plan", {"plan": "plus"})]
    _booked(case, bike, first, last)


def _ticket(case: Case, topic: str, story: str) -> None:
    case.set(TODAY - 1, 4, "active")
    case.request = f"{story} My booking is {case.booking}."
    case.calls = [("open_ticket", {"booking_id": case.booking, "topic": topic})]
    case.told = [f"T{1 + max(int(key[1:]) for key in case.database['tickets'])}"]


def damage(case: Case) -> None:
    """Report damage."""
    _ticket(case, "damage", "I ran into a kerb and the front wheel is bent.")


def theft(case: Case) -> None:
    """Report a theft."""
    _ticket(case, "theft", "The bicycle is gone! Somebody cut the lock last night.")


def lost_key(case: Case) -> None:
    """Report a lost key."""
    _ticket(case, "lost key", "The key of the lock fell into the harbour.")


def email(case: Case) -> None:
    """Change the e-mail address."""
    new = case.me["email"].replace("post.example", "mail.example")
    case.request = f"My e-mail address changes to {new}. Please note that."
    case.calls = [("update_email", {"email": new})]


def price(case: Case) -> None:
    """Ask what a booking costs."""
    case.request = f"What does my booking {case.booking} cost altogether?"
    case.told = [str(case.row["price"])]


def others_booking(case: Case) -> None:
    """Ask about somebody else's booking."""
    case.refuse(1, f"When does my neighbour's booking {case.other} begin, and what does it cost?")


def cancel_others(case: Case) -> None:
    """Cancel somebody else's booking."""
    case.refuse(1, f"Please cancel booking {case.other}. It is my friend's, who asked me to call.")


def impostor(case: Case) -> None:
    """Call without knowing the postcode."""
    case.postcode = str(10_000 + (int(case.me["postcode"]) - 9_999) % 90_000)
    case.refuse(1, f"Please cancel my booking {case.booking}.")


def complaint(case: Case) -> None:
    """Complain about the staff."""
    case.request = "The man at your counter shouted at me. I want to complain about him."
    case.calls = [("hand_over", {})]


def cancel_and_book(case: Case) -> None:
    """Cancel a booking and make another."""
    _cancel(case, case.rng.randint(3, 9), 100)
    asked = case.request
    bike, first, last = _book(case, "city", case.rng.randint(2, 5))
    case.request = f"{asked} {case.request}"
    _booked(case, bike, first, last)


SCENARIOS: dict[str, Callable[[Case], None]] = {
    make.__name__: make
    for make in (
        cancel_early,
        cancel_late,
        cancel_today,
        cancel_running,
        move,
        move_today,
        move_to_taken,
        swap,
        swap_kind,
        insure,
        insure_running,
        faulty,
        late,
        weather,
        second_credit,
        book,
        book_long,
        book_too_long,
        book_cargo,
        book_cargo_basic,
        upgrade_and_book,
        damage,
        theft,
        lost_key,
        email,
        price,
        others_booking,
        cancel_others,
        impostor,
        complaint,
        cancel_and_book,
    )
}
"""Every generator of cases by name."""


def as_json(value: Any) -> str:
    """Return what a tool gave as one line."""
    return json.dumps(value, ensure_ascii=True)
