import json
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from gem.agent_names import AGENTS, AgentName
from gem.agents import named, scripted
from gem.agents.named import AgentByName, AgentSettings, is_named, make_agent, named_agent
from gem.agents.scripted import FunctionAgent, ScriptedAgent
from gem.cli import main
from gem.cli.players import local_agent
from gem.errors import BadArgument
from gem.plugins import load
from gem.registry import accept_settings
from gem.rollout import Job, rollout
from gem.trust import AGENT_KEYS


def make_repeater(text, settings):
    return ScriptedAgent([text] * settings.max_tokens)


@pytest.fixture
def tape(monkeypatch):
    """Return a table with an agent that a file may not name."""
    row = AgentName("tape:TEXT", f"{__name__}:make_repeater", "a text again and again", needs_trust=True)
    monkeypatch.setitem(AGENTS, "tape", row)


def test_the_page_lists_the_table():
    page = (Path(__file__).parents[2] / "docs/guides/evaluating.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page.split("<!-- agents -->")[1], re.MULTILINE)
    assert rows == [
        ("`--agent`", "what plays"),
        *((f"`{agent.form}`", agent.plays) for agent in AGENTS.values()),
    ]


@pytest.mark.parametrize("command", [["eval"], ["play"], ["value"]])
def test_help_lists_the_table(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # a wide terminal gets two columns
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    text = re.sub(r"[\u2500-\u257f\s]", "", capsys.readouterr().out)  # lines break where the terminal ends
    for agent in AGENTS.values():
        assert f"{agent.form} ({agent.plays})".replace(" ", "") in text


@pytest.mark.parametrize("name", AGENTS)
def test_a_row_has_a_maker_and_is_called_by_its_form(name):
    agent = AGENTS[name]
    assert callable(load(agent.maker))
    assert agent.form.partition(":")[0] == name
    assert is_named(f"{name}:x" if ":" in agent.form else name)


def test_errors_list_the_table():
    for refuse in (make_agent, AgentByName, local_agent):
        with pytest.raises(BadArgument) as error:
            refuse("nobody at all")
        assert all(agent.form in str(error.value) for agent in AGENTS.values())


def test_a_maker_gets_the_text_behind_the_colon_and_the_settings(tape):
    agent = named_agent("tape:a:b", AgentSettings(max_tokens=2))
    assert agent.script == ["a:b", "a:b"]
    assert AgentByName("tape:/a b", AgentSettings(max_tokens=1)).make().script == ["/a b"]
    assert named_agent("tape") is named_agent("tape:") is None


@pytest.mark.parametrize("text", ["tape:x", "tape:/etc/passwd", "tape:"])
@pytest.mark.parametrize("key", AGENT_KEYS)
def test_a_file_may_not_name_an_agent_that_needs_trust(key, text, tape):
    with pytest.raises(BadArgument, match="--trust"):
        accept_settings({key: text}, "suite.toml")


@pytest.mark.parametrize(
    ("given", "temperature", "tokens", "tools"),
    [
        ({}, 1.0, 1024, None),
        ({"temperature": "none", "max_tokens": 7}, 1.0, 7, None),
        ({"temperature": 0.5, "tool_calls": "text"}, 0.5, 1024, "text"),
    ],
)
def test_a_local_model_gets_the_settings_of_its_name(given, temperature, tokens, tools, monkeypatch):
    pytest.importorskip("transformers")
    hugging_face = pytest.importorskip("gem.agents.hugging_face")
    made, agent = [], SimpleNamespace()
    monkeypatch.setattr(
        named.models, "load_causal", lambda model, device: (f"{model} on {device}", "tokenizer")
    )
    monkeypatch.setattr("gem.tokens.chat_template.ChatTemplateRenderer", lambda tokenizer: tokenizer)
    monkeypatch.setattr(
        hugging_face, "HuggingFaceAgent", lambda *args, **more: made.append((args, more)) or agent
    )
    monkeypatch.setattr("gem.agents.sampling.digest_weights", "digest of {}".format)
    named.make_local_agent("little", AgentSettings(device="meta", **given))
    assert made == [(("little on meta", "tokenizer", temperature, tokens), {"tools": tools})]
    assert agent.weights == "digest of little on meta"


@pytest.mark.parametrize("text", ["random", "solver", "hf:x", "openai:m@http://127.0.0.1:1/v1"])
def test_a_file_may_name_the_others(text):
    accept_settings({"agent": text}, "suite.toml")


@pytest.mark.parametrize("text", ["random:Random", "solver:Agent", "openai:m@http://10.0.0.1/v1"])
def test_a_name_that_only_begins_like_one_is_refused(text):
    with pytest.raises(BadArgument, match="--trust"):
        accept_settings({"agent": text}, "suite.toml")


@pytest.mark.parametrize("define", ["def", "async def"])
def test_a_function_of_one_argument_answers_asks(define, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    env, file = "game:GuessTheNumber-v0-easy", Path("mine.py")
    file.write_text(
        f"{define} five(ask, more=()):\n    return rf'\\boxed{{{{{{ask.turn + 4}}}}}}'\n"
        f"{define} nothing(ask):\n    pass\ndef two(one, other):\n    pass\n"
    )
    assert main(["eval", env, "--agent", "mine.py:five", "-n", "40", "--json", "--out", "run"]) == 0
    found = json.loads(capsys.readouterr().out)["results"][0]
    assert found["scored"] == 40
    assert re.fullmatch(r"mine\.py@[0-9a-f]{12}:five", found["agent"])
    assert main(["eval", env, "--agent", "mine.py:nothing", "-n", "2"]) == 1
    assert "returned None; accepted: text, or a gem.record.Reply" in capsys.readouterr().err
    assert main(["eval", env, "--agent", "mine.py:two"]) == 2
    assert "a function of one argument, the ask, is an agent itself" in capsys.readouterr().err
    file.write_text("def five(ask):\n    return 'another'\n")
    assert main(["eval", env, "--agent", "mine.py:five", "-n", "40", "--out", "run"]) == 2  # another agent


def test_a_slow_function_that_is_not_async_is_said_once_to_be_called_one_at_a_time(monkeypatch):
    def answer(ask):
        return "5"

    async def answer_later(ask):
        return "5"

    job = Job("game:GuessTheNumber-v0-easy", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rollout([job], FunctionAgent(answer))  # it is fast
    monkeypatch.setattr(scripted, "SLOW_S", -1.0)
    with pytest.warns(UserWarning, match="answer is called one at a time") as said:
        rollout([job, job], FunctionAgent(answer))
    assert len(said) == 1
    assert "asyncio.to_thread(answer, ask)" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rollout([job], FunctionAgent(answer_later))
