"""Generator of short stories that ask for a number: six kinds, each with any number of steps."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from random import Random
from typing import NamedTuple

from gem.tasks.procedural import Problem

NAMES = (
    *(
        "Ada",
        "Amir",
        "Bela",
        "Chidi",
        "Dana",
        "Elif",
        "Farid",
        "Greta",
        "Hana",
        "Ivan",
        "Jun",
        "Kofi",
        "Lena",
    ),
    *("Mara", "Nils", "Olga", "Pablo", "Rosa", "Sami", "Tariq", "Uma", "Vera", "Wanda", "Yuki", "Zora"),
)
THINGS = (
    "marbles",
    "stickers",
    "shells",
    "stamps",
    "pencils",
    "beads",
    "coins",
    "cards",
    "buttons",
    "acorns",
)
GOODS = (
    "notebooks",
    "lamps",
    "mugs",
    "scarves",
    "kites",
    "brushes",
    "candles",
    "baskets",
    "puzzles",
    "bowls",
)
FRUIT = ("apples", "pears", "plums", "oranges", "lemons", "peaches")
IDLE = (
    "The day before, it had rained for {number} minutes.",
    "There are {number} chairs in the room.",
    "{name}'s house has the number {number}.",
    "A neighbour has {number} hens.",
    "The radio played {number} songs meanwhile.",
)
"""Sentences with a number that is irrelevant to the question."""


class Amount(NamedTuple):
    """A whole number and the Python expression that gives it."""

    value: int
    working: str

    def then(self, operation: str, number: int | Amount) -> Amount:
        """Return the amount after ``+``, ``-``, ``*``, ``//`` or ``%`` with another."""
        other = start_with(number) if isinstance(number, int) else number
        left, right = self.working, other.working
        if operation not in "+-" and " " in left:
            left = f"({left})"
        if operation != "+" and " " in right:
            right = f"({right})"
        return Amount(OPERATIONS[operation](self.value, other.value), f"{left} {operation} {right}")


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


class Story(NamedTuple):
    """Sentences in order, the question after them, and its answer."""

    sentences: list[str]
    question: str
    answer: Amount


def start_with(number: int) -> Amount:
    """Return a number of the story as an amount."""
    return Amount(number, str(number))


def add(amounts: list[Amount]) -> Amount:
    """Return the sum of one or more amounts."""
    return reduce(lambda total, each: total.then("+", each), amounts)


@dataclass(frozen=True)
class WordProblems:
    """A generator of stories: `steps` steps, numbers up to `largest`, and irrelevant sentences."""

    steps: tuple[int, int]
    largest: int
    distractors: tuple[int, int]
    kinds: tuple[str, ...]

    def __call__(self, rng: Random) -> Problem:
        """Draw a problem."""
        story = KINDS[rng.choice(self.kinds)](rng, rng.randint(*self.steps), self.largest)
        sentences = story.sentences
        for idle in rng.sample(IDLE, rng.randint(*self.distractors)):
            aside = idle.format(name=rng.choice(NAMES), number=rng.randint(2, self.largest))
            sentences.insert(rng.randint(1, len(sentences)), aside)
        value, working = story.answer
        return Problem(" ".join([*sentences, story.question]), str(value), working=working)


def collection(rng: Random, steps: int, largest: int) -> Story:
    """Make a story in which something is collected, given away, multiplied and shared."""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    amount = start_with(rng.randint(2, largest))
    sentences = [f"{name} has {amount.value} {thing}."]
    for _ in range(steps):
        friend = rng.choice([other for other in NAMES if other != name])
        n = rng.randint(2, largest)
        k = rng.randint(2, 5)
        moves = [(f"{friend} gives {name} {n} more {thing}.", amount.then("+", n))]
        if amount.value > 3:
            few = rng.randint(2, amount.value - 1)
            moves.append((f"{name} loses {few} of the {thing}.", amount.then("-", few)))
        if amount.value <= 10 * largest:
            swap = f"Then {name} swaps the {thing} with {friend} for {k} times as many."
            moves.append((swap, amount.then("*", k)))
        if amount.value % k == 0 and amount.value > k:
            share = f"{name} shares the {thing} equally among {k} people, {name} included."
            moves.append((share, amount.then("//", k)))
        sentence, amount = rng.choice(moves)
        sentences.append(sentence)
    return Story(sentences, f"How many {thing} does {name} have now?", amount)


def shopping(rng: Random, steps: int, largest: int) -> Story:
    """Make a story in which things are bought; from three steps on, it asks for the change."""
    name = rng.choice(NAMES)
    change = steps > 2
    bought = rng.sample(GOODS, min(len(GOODS), steps - change))
    sentences, costs = [f"{name} goes to the market."], []
    for goods in bought:
        count, price = rng.randint(2, 9), rng.randint(2, largest)
        costs.append(start_with(count).then("*", price))
        sentences.append(f"{name} buys {count} {goods} at {price} dollars each.")
    total = add(costs)
    if not change:
        return Story(sentences, f"How many dollars does {name} spend in all?", total)
    note = (total.value // 100 + rng.randint(1, 3)) * 100
    sentences.append(f"{name} pays with {note} dollars.")
    return Story(sentences, f"How many dollars does {name} get back?", start_with(note).then("-", total))


def journey(rng: Random, steps: int, largest: int) -> Story:
    """Make a story about a journey in stretches of different speeds."""
    name = rng.choice(NAMES)
    sentences, lengths = [f"{name} makes a journey by train."], []
    for stretch in range(steps):
        speed, hours = rng.randint(3, 3 + largest), rng.randint(2, 8)
        lengths.append(start_with(speed).then("*", hours))
        when = "First" if stretch == 0 else "Then"
        sentences.append(f"{when} the train goes at {speed} kilometres an hour for {hours} hours.")
    return Story(sentences, f"How many kilometres is {name}'s journey?", add(lengths))


def ages(rng: Random, steps: int, largest: int) -> Story:
    """Make a story in which one age follows from another."""
    people = rng.sample(NAMES, steps + 1)
    age = start_with(rng.randint(3, 12))
    sentences = [f"{people[0]} is {age.value} years old."]
    for before, name in pairwise(people):
        n, k = rng.randint(2, largest), rng.randint(2, 3)
        relations = [(f"{name} is {n} years older than {before}.", age.then("+", n))]
        if age.value * k <= 100:
            times = "twice" if k == 2 else "three times"
            relations.append((f"{name} is {times} as old as {before}.", age.then("*", k)))
        if age.value > 4:
            few = rng.randint(2, age.value - 2)
            relations.append((f"{name} is {few} years younger than {before}.", age.then("-", few)))
        sentence, age = rng.choice(relations)
        sentences.append(sentence)
    return Story(sentences, f"How old is {people[-1]}?", age)


def harvest(rng: Random, steps: int, largest: int) -> Story:
    """Make a story in which fruit is picked, partly spoiled or eaten, and packed into crates."""
    fruit = rng.choice(FRUIT)
    pickers, each = rng.randint(2, 9), rng.randint(2, largest)
    amount = start_with(pickers).then("*", each)
    sentences = [f"{pickers} people pick {each} {fruit} each."]
    for _ in range(steps - 2):
        if rng.random() < 0.5 and amount.value > 3:
            few = rng.randint(2, amount.value // 2)
            amount = amount.then("-", few)
            fate = rng.choice(("spoiled", "eaten", "sold at the gate"))
            sentences.append(f"Then {few} of the {fruit} are {fate}.")
        else:
            n = rng.randint(2, largest)
            amount = amount.then("+", n)
            sentences.append(f"{rng.choice(NAMES)} brings {n} more {fruit}.")
    if steps < 2:
        return Story(sentences, f"How many {fruit} are there?", amount)
    size = rng.randint(2, 9)
    sentences.append(f"The {fruit} are packed into crates of {size}, and only full crates are sold.")
    if rng.random() < 0.5:
        return Story(sentences, "How many crates are sold?", amount.then("//", size))
    return Story(sentences, f"How many {fruit} are left over?", amount.then("%", size))


def savings(rng: Random, steps: int, largest: int) -> Story:
    """Make a story in which money is saved every week, and spent."""
    name = rng.choice(NAMES)
    amount = start_with(rng.randint(1, 5) * 20)
    sentences = [f"{name} has {amount.value} dollars."]
    for _ in range(steps):
        weeks, sum_ = rng.randint(2, 12), rng.randint(2, largest)
        saved = amount.then("+", start_with(weeks).then("*", sum_))
        moves = [(f"{name} saves {sum_} dollars a week for {weeks} weeks.", saved)]
        for part, text in ((2, "half"), (4, "a quarter"), (5, "a fifth")):
            if amount.value % part == 0 and amount.value >= 10:
                left = amount.then("*", part - 1) if part > 2 else amount
                moves.append((f"{name} spends {text} of the money on a gift.", left.then("//", part)))
        sentence, amount = rng.choice(moves)
        sentences.append(sentence)
    return Story(sentences, f"How many dollars does {name} have in the end?", amount)


KINDS: dict[str, Callable[[Random, int, int], Story]] = {
    kind.__name__: kind for kind in (collection, shopping, journey, ages, harvest, savings)
}
"""The kinds of story, by name."""

MOST_STEPS = 8
