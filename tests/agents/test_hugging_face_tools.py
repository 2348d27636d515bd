"""A local model that calls tools through its chat template, over whole episodes."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tool_templates import renderer

import gem
from gem.agents.hugging_face import HuggingFaceAgent
from gem.errors import BadArgument
from gem.rollout import Job, rollout
from gem.tokens.rows import rows
from gem.tokens.tiny import TinyRenderer
from gem.tools.base_tool import FunctionTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper


def double(number: int) -> int:
    """Double a number.

    Args:
        number: which.
    """
    return 2 * number


class Past:
    """What the puppet keeps of the tokens that it saw."""

    def __init__(self, rows):
        self.rows = rows

    def batch_select_indices(self, kept):
        self.rows = [self.rows[place] for place in kept.tolist()]


class Puppet:
    """A model that writes what a script says for each of its turns, and is certain of every token."""

    device = "cpu"
    training = False

    def __init__(self, made, script):
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(), name_or_path="puppet")
        self.made = made
        self.answers = [made.answer(said, calls) for said, calls in script]

    def eval(self):
        pass

    def train(self, mode):
        pass

    def __call__(self, input_ids, attention_mask, past_key_values, **_):
        shown = [
            [i for i, seen in zip(ids, mask, strict=False) if seen]
            for ids, mask in zip(
                input_ids.tolist(), attention_mask[:, -input_ids.shape[1] :].tolist(), strict=True
            )
        ]
        before = past_key_values.rows if past_key_values else [[] for _ in shown]
        past = Past([old + new for old, new in zip(before, shown, strict=True)])
        logits = torch.full((len(shown), 1, len(self.made.tokenizer)), -1e9)
        for row, ids in enumerate(past.rows):
            logits[row, 0, self._next(ids)] = 0.0
        return SimpleNamespace(logits=logits, past_key_values=past)

    def _next(self, ids):
        """Return what follows: the answers of the script that are there already are passed over."""
        at = 0
        for answer in self.answers:
            place = next((p for p in range(at, len(ids)) if tuple(ids[p : p + len(answer)]) == answer), None)
            if place is None:
                grown = next(n for n in range(len(answer), -1, -1) if n == 0 or tuple(ids[-n:]) == answer[:n])
                return answer[grown]
            at = place + len(answer)
        raise AssertionError("the script is over")


def calls(*numbers):
    from gem.content import ToolCall

    return tuple(
        ToolCall(f"t0000n{place:03d}", "double", f'{{"number": {number}}}')
        for place, number in enumerate(numbers)
    )


def make():
    return ToolEnvWrapper(gem.make("game:GuessTheNumber-v0-easy"), [FunctionTool(double)])


SCRIPT = [("", calls(1)), ("", calls(3)), ("\\boxed{99}", ())]


@pytest.mark.parametrize("style", ["qwen", "llama", "hermes", "mistral"])
def test_a_tool_episode_is_one_row_of_prompt_samples_and_deltas(style):
    made = renderer(style)
    agent = HuggingFaceAgent(Puppet(made, SCRIPT), made, max_tokens=200)
    assert (agent.tools, agent.info.sampling["tools"]) == ("native", "native")
    (episode,) = rollout([Job(make, 0)], agent, limits=gem.Limits(turns=3))
    first, second, third = episode.turns
    assert [call.name for turn in (first, second) for call in turn.said.tool_calls] == ["double", "double"]
    assert (first.info["use_tool"], second.info["use_tool"], third.info["use_tool"]) == (True, True, False)
    assert second.observation == "<output>\n2\n</output>"
    (row,) = rows(episode)  # every prompt begins with all that came before it, token for token
    assert tuple(row.ids) == (*third.prompt_ids, *third.token_ids)
    held = tuple(first.prompt_ids)
    assert "Double a number." in made.tokenizer.decode(list(held))
    for turn, after in ((first, second), (second, third)):
        held += tuple(turn.token_ids)
        assert tuple(after.prompt_ids) == held + tuple(after.new_ids)
        held += tuple(after.new_ids)
        shown = made.tokenizer.decode(list(after.new_ids))
        assert "<output>" in shown
        assert "<|im_start|>user" not in shown or style == "qwen"


def test_several_calls_of_a_turn_are_one_step_and_a_message_each():
    made = renderer("hermes")
    agent = HuggingFaceAgent(Puppet(made, [("So.", calls(1, 4)), ("\\boxed{99}", ())]), made, max_tokens=300)
    (episode,) = rollout([Job(make, 0)], agent, limits=gem.Limits(turns=2))
    first, second = episode.turns
    assert first.action.startswith("So.\n<tool_call>") or first.said.text == ""
    assert second.observation == "<output>\n2\n</output>\n<output>\n8\n</output>"
    shown = made.tokenizer.decode(list(second.new_ids))
    assert shown.count("<tool_response>") == 2


def test_in_text_mode_the_same_tokens_are_text():
    made = renderer("qwen")
    agent = HuggingFaceAgent(Puppet(made, SCRIPT), made, max_tokens=200, tools="text")
    (episode,) = rollout([Job(make, 0)], agent, limits=gem.Limits(turns=3))
    assert [turn.info["use_tool"] for turn in episode.turns] == [True, True, False]
    assert all(turn.reply is None for turn in episode.turns)
    assert "Double a number.\n  number" in made.tokenizer.decode(list(episode.turns[0].prompt_ids))
    assert "<tools>" not in made.tokenizer.decode(list(episode.turns[0].prompt_ids))


def test_who_knows_no_tools_works_in_text():
    plain = renderer("plain")
    assert HuggingFaceAgent(Puppet(plain, []), plain).tools == "text"
    assert HuggingFaceAgent(Puppet(plain, []), TinyRenderer()).tools == "text"
    with pytest.raises(BadArgument, match="knows tools"):
        HuggingFaceAgent(Puppet(plain, []), plain, tools="native")
    with pytest.raises(BadArgument, match="accepted: 'native'"):
        HuggingFaceAgent(Puppet(plain, []), plain, tools="json")
