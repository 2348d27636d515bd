"""The single-turn categories of the function-calling leaderboard, against the package's own scorer."""

import json
from importlib import import_module
from types import SimpleNamespace

import pytest

import gem
from gem.registry import FAMILIES

if not FAMILIES["bfcl"].is_here():
    pytest.skip("needs a world: gem-gym worlds --fetch bfcl", allow_module_level=True)

from gem.envs.bridges import bfcl, bfcl_calls
from gem.envs.bridges.specs import BFCL_CALLS, BFCL_UNSOLVED
from gem.tools.calls import find
from gem.worlds import _hollow_modules

ABSENT = (
    "bfcl_eval.constants.model_config",
    "bfcl_eval.model_handler.base_handler",
    "bfcl_eval.model_handler.parser.java_parser",
    "bfcl_eval.model_handler.parser.js_parser",
    "tenacity",
)
"""Clients of models and parsers of Java, which score nothing that gem reads."""


def score(name, task, action):
    with gem.make(f"bfcl:{name}", task=task) as env:
        env.reset(0)
        return env.step(action)


@pytest.mark.parametrize(
    ("action", "reward"),
    [
        ("[calculate_triangle_area(base=10, height=5)]", 1.0),
        ("calculate_triangle_area(base=10, height=5, unit='units')", 1.0),
        ("```python\n[calculate_triangle_area(base=2*5, height=5)]\n```", 1.0),
        ("<thinking>[f(x=1)]</thinking>[calculate_triangle_area(base=10, height=5)]", 1.0),
        ("<think>[f(x=1)]</think>[calculate_triangle_area(base=10, height=5)]", 1.0),
        ("[calculate_triangle_area(base=10, height=5), calculate_triangle_area(base=10, height=5)]", 0.0),
        ("[calculate_triangle_area(base=10)]", 0.0),
        ("[calculate_triangle_area(base=10, height='5')]", 0.0),
        ("[calculate_triangle_area(base=10, height=5, unit=len(x='y'))]", 0.0),
        ("[calculate_triangle_area(base=open('/'), height=9**9**9)]", 0.0),
        ("[" + "(" * 5000 + "]", 0.0),
        ("[f(a=" + "-" * 15000 + "1)]", 0.0),
        ("", 0.0),
    ],
)
def test_calls_are_read_as_the_package_reads_them_and_nothing_is_run(action, reward):
    assert score("simple_python", "simple_python_0", action).reward == reward


def test_a_dot_in_a_name_is_an_underscore_natively():
    with gem.make("bfcl:simple_python", task="simple_python_1") as env:
        env.reset(0)
        assert [each.name for each in env.tool_specs] == ["math_factorial"]
        call = json.dumps({"name": "math_factorial", "arguments": {"number": 5}})
        assert env.step(f"<tool_call>{call}</tool_call>").reward == 1.0


def test_values_of_other_languages_are_offered_as_strings():
    with gem.make("bfcl:simple_java", task="simple_java_1") as env:
        env.reset(0)
        (tool,) = env.tool_specs
    assert {each["type"] for each in tool.schema["properties"].values()} == {"string"}
    assert "Java HashMap" in tool.schema["properties"]["params"]["description"]


@pytest.mark.parametrize(
    "value", ["[[" + "],[" * 400 + "x", " " * 900, "new HashMap<>(){" * 60, "[" + "a:" * 450]
)
def test_a_value_that_would_keep_the_checker_busy_is_wrong(value):
    for name, task in (("simple_java", "simple_java_1"), ("simple_javascript", "simple_javascript_2")):
        row = bfcl.read_rows(name)[task]["function"][0]
        arguments = dict.fromkeys(row["parameters"]["properties"], value)
        call = json.dumps({"name": row["name"], "arguments": arguments})
        assert score(name, task, f"<tool_call>{call}</tool_call>").reward == 0.0


def test_a_refusal_is_right_where_no_function_fits_and_wrong_where_one_does():
    assert score("irrelevance", "irrelevance_0", "I cannot do that.").reward == 1.0
    assert score("irrelevance", "irrelevance_0", "[determine_body_mass_index(weight=1.0)]").reward == 0.0
    assert score("live_relevance", "live_relevance_0-0-0", "I cannot do that.").reward == 0.0


def change(calls):
    """Return the calls with one value that is wrong."""
    (name, arguments), *others = ((name, dict(given)) for call in calls for name, given in call.items())
    wrong = {
        key: f"{value}{value}x" if isinstance(value, str) else 123456 for key, value in arguments.items()
    }
    return [{name: wrong or {"x": 1}}, *(dict([each]) for each in others)]


def write(calls):
    """Return calls as a Python list."""
    each = [(name, given) for call in calls for name, given in call.items()]
    return f"[{', '.join(f'{name}({write_arguments(given)})' for name, given in each)}]"


def write_arguments(given):
    return ", ".join(f"{key}={value!r}" for key, value in given.items())


def write_natively(calls):
    """Return calls as a model's endpoint hands them on."""
    each = [{"name": name, "arguments": given} for call in calls for name, given in call.items()]
    return "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in each)


PLAYS = {
    "right": lambda calls: calls,
    "reversed": lambda calls: calls[::-1],
    "wrong": change,
    "partial": lambda calls: [{n: dict([*a.items()][:-1]) for n, a in calls[0].items()}, *calls[1:]],
    "fewer": lambda calls: calls[:-1],
    "twice": lambda calls: [*calls, *calls[-1:]],
    "empty": lambda calls: [],
}


@pytest.mark.system
def test_texts_are_decoded_as_the_package_decodes_them():
    with _hollow_modules(ABSENT):
        utils = import_module("bfcl_eval.model_handler.utils")
    for text in (
        "f(a=1)", "[f(a=1), g.h.i(b=[1, {'c': (2, 3)}])]", "[]", "", "f", "[f]", "Done. (no)", "[f(a=x)]",
        "f(1, a=2)", "f(**{'a': 1})", "f(a=-1)", "f(a=+1)", "f(a=not True)", "f(a=-'x')", "f(a=...)",
        "f(a=2*3+1)", "f(a=2**3)", "f(a=7//2-1.5)", "f(a=1/0)", "f(a=2**-1)", "f(a=g())", "f(a=g(b=1))",
        "f(a=g(1))", "f(a=x[0])", "f(a=x.y)", "f(a=lambda: 1)", "f(a={1, 2})", "f(a={**b})", "f(a={[]: 1})",
        "f(a=f'{x}')", "f(a=1)\n", "`f(a=1)`", "f(a=1), g(b=2)", "[f(a=1)], [g(b=2)]", "{f(a=1)}",
        "[f](a=1)", "f(a=1)(b=2)", "(f(a=1))", "f(a=1, a=2)", "f(a=null, b=true)", "[f(a=1)] and more", "f()",
    ):  # fmt: skip
        try:
            theirs = utils.default_decode_ast_prompting(text)
        except Exception:  # it raises anything
            theirs = None
        ours = bfcl_calls.read_calls(text, [])
        assert repr(ours) == repr(theirs), text


@pytest.mark.system
@pytest.mark.parametrize("name", BFCL_CALLS)
def test_the_verdicts_are_those_of_the_package(name, monkeypatch):
    with _hollow_modules(ABSENT):
        utils = import_module("bfcl_eval.model_handler.utils")
        runner = import_module("bfcl_eval.eval_checker.eval_runner")
    native = {"native": SimpleNamespace(underscore_to_dot=True)}
    monkeypatch.setattr(
        bfcl_calls.ast_checker,
        "MODEL_CONFIG_MAPPING",
        {**bfcl_calls.ast_checker.MODEL_CONFIG_MAPPING, **native},
    )
    as_text = SimpleNamespace(decode_ast=utils.default_decode_ast_prompting)
    as_calls = SimpleNamespace(decode_ast=lambda made, *_, **__: made)
    language = bfcl_calls._LANGUAGES.get(name, bfcl_calls.Language.PYTHON)
    references = {} if "relevance" in name else bfcl.read_references(name)

    def judge(handler, task, answer, model):
        row = bfcl.read_rows(name)[task]
        if "relevance" in name:
            return runner._evaluate_single_relevance_entry(handler, task, answer, row, model, name)["valid"]
        given = (
            handler,
            task,
            answer,
            references[task],
            row,
            model,
            name,
            language,
            runner.ReturnFormat.PYTHON,
        )
        return runner._evaluate_single_ast_entry(*given)["valid"]

    wins = dict.fromkeys((*PLAYS, "words"), 0)
    env = gem.make(f"bfcl:{name}")
    for seed in range(len(env._tasks)):
        env.reset(seed)
        task, functions = env.task, env._row["function"]
        solved = env.solve()
        right = bfcl_calls.read_calls(solved, functions)
        if right is None:  # a refusal is right
            right = [{each["name"]: {"x": 1}} for each in functions[:1]] or [{"f": {}}]
        texts = {"words": "I cannot do that: (no)."} | {
            kind: write(play(right)) for kind, play in PLAYS.items()
        }
        if find(solved, ()):
            del texts["right"]  # a name that Python does not take
        for kind, text in texts.items():
            theirs = judge(as_text, task, text, "")
            env.reset(seed)
            assert env.step(text).reward == float(theirs), (task, text)
            wins[kind] += theirs
        for play in PLAYS.values():
            made = [{n.replace(".", "_"): a for n, a in call.items()} for call in play(right)]
            text = "".join(
                f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>"
                for c in made
                for n, a in c.items()
            )
            made = json.loads(json.dumps(made))
            env.reset(seed)
            assert env.step(text).reward == float(judge(as_calls, task, made, "native")), (task, made)
    calls_wanted = "irrelevance" not in name
    unreachable = sum(each.startswith(f"{name}_") for each in BFCL_UNSOLVED)
    assert wins["right"] == (len(env._tasks) - unreachable - 2 * (name == "simple_java")) * calls_wanted
    assert wins["words"] == wins["empty"] == (0 if calls_wanted else len(env._tasks))
    if references:
        assert wins["wrong"] < 0.1 * len(env._tasks)
        assert wins["twice"] == 0
