"""Experts for pages of MiniWoB++: what a person would do, from the goal and the nodes that an agent sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from gem.envs.kit.web_env import View, write_action

Node: TypeAlias = Mapping[str, Any]


class Reading:
    """A page as an expert reads it: its goal, and the nodes with a number, each with its whole own text."""

    def __init__(self, view: View) -> None:
        """Read a page."""
        self.goal = view.goal
        self.nodes: list[dict[str, Any]] = []
        above: list[dict[str, Any]] = []
        for each in view.nodes:
            while above and above[-1]["depth"] >= each["depth"]:
                above.pop()
            if "ref" in each:
                self.nodes.append({"text": "", **each})
                above.append(self.nodes[-1])
            elif above:
                above[-1]["text"] = f"{above[-1]['text']} {each['text']}".strip()

    @property
    def quoted(self) -> list[str]:
        """The texts in double quotes of the goal."""
        return re.findall(r'"([^"]*)"', self.goal)

    def match(self, pattern: str) -> str:
        """Return what a pattern's group matches in the goal."""
        match = re.search(pattern, self.goal)
        if match is None:
            raise LookupError(f"the goal {self.goal!r:.80} has no {pattern!r}")
        return match[1]

    def all(self, text: str | None = None, **is_: Any) -> list[dict[str, Any]]:
        """Return the nodes with this text and these attributes."""
        return [
            node
            for node in self.nodes
            if (text is None or node["text"] == text) and all(node.get(k) == v for k, v in is_.items())
        ]

    def one(self, text: str | None = None, **is_: Any) -> dict[str, Any]:
        """Return the first of `all`."""
        for node in self.all(text, **is_):
            return node
        raise LookupError(f"the page has no node {text!r} {is_}")

    def first(self, holds: Callable[[Node], object]) -> dict[str, Any]:
        """Return the first node for which a condition holds."""
        for node in filter(holds, self.nodes):
            return node
        raise LookupError("the page has no such node")

    def after(self, node: Node, text: str | None = None, **is_: Any) -> dict[str, Any]:
        """Return the first of `all` behind a node."""
        for other in self.all(text, **is_):
            if other["ref"] > node["ref"]:
                return other
        raise LookupError(f"the page has no node {text!r} {is_} behind [{node['ref']}]")

    def field(self) -> dict[str, Any]:
        """Return the first field that takes text."""
        return self.first(lambda node: "value" in node)

    def fields(self) -> list[dict[str, Any]]:
        """Return the fields that take text."""
        return [node for node in self.nodes if "value" in node]

    def submit(self) -> str:
        """Click on the button Submit."""
        return click(self.one("Submit", tag="button"))


See: TypeAlias = Callable[[], Reading]
Expert: TypeAlias = Callable[[See], Iterator[str]]


def click(node: Node, *point: int) -> str:
    """Write a click on a node, or on a point of it."""
    return write_action("click", node["ref"], *point)


def fill(node: Node, text: str) -> str:
    """Write that a field gets a text."""
    return write_action("fill", node["ref"], text)


def _together(*actions: str) -> str:
    return "\n".join(actions)


# -- clicks


def _click_test(see: See) -> Iterator[str]:
    yield click(see().one(tag="button"))


def _click_one(see: See) -> Iterator[str]:
    yield click(see().one("ONE"))


def _click_quoted(see: See) -> Iterator[str]:
    yield click(see().one(see().quoted[0], tag="button"))


def _click_both(see: See) -> Iterator[str]:
    yield _together(click(see().one("ONE")), click(see().one("TWO")))


def _button_delay(see: See) -> Iterator[str]:
    seconds = int(see().match(r"wait (\d+) sec"))
    yield click(see().one("ONE"))
    for _ in range(seconds - 1):  # a second passes with each action
        yield write_action("press", "Shift+Tab")
    yield click(see().one("TWO"))


def _click_link(see: See) -> Iterator[str]:
    yield click(see().one(see().quoted[0]))


def _click_tab(see: See) -> Iterator[str]:
    yield click(see().one(see().match(r"Click on (Tab #\d+)"), tag="a"))


def _click_dialog(see: See) -> Iterator[str]:
    label = see().quoted[0]
    yield click(see().one(title="Close") if label == "x" else see().one(label, tag="button"))


def _click_widget(see: See) -> Iterator[str]:
    kind = see().quoted[0]
    yield click(see().one(tag=kind) if kind in ("button", "textarea") else see().one(tag="input", type=kind))


_COLOURS = {
    **{"black": "#000000", "white": "#ffffff", "red": "#ff0000", "lime": "#00ff00", "blue": "#0000ff"},
    **{"yellow": "#ffff00", "cyan": "#00ffff", "aqua": "#00ffff", "magenta": "#ff00ff", "pink": "#ffc0cb"},
    **{"grey": "#808080", "gray": "#808080", "green": "#008000", "purple": "#800080", "orange": "#ffa500"},
    **{"olive": "#808000", "teal": "#008080", "navy": "#000080", "maroon": "#800000", "silver": "#c0c0c0"},
}


def _click_color(see: See) -> Iterator[str]:
    yield click(see().one(colour=_COLOURS[see().match(r"the (\w+) colored")]))


def _click_shades(see: See) -> Iterator[str]:
    at = ["red", "green", "blue"].index(see().match(r"shades of (\w+)"))
    chosen = []
    for node in see().all(tag="span"):
        parts = [int(node["colour"][i : i + 2], 16) for i in (1, 3, 5)]
        if parts[at] == max(parts):
            chosen.append(click(node))
    for begin in range(0, len(chosen), 10):
        yield _together(*chosen[begin : begin + 10])
    yield see().submit()


def _click_menu(see: See) -> Iterator[str]:
    names = see().match(r"Select (.+)").split(">")
    before: list[str] = []
    yield write_action("press", "Tab")
    for name in names:  # a click on an item with a menu would be a choice
        items = [node["text"] for node in see().all(role="menuitem") if node["text"] not in before]
        before += items
        last = "Enter" if name == names[-1] else "ArrowRight"
        yield _together(*(write_action("press", key) for key in [*["ArrowDown"] * items.index(name), last]))


def _click_collapsible(see: See) -> Iterator[str]:
    yield click(see().one(tag="h3"))
    yield see().submit()


def _open_until(see: See, tag: str) -> Iterator[str]:
    """Open parts of the page, one after another, until what the goal quotes is there."""
    name = see().quoted[0]
    for number in range(len(see().all(tag=tag))):
        if see().all(name, tag="span"):
            break
        yield click(see().all(tag=tag)[number])
    yield click(see().one(name, tag="span"))


def _click_collapsible_2(see: See) -> Iterator[str]:
    return _open_until(see, "h3")


def _click_tab_2(see: See) -> Iterator[str]:
    return _open_until(see, "a")


def _focus_text(see: See) -> Iterator[str]:
    yield click(see().field())


def _focus_text_2(see: See) -> Iterator[str]:
    yield click(see().fields()[int(see().match(r"the (\d)")) - 1])


def _grid_coordinate(see: See) -> Iterator[str]:
    across, up = (int(see().match(pattern)) for pattern in (r"\((-?\d)", r",\s*(-?\d)\)"))
    points = see().all(classes="plot-point")
    columns = sorted({node["box"][0] for node in points})
    rows = sorted({node["box"][1] for node in points}, reverse=True)
    wanted = [columns[across + 2], rows[up + 2]]
    yield click(see().first(lambda node: node in points and node["box"][:2] == wanted))


def _ascending_numbers(see: See) -> Iterator[str]:
    places = {node["text"]: node["box"] for node in see().nodes}
    yield click(see().one("1"))
    for number in range(2, len(places) + 1):  # now they are covered
        yield click(_cover(see(), places[str(number)]))


def _cover(reading: Reading, place: Sequence[int]) -> dict[str, Any]:
    """Return the first node that lies over the middle of a place."""
    x, y = place[0] + place[2] / 2, place[1] + place[3] / 2
    for node in reading.nodes:
        left, top, width, height = node["box"]
        if left <= x <= left + width and top <= y <= top + height:
            return node
    raise LookupError(f"nothing covers {x:g},{y:g}")


def _navigate_tree(see: See) -> Iterator[str]:
    name = see().quoted[0]
    while not see().all(name):
        yield click(_closed_folder(see()))
    yield click(see().one(name))


def _closed_folder(reading: Reading) -> dict[str, Any]:
    """Return the first folder that is not open; the sign of a folder stands before its name."""
    for sign, node in pairwise(reading.nodes):
        if "expandable-hitarea" in sign.get("classes", ""):
            return node
    raise LookupError("every folder is open")


def _buy_ticket(see: See) -> Iterator[str]:
    reading = see()

    def cost(node: Node) -> int:
        return int(node["text"].split("$")[1])

    def minutes(node: Node) -> int:
        duration = next(
            other for other in reversed(reading.nodes) if other["ref"] < node["ref"] and other["tag"] == "div"
        )
        return sum(
            int(number) * (60 if unit == "h" else 1)
            for number, unit in re.findall(r"(\d+)([hm])", duration["text"])
        )

    tickets = reading.all(tag="button")
    key = cost if "cost" in reading.goal else minutes
    most = "longest" in reading.goal or "most" in reading.goal
    yield click((max if most else min)(tickets, key=key))


def _phone_book(see: See) -> Iterator[str]:
    name, what = see().match(r"Find (.+) in the contact"), see().match(r"on their (.+)\.")
    while not see().all(name, tag="h2"):
        yield click(see().one(">", tag="a"))
    label = {"phone number": "Phone:", "email": "Email:", "address": "Address:"}[what]
    yield click(see().after(see().one(label), tag="a"))


def _search_engine(see: See) -> Iterator[str]:
    yield fill(see().field(), see().quoted[0])
    yield click(see().one("Search", tag="button"))
    number = int(see().match(r"the (\d+)\w\w search"))
    for _ in range((number - 1) // 3):
        yield click(see().one(">", tag="a"))
    links = [node for node in see().all(tag="a") if not re.fullmatch(r"[\d<>]+", node["text"])]
    yield click(links[(number - 1) % 3])


def _social_media(see: See) -> Iterator[str]:
    name, label = see().match(r"user (@\w+)"), see().quoted[0]
    reading = see()
    user = reading.one(name)
    if label in ("Reply", "Retweet", "Like"):
        yield click(reading.after(user, classes=label.lower()))
        return
    yield click(reading.after(user, classes="more"))
    yield click(see().first(lambda node: node["text"] in (label, f"{label} {name}")))


def _social_media_all(see: See) -> Iterator[str]:
    name, label = see().match(r"by (@\w+)"), see().quoted[0].lower()
    reading = see()
    limit = int(reading.match(r"on (\d+) post")) if re.search(r"on \d+ post", reading.goal) else None
    clicks = [click(reading.after(user, classes=label)) for user in reading.all(name)[:limit]]
    for begin in range(0, len(clicks), 10):
        yield _together(*clicks[begin : begin + 10])
    yield see().submit()


def _identify_shape(see: See) -> Iterator[str]:
    figure = see().nodes[0]
    kinds = {"rect": "Rectangle", "circle": "Circle", "polygon": "Triangle"}
    label = kinds.get(figure["tag"]) or ("Number" if figure["text"].isdecimal() else "Letter")
    yield click(see().one(label, tag="button"))


def _is_like(node: Node, words: Sequence[str], low: float) -> bool:
    """Return whether a figure is what words such as ``small red digit`` say; `low` divides the sizes."""
    text, tag = node["text"], node["tag"]
    for word in words:
        if word in ("small", "large"):
            if (node["box"][3] > low) != (word == "large"):
                return False
        elif word in _COLOURS:
            if node["colour"] != _COLOURS[word]:
                return False
        elif word in ("digit", "letter", "shape", "item"):
            kind = "digit" if text.isdecimal() else "letter" if tag == "text" else "shape"
            if word not in (kind, "item"):
                return False
        elif word in ("circle", "rectangle", "triangle"):
            if tag != {"circle": "circle", "rectangle": "rect", "triangle": "polygon"}[word]:
                return False
        elif text != word:
            return False
    return True


def _figures(reading: Reading) -> list[dict[str, Any]]:
    return [node for node in reading.nodes if node["tag"] in ("text", "circle", "rect", "polygon")]


def _click_shape(see: See) -> Iterator[str]:
    words = see().match(r"Click on an? (.+)").rstrip(".").split()
    yield click(see().first(lambda node: node in _figures(see()) and _is_like(node, words, 15)))


def _count_shape(see: See) -> Iterator[str]:
    words = see().match(r"How many (.+) are").split()
    last = words[-1]
    words[-1] = last.removesuffix("s") if len(last) > 2 else last[0]
    count = sum(_is_like(node, words, 15) for node in _figures(see()))
    yield click(see().one(str(count), tag="button"))


# -- boxes and lists


def _check(see: See, names: Sequence[str]) -> Iterator[str]:
    clicks = [click(see().one(name, tag="label")) for name in names]
    for begin in range(0, len(clicks), 10):
        yield _together(*clicks[begin : begin + 10])
    yield see().submit()


def _click_checkboxes(see: See) -> Iterator[str]:
    names = see().match(r"Select (.+) and click").split(", ")
    return _check(see, [] if names == ["nothing"] else names)


def _choose_list(see: See) -> Iterator[str]:
    names = see().match(r"Select (.+) from the").split(", ")
    chooser = see().one(tag="select")
    yield _together(*(write_action("select", chooser["ref"], name) for name in names))
    yield see().submit()


# -- texts


def _enter_quoted(see: See) -> Iterator[str]:
    yield _together(*(fill(field, see().quoted[0]) for field in see().fields()), see().submit())


def _enter_cased(see: See) -> Iterator[str]:
    text = see().quoted[0]
    yield _together(
        fill(see().field(), text.upper() if " upper " in see().goal else text.lower()), see().submit()
    )


def _login_user(see: See) -> Iterator[str]:
    name, password = see().quoted[:2]
    first, second = see().fields()
    yield _together(fill(first, name), fill(second, password), click(see().one("Login", tag="button")))


def _enter_date(see: See) -> Iterator[str]:
    month, day, year = see().match(r"Enter (\S+) as").split("/")
    yield _together(fill(see().field(), f"{year}-{month}-{day}"), see().submit())


def _enter_time(see: See) -> Iterator[str]:
    hour, minute, half = re.split(r"[: ]", see().match(r"Enter (.+?) as"))
    yield _together(
        fill(see().field(), f"{int(hour) % 12 + 12 * (half == 'PM'):02}:{minute}"), see().submit()
    )


def _find_word(see: See) -> Iterator[str]:
    words = see().one(tag="p")["text"].split()
    word = words[int(see().match(r"the (\d+)\w\w word")) - 1].strip(".,")
    yield _together(fill(see().field(), word), see().submit())


def _read_table(see: See) -> Iterator[str]:
    fields = see().fields()
    labels = [node["text"].rstrip(":") for node in see().all(tag="label")]
    labels = labels or [see().match(r"value of (.+?) into")]
    texts = [see().after(see().one(label, tag="td"), tag="td")["text"] for label in labels]
    yield _together(*(fill(field, text) for field, text in zip(fields, texts, strict=True)), see().submit())


def _copy_paste(see: See) -> Iterator[str]:
    areas = see().all(tag="textarea")
    numbers = re.findall(r"the (\d)\w\w text area", see().goal)
    area = areas[int(numbers[0]) - 1] if numbers else areas[0]
    yield _together(fill(see().one(tag="input"), area["value"]), see().submit())


def _scroll_text(see: See) -> Iterator[str]:
    word = see().one(tag="textarea")["value"].split()[-1].strip(".,")
    yield _together(fill(see().one(tag="input"), word), see().submit())


def _scroll_text_2(see: See) -> Iterator[str]:
    area = see().one(tag="textarea")
    yield _together(
        write_action("scroll", area["ref"], -5000 if "top" in see().goal else 5000), see().submit()
    )


def _sign_agreement(see: See) -> Iterator[str]:
    if see().quoted:
        name, label = see().quoted[:2]
        yield write_action("scroll", see().one(tag="textarea")["ref"], 5000)
        yield _together(fill(see().one(id="name"), name), click(see().one(label, tag="button")))
        return
    yield click(see().one("Cancel" if "cancel" in see().goal else "Agree", tag="button"))


def _calculate(left: int, sign: str, right: int) -> int:
    return left + right if sign == "+" else left - right if sign == "-" else left * right


def _simple_arithmetic(see: See) -> Iterator[str]:
    left, sign, right = see().one(tag="div")["text"].split()[:3]
    yield _together(fill(see().field(), str(_calculate(int(left), sign, int(right)))), see().submit())


def _simple_algebra(see: See) -> Iterator[str]:
    left, sign, right, _, result = see().one(tag="div")["text"].split()
    value = next(
        x
        for x in range(-500, 501)
        if _calculate(*(x if left == "x" else int(left), sign, x if right == "x" else int(right)))
        == int(result)
    )
    yield _together(fill(see().field(), str(value)), see().submit())


def _visual_addition(see: See) -> Iterator[str]:
    yield _together(fill(see().field(), str(len(see().all(classes="addition-block")))), see().submit())


def _text_transform(see: See) -> Iterator[str]:
    text = "".join(node["text"] for node in see().all(tag="span"))
    yield _together(fill(see().field(), text), see().submit())


def _odd_or_even(see: See) -> Iterator[str]:
    reading = see()
    clicks = []
    for number in reading.all(tag="div"):
        if not re.fullmatch(r"-?\d+", number["text"]):
            continue
        even = int(number["text"]) % 2 == 0
        odd_button = reading.nodes[reading.nodes.index(number) - 1]
        clicks.append(click(reading.after(number, "Even", tag="button") if even else odd_button))
    yield _together(*clicks)
    yield see().submit()


def _use_autocomplete(see: See) -> Iterator[str]:
    begin = see().quoted[0]
    end = see().quoted[1] if len(see().quoted) > 1 else ""
    yield fill(see().field(), begin)
    yield click(
        see().first(
            lambda node: (
                node["tag"] == "div" and node["text"].startswith(begin) and node["text"].endswith(end)
            )
        )
    )
    yield see().submit()


def _use_spinner(see: See) -> Iterator[str]:
    number = int(see().match(r"Select (-?\d+)"))
    arrow = see().all(tag="a")[number < 0]
    for begin in range(0, abs(number), 10):
        yield _together(*[click(arrow)] * min(10, abs(number) - begin))
    yield see().submit()


def _search_movies(see: See) -> Iterator[str]:
    goal = see()
    values = {
        "genre": goal.match(r"for (\S+) movies"),
        "director": goal.match(r"directed by (\S+)"),
        "year": goal.match(r"year (\d+)"),
    }
    fields = [node for node in goal.nodes if "value" in node]
    labels = [name for node in goal.nodes if (name := _label(node["text"]))]
    actions = [fill(field, values[name]) for field, name in zip(fields, labels, strict=True)]
    yield _together(*actions, click(goal.first(lambda node: node["text"] in ("Search", "Submit", "Go!"))))


def _label(text: str) -> str:
    """Return what a label stands for; '' for other texts."""
    names = {"genre": "genre", "director": "director", "year": "year", "date": "year"}
    return next((name for word, name in names.items() if word in text.lower()), "")


def _highlight_text(see: See) -> Iterator[str]:
    number = re.search(r"the (\d)\w\w paragraph", see().goal)
    node = see().all(tag="p")[int(number[1]) - 1] if number else see().one(tag="div")
    yield _together(write_action("select", node["ref"], node["text"]), see().submit())


# -- mail


def _email_inbox(see: See) -> Iterator[str]:
    name = see().match(r"email by (\S+)")
    row = see().one(name)
    if "star icon" in see().goal:
        yield click(see().after(row, classes="star"))
        return
    if "trash icon" in see().goal:
        yield click(see().after(row, classes="trash"))
        return
    yield click(row)
    forward = "forward" in see().goal
    yield click(see().one("Forward" if forward else "Reply"))
    text = see().match(r"that email to (.+)\.$") if forward else see().quoted[0]
    yield fill(see().one(tag="input" if forward else "textarea"), text)
    yield click(see().first(lambda node: node.get("id", "").startswith("send")))


EXPERTS: dict[str, Expert] = {
    "ascending-numbers": _ascending_numbers,
    "button-delay": _button_delay,
    "buy-ticket": _buy_ticket,
    "choose-list": _choose_list,
    "click-button": _click_quoted,
    "click-button-sequence": _click_both,
    "click-checkboxes": _click_checkboxes,
    "click-checkboxes-large": _click_checkboxes,
    "click-checkboxes-transfer": _click_checkboxes,
    "click-collapsible": _click_collapsible,
    "click-collapsible-2": _click_collapsible_2,
    "click-collapsible-2-nodelay": _click_collapsible_2,
    "click-collapsible-nodelay": _click_collapsible,
    "click-color": _click_color,
    "click-dialog": _click_dialog,
    "click-dialog-2": _click_dialog,
    "click-link": _click_link,
    "click-menu": _click_menu,
    "click-option": _click_checkboxes,
    "click-scroll-list": _choose_list,
    "click-shades": _click_shades,
    "click-shape": _click_shape,
    "click-tab": _click_tab,
    "click-tab-2": _click_tab_2,
    "click-tab-2-easy": _click_tab_2,
    "click-tab-2-hard": _click_tab_2,
    "click-tab-2-medium": _click_tab_2,
    "click-test": _click_test,
    "click-test-2": _click_one,
    "click-test-transfer": _click_one,
    "click-widget": _click_widget,
    "copy-paste": _copy_paste,
    "copy-paste-2": _copy_paste,
    "count-shape": _count_shape,
    "email-inbox": _email_inbox,
    "email-inbox-delete": _email_inbox,
    "email-inbox-forward": _email_inbox,
    "email-inbox-important": _email_inbox,
    "email-inbox-noscroll": _email_inbox,
    "email-inbox-reply": _email_inbox,
    "email-inbox-star-reply": _email_inbox,
    "enter-date": _enter_date,
    "enter-password": _enter_quoted,
    "enter-text": _enter_quoted,
    "enter-text-2": _enter_cased,
    "enter-text-dynamic": _enter_quoted,
    "enter-time": _enter_time,
    "find-word": _find_word,
    "focus-text": _focus_text,
    "focus-text-2": _focus_text_2,
    "grid-coordinate": _grid_coordinate,
    "highlight-text": _highlight_text,
    "highlight-text-2": _highlight_text,
    "identify-shape": _identify_shape,
    "login-user": _login_user,
    "multi-layouts": _search_movies,
    "multi-orderings": _search_movies,
    "navigate-tree": _navigate_tree,
    "odd-or-even": _odd_or_even,
    "phone-book": _phone_book,
    "read-table": _read_table,
    "read-table-2": _read_table,
    "scroll-text": _scroll_text,
    "scroll-text-2": _scroll_text_2,
    "search-engine": _search_engine,
    "sign-agreement": _sign_agreement,
    "simple-algebra": _simple_algebra,
    "simple-arithmetic": _simple_arithmetic,
    "social-media": _social_media,
    "social-media-all": _social_media_all,
    "social-media-some": _social_media_all,
    "text-transform": _text_transform,
    "unicode-test": _click_quoted,
    "use-autocomplete": _use_autocomplete,
    "use-autocomplete-nodelay": _use_autocomplete,
    "use-spinner": _use_spinner,
    "visual-addition": _visual_addition,
}
"""The experts, by the name of the page."""
