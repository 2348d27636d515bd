r"""WebEnv: an agent reads a page as numbered nodes, and acts on them with ``click(3)`` or native calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gem.content import Image, Obs, Text, ToolSpec
from gem.core import Env, Step
from gem.envs.kit.browser import STEP_MS, Page, check_browser
from gem.envs.kit.workspace import WorkCall, WorkTurn, read, write_call
from gem.errors import check_argument, check_count
from gem.parsing import drop_closed_thinking, read_box
from gem.record import StopReason
from gem.tools.base_tool import BaseTool

MAX_CALLS = 10
"""The most calls of one turn. With more, none is carried out."""

MAX_TEXT = 1000
"""The most characters that are typed at once."""

MAX_NODES = 400
"""The most nodes that an observation lists."""

_MAX_SHOWN = 1000
_MAX_ACTION = 50_000

FORM = (
    'Write your actions, a line each: click(3), fill(3, "text"), select(3, "option or text to mark"), '
    'press("Enter"), drag(3, 4), scroll(3, 100). The first number is the node\'s; click(3, 10, 5) and '
    "drag(3, 4, 10, 5) end at a point of a node, in pixels from its upper left corner."
)


class PageAction(BaseTool):
    """An action on a page, with the schema of its arguments in their order; `Page` carries it out."""

    def __init__(self, name: str, description: str, required: int, **arguments: Mapping[str, Any]) -> None:
        """Define an action; the first `required` of its arguments have to be given."""
        super().__init__()
        self.name, self.description = name, description
        self.parameters = {
            "type": "object",
            "properties": arguments,
            "required": [*arguments][:required],
            "additionalProperties": False,
        }


def _number(about: str) -> dict[str, str]:
    return {"type": "integer", "description": about}


def _text(about: str) -> dict[str, str]:
    return {"type": "string", "description": about}


_NODE = _number("The number of the node.")
_X, _Y = (
    _number(f"Pixels from the {edge} edge of the node; without them, its middle.")
    for edge in ("left", "upper")
)

ACTIONS = (
    PageAction("click", "Click on a node.", 1, ref=_NODE, x=_X, y=_Y),
    PageAction("fill", "Type a text in place of what a field has.", 2, ref=_NODE, text=_text("The text.")),
    PageAction(
        "select",
        "Choose an option of a list by its text; in another node, mark a part of its text.",
        2,
        ref=_NODE,
        text=_text("The text of the option, or the text to mark."),
    ),
    PageAction("press", "Press a key.", 1, key=_text("A character, or a key as Enter, Tab or Control+a.")),
    PageAction("drag", "Drag a node onto another.", 2, ref=_NODE, to=_number("The other node."), x=_X, y=_Y),
    PageAction(
        "scroll",
        "Scroll a node.",
        2,
        ref=_NODE,
        pixels=_number("Pixels to go down; below 0, up."),
    ),
)
"""The actions that an agent has on a page, as tools."""

_BY_NAME = {action.name: action for action in ACTIONS}
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?\d{1,9})"""
_CALL = re.compile(rf"([a-z]+)\(\s*((?:{_VALUE}(?:\s*,\s*{_VALUE})*)?)\s*\)[\s;`.]*")
_ESCAPES = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class View:
    """A page at one moment: what it asks for, its nodes, and whether its task is over, with the reward.

    `nodes` are as `browser_page.js` describes them; those that can be acted on have a number, `ref`.
    """

    goal: str
    nodes: Sequence[Mapping[str, Any]]
    done: bool = False
    reward: float = 0.0
    why: str = ""
    picture: bytes = b""
    own: Mapping[str, Any] = field(default_factory=dict)


class WebEnv(Env):
    """A task on a page: subclasses open the page and say what it asks for and when it is over.

    They define `address`, the class attributes `begin_script` (a function of the page's language that begins
    the episode of a seed) and `state_script` (a function that returns ``goal``, ``done``, ``reward`` and
    ``why``), and `reset`, which calls `begin`.
    """

    forkable = False
    begin_script: ClassVar[str]
    state_script: ClassVar[str]
    left_out: ClassVar[str] = ""
    """A CSS selector of what an agent does not see."""
    window: ClassVar[tuple[int, int]] = (640, 480)
    picture_size: ClassVar[tuple[int, int]] = (640, 480)
    reloads: bool = False
    """Whether each episode loads the page again: where what an episode did would be left in the next."""
    at_limit: ClassVar[float] = 0.0
    """The reward when the turns are used up."""

    def __init__(self, picture: bool = False, max_turns: int = 20) -> None:
        """Choose what is shown, and the budget.

        Args:
            picture: show a picture of the page besides its nodes.
            max_turns: the turns after which the task ends.

        Raises:
            MissingExtra: without playwright or Chromium. BadArgument: for another value.
        """
        check_argument("picture", picture, isinstance(picture, bool), "True or False")
        check_count("max_turns", max_turns)
        check_browser("an environment of web pages")
        self.picture, self.max_turns = picture, max_turns
        self.turn = 0
        self.view = View("", ())
        self._page: Page | None = None

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:  # type: ignore[override]
        """The actions, as a model may call them natively."""
        return tuple(action.spec() for action in ACTIONS)

    @property
    def address(self) -> str:
        """The address of the page."""
        raise NotImplementedError(f"{type(self).__name__} must define address.")

    def begin(self, seed: int) -> View:
        """Begin the page's episode of a seed, and return what is there.

        Raises:
            NoVerdict: when the page or its browser fails.
        """
        self.turn = 0
        page = self._page = self._page if self._page is not None and self._page.alive else None
        if page is None:
            page = self._page = Page(self.address, self.window)
        self.view = page.run(self._begin(page, seed))
        return self.view

    def step(self, action: str) -> Step:
        """Carry out the calls of a turn on the page; see Env.step.

        Raises:
            NoVerdict: when the page or its browser fails.
        """
        assert self._page is not None
        self.turn += 1
        asked = read_actions(action)
        refused = asked.empty or len(asked.calls) > MAX_CALLS
        answers = [] if refused else self._page.run(self._carry_out(self._page, asked.calls))
        entries = [{"tool": call.name, "error": bool(wrong), "refused": False} for call, wrong in answers]
        parts = [f"{call.name}: {wrong or 'done.'}" for call, wrong in answers]
        for entry, part in zip(entries, parts, strict=True):
            entry["shown"] = 1 if self.picture else len(part)
        if refused:
            parts.append(
                f"At most {MAX_CALLS} actions are in a turn. {FORM}"
                if asked.calls
                else f"That is no action. {FORM}"
            )
        info: dict[str, Any] = {"tool_results": entries} if entries else {}
        if refused or all(call.wrong for call in asked.calls):
            info["legal"] = False
        if not self.view.done and self.turn < self.max_turns:
            return Step(self._join([*parts, self.describe()]), 0.0, False, False, info)
        view, over = self.view, self.view.done
        reward = float(view.reward if over else self.at_limit)
        success = over and self.is_success(reward)
        stop = StopReason.SOLVED if success else StopReason.FAILED if over else StopReason.TURN_BUDGET
        info |= {"success": success, "stop": stop.value} | ({"why": view.why[:300]} if view.why else {})
        parts.append("The task is done." if success else "The task is not done.")
        return Step(self._join(parts, last=True), reward, True, False, info)

    def is_success(self, reward: float) -> bool:
        """Return whether a page that ended with this reward was mastered."""
        return reward >= 1

    def describe(self) -> str:
        """Return the goal and the page in words."""
        return f"Task: {self.view.goal}\n\nThe page:\n{describe_nodes(self.view.nodes)}"

    def sample_random_action(self) -> str:
        """Click on a random node, or fill a field with a word of the goal; see Env.sample_random_action."""
        nodes = [node for node in self.view.nodes if "ref" in node]
        if not nodes:
            return 'press("Tab")'
        node = self.actor_rng.choice(nodes)
        words = self.view.goal.split() or ["a"]
        if node.get("options"):
            return write_action("select", node["ref"], self.actor_rng.choice(node["options"]))
        if node.get("tag") == "textarea" or ("value" in node and node.get("type") in ("text", "password")):
            return write_action("fill", node["ref"], self.actor_rng.choice(words).strip('".,'))
        return write_action("click", node["ref"])

    def close(self) -> None:
        """Close the page."""
        if self._page is not None:
            self._page.close()
        super().close()

    def _join(self, parts: Sequence[str], last: bool = False) -> Obs:
        if not self.picture:
            return "\n".join(parts)
        picture = (Image(self.view.picture, alt=""),) if self.view.picture else ()
        return (*map(Text, parts), *picture)

    # -- on the browser's thread

    async def _begin(self, page: Page, seed: int) -> View:
        await (page.reload() if self.reloads else page.rest())
        await page.evaluate(self.begin_script, seed)
        return await self._look(page)

    async def _carry_out(self, page: Page, calls: Sequence[WorkCall]) -> list[tuple[WorkCall, str]]:
        """Carry out calls until one is wrong or the task is over; return them, each with what was wrong."""
        answers = []
        for call in calls:
            wrong = call.wrong or _too_long(call)
            if not wrong:
                wrong = await getattr(page, _BY_NAME[call.name].name)(**call.arguments)
            answers.append((call, wrong))
            self.view = await self._look(page, STEP_MS)
            if wrong or self.view.done:
                break
        return answers

    async def _look(self, page: Page, milliseconds: int = 0) -> View:
        """Let the page's time pass, and return what is there then."""
        content = await page.evaluate(
            f"async ([milliseconds, left_out]) => {{ await __gem.advance(milliseconds); "
            "await __gem.load(); "
            f"return {{ nodes: __gem.read(left_out), ...({self.state_script})() }}; }}",
            milliseconds,
            self.left_out,
        )
        shot = await page.picture(self.picture_size) if self.picture else b""
        return View(**content, picture=shot)


def read_actions(action: str) -> WorkTurn:
    """Return the actions that a text asks for: native calls, else lines of calls, else those in a box.

    Thinking that is closed does not count, and a line with other words than calls does not either.
    """
    if (native := read(action, ACTIONS, submits=False)).calls:
        return native
    text = drop_closed_thinking(action[-_MAX_ACTION:])
    calls = [call for line in text.splitlines() for call in _read_line(line)]
    if not calls:
        calls = next(filter(None, map(_read_line, read_box(text))), [])
    return read("\n".join(calls), ACTIONS, submits=False) if calls else WorkTurn((), False)


def _read_line(line: str) -> list[str]:
    """Return the calls of a line that has nothing but calls, in the form of native calls."""
    line = line.strip().lstrip("`-*> ")
    calls, at = [], 0
    while at < len(line):
        match = _CALL.match(line, at)
        if match is None or (known := _BY_NAME.get(match[1])) is None:
            return []
        values = [_read_value(value) for value in re.findall(_VALUE, match[2])]
        names = [*known.arguments["properties"], *(f"argument {number + 1}" for number in range(len(values)))]
        calls.append(write_call(match[1], dict(zip(names, values, strict=False))))
        at = match.end()
    return calls


def _read_value(text: str) -> int | str:
    if text[0] not in "\"'":
        return int(text)
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])


def write_action(name: str, *values: object) -> str:
    """Return an action as a text: its name, and whole numbers or texts."""
    texts = []
    for value in values:
        quoted = (
            str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        )
        texts.append(str(value) if isinstance(value, int) else f'"{quoted}"')
    return f"{name}({', '.join(texts)})"


def _too_long(call: WorkCall) -> str:
    for name, value in call.arguments.items():
        if isinstance(value, str) and len(value) > MAX_TEXT:
            return f"{name} has {len(value)} characters; at most {MAX_TEXT} are typed at once."
        if isinstance(value, int) and abs(value) > 100_000:
            return f"{name} is {value}; it has to be within 100,000."
    return ""


# -- a page in words


def describe_nodes(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return nodes as lines, indented by their depth: number, kind, text, state, place."""
    lines = [f"{'  ' * node['depth']}{_describe(node)}" for node in nodes[:MAX_NODES]]
    if len(nodes) > MAX_NODES:
        lines.append(f"... and {len(nodes) - MAX_NODES} more nodes.")
    return "\n".join(lines) or "(nothing)"


def _describe(node: Mapping[str, Any]) -> str:
    if "ref" not in node:
        return _quote(node["text"])
    kind = node["tag"]
    if node.get("type", "text") != "text":
        kind += f" {node['type']}"
    if node.get("id"):
        kind += f" #{node['id'][:40]}"
    if node.get("classes"):
        kind += f" .{node['classes'][:60].replace(' ', '.')}"
    words = [f"[{node['ref']}] {kind}"]
    words += [_quote(node["text"])] if node.get("text") else []
    for name in ("title", "placeholder", "alt", "role"):
        words += [f"{name}={_quote(node[name])}"] if node.get(name) else []
    words += [f"value={_quote(node['value'])}"] if "value" in node else []
    if "options" in node:
        words.append(f"chosen {', '.join(map(_quote, node['chosen'])) or 'nothing'}")
        words.append(f"of {', '.join(map(_quote, node['options']))}")
    if "checked" in node:
        words.append("checked" if node["checked"] else "not checked")
    words += [name for name in ("disabled", "readonly", "editable", "focused") if node.get(name)]
    words += [node["colour"]] if node.get("colour") else []
    if "box" in node:
        left, top, width, height = node["box"]
        words.append(f"at {left},{top} size {width}x{height}")
    if "scroll" in node:
        words.append(f"scrolled {node['scroll'][0]} of {node['scroll'][1]}")
    return " ".join(words)


def _quote(text: str) -> str:
    flat = text.replace("\n", "\\n")
    cut = f"{flat[:_MAX_SHOWN]}..." if len(flat) > _MAX_SHOWN else flat
    return f'"{cut}"'
