"""What crosses between a remote host and a server, and what comes back of it."""

from __future__ import annotations

from typing import Any

import pytest

from gem.core import Start, Step
from gem.errors import BadAction, NoVerdict
from gem.hosts import wire
from gem.hosts.verbs import Description
from gem.specs import TaskRef


def cross(verb: str, value: Any) -> Any:
    (answer,) = wire.ANSWERS.decode(wire.ENCODER.encode([wire.Answer(1, wire.pack(verb, value))]))
    return wire.unpack(verb, answer.value)


@pytest.mark.parametrize(
    ("verb", "value"),
    [
        ("reset", Start("go", {"n": 1})),
        ("step", Step("on", 0.5, False, True, {"n": None})),
        ("advance", ("on", 0.5, True, False, {"final_obs": "end"})),
        ("describe", Description(TaskRef("test:Any", {"a": 1}), True)),
        ("sample_random_action", "4"),
        ("expert_action", None),
        ("introduce", ("test:Any", 3)),
    ],
)
def test_a_value_comes_back_as_the_kind_of_its_verb(verb: str, value: Any) -> None:
    back = cross(verb, value)
    assert (type(back), back) == (type(value), value)


def test_what_is_not_said_is_not_written() -> None:
    assert wire.ENCODER.encode([wire.Answer(1, 5), wire.Answer(2)]) == b'[{"id":1,"value":5},{"id":2}]'
    asked = wire.request(3, "s" * 16, "step", ("x",), {}, None)
    assert wire.ENCODER.encode(asked) == b'{"id":3,"session":"' + b"s" * 16 + b'","verb":"step","args":["x"]}'


def test_an_error_comes_back_by_its_name() -> None:
    assert type(wire.error_of(wire.Error("BadAction", "no"))) is BadAction
    for no_verdict, unnamed in ((False, "RuntimeError"), (True, "NoVerdict")):
        unknown = wire.error_of(wire.Error("TheirError", "no", no_verdict))
        assert (type(unknown).__name__, isinstance(unknown, NoVerdict), str(unknown)) == (
            "TheirError",
            no_verdict,
            "no",
        )
        assert type(wire.error_of(wire.Error("no name", "no", no_verdict))).__name__ == unnamed
    own = wire.error_of(wire.Error("OutOfTime", "a class of the environment"))
    assert (type(own).__name__, isinstance(own, NoVerdict)) == ("OutOfTime", False)
