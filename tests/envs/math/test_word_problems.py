import ast
import operator
import re

import pytest

from gem.envs.math.word_problems import IDLE, KINDS, NAMES, WordProblems
from gem.tasks.procedural import ProceduralTasks


def stories(kind, steps=(1, 5), distractors=(0, 0), n=150):
    tasks = ProceduralTasks("stories", WordProblems(steps, 20, distractors, (kind,)))
    return [(tasks[i].question, int(tasks[i].reference)) for i in range(n)]


def numbers(sentence):
    return [int(n) for n in re.findall(r"\d+", sentence)]


def collection(sentences):
    (amount,) = numbers(sentences[0])
    for sentence in sentences[1:]:
        (n,) = numbers(sentence)
        if "more" in sentence:
            amount += n
        elif "loses" in sentence:
            amount -= n
        elif "times as many" in sentence:
            amount *= n
        else:
            assert "shares" in sentence
            assert amount % n == 0
            amount //= n
    return amount


def shopping(sentences):
    *bought, last = sentences[1:]
    if "pays" not in last:
        return sum(count * price for count, price in map(numbers, sentences[1:]))
    return numbers(last)[0] - sum(count * price for count, price in map(numbers, bought))


def journey(sentences):
    return sum(speed * hours for speed, hours in map(numbers, sentences[1:]))


def ages(sentences):
    known = {}
    for sentence in sentences:
        first, *others = [word for word in re.findall(r"\w+", sentence) if word in NAMES]
        if "older" in sentence:
            known[first] = known[others[0]] + numbers(sentence)[0]
        elif "younger" in sentence:
            known[first] = known[others[0]] - numbers(sentence)[0]
        elif "twice" in sentence or "three times" in sentence:
            known[first] = known[others[0]] * (2 if "twice" in sentence else 3)
        else:
            known[first] = numbers(sentence)[0]
        assert known[first] > 0
    return known[first]


def harvest(sentences, question):
    pickers, each = numbers(sentences[0])
    amount = pickers * each
    for sentence in sentences[1:]:
        (n,) = numbers(sentence)
        if "more" in sentence:
            amount += n
        elif "crates of" in sentence:
            amount = amount // n if "crates" in question else amount % n
        else:
            amount -= n
    return amount


def savings(sentences):
    (amount,) = numbers(sentences[0])
    for sentence in sentences[1:]:
        if "saves" in sentence:
            each, weeks = numbers(sentence)
            amount += each * weeks
        else:
            part = 2 if "half" in sentence else 4 if "quarter" in sentence else 5
            assert amount % part == 0
            amount -= amount // part
    return amount


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_what_the_story_says(kind):
    read = {"harvest": harvest}.get(kind, globals()[kind])
    for text, answer in stories(kind):
        *sentences, question = re.findall(r"[^.?]+[.?]", text)
        found = read(sentences, question) if kind == "harvest" else read(sentences)
        assert found == answer >= 0, text


def evaluate(expression):
    """Return the value of whole numbers, the five operations and brackets."""
    node = expression if isinstance(expression, ast.expr) else ast.parse(expression, mode="eval").body
    if isinstance(node, ast.Constant):
        return node.value
    operation = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod"}
    return getattr(operator, operation[type(node.op)])(evaluate(node.left), evaluate(node.right))


@pytest.mark.parametrize("kind", KINDS)
def test_the_working_of_a_story_gives_its_answer(kind):
    tasks = ProceduralTasks("stories", WordProblems((1, 8), 60, (0, 3), (kind,)))
    for at in range(150):
        assert str(evaluate(tasks[at].info["working"])) == tasks[at].reference, tasks[at]


@pytest.mark.parametrize("kind", KINDS)
def test_more_steps_make_longer_stories(kind):
    def length(steps):
        return sum(len(text) for text, _ in stories(kind, steps, n=50))

    assert length((1, 1)) < length((3, 3)) < length((8, 8))


def test_what_does_not_matter_stands_among_the_rest_and_changes_no_answer():
    idle = [
        re.compile(re.escape(text).replace(r"\{name\}", r"\w+").replace(r"\{number\}", r"\d+"))
        for text in IDLE
    ]
    for kind in KINDS:
        plain = stories(kind, distractors=(0, 0), n=30)
        mixed = stories(kind, distractors=(2, 2), n=30)
        for (bare, answer), (text, same) in zip(plain, mixed, strict=True):
            found = [match.group() for pattern in idle for match in pattern.finditer(text)]
            assert len(found) == 2
            for sentence in found:
                text = text.replace(f" {sentence}", "", 1)
            assert (text, same) == (bare, answer)


def test_grammar_holds():
    for kind in KINDS:
        for text, _ in stories(kind, (1, 8)):
            assert not re.search(r"\b1 (years|more|of the)\b", text), text
            assert "  " not in text
