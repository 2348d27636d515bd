"""MiniWoB++ through gem, against the package's own runner: its environment over Selenium and ChromeDriver."""

import os
import shutil
import time

import pytest

import gem
from gem.envs.kit.browser import close_browsers, find_chromium
from gem.envs.kit.web_env import read_actions, write_action
from gem.registry import FAMILIES
from gem.worlds import find

if not FAMILIES["miniwob"].is_here():
    pytest.skip(
        "needs playwright, a Chromium and a world: gem-gym worlds --fetch miniwob", allow_module_level=True
    )
pytest.importorskip("selenium", reason="needs the package's own runner: pip install selenium")
pytest.importorskip("gymnasium", reason="needs the package's own runner: pip install gymnasium")
CHROMEDRIVER = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
if CHROMEDRIVER is None:
    pytest.skip(
        "needs a ChromeDriver: apt install chromium-driver, or the variable CHROMEDRIVER",
        allow_module_level=True,
    )

pytestmark = pytest.mark.slow

PAGES = """
click-button click-button-sequence click-checkboxes click-checkboxes-transfer click-collapsible click-color
click-dialog click-dialog-2 click-link click-option click-shades click-shape click-tab click-tab-2-easy
click-test click-test-2 click-widget copy-paste count-shape enter-password enter-text
enter-text-2 enter-text-dynamic focus-text focus-text-2 grid-coordinate identify-shape login-user
multi-layouts multi-orderings navigate-tree odd-or-even phone-book search-engine
simple-algebra simple-arithmetic text-transform unicode-test
""".split()  # noqa: SIM905
"""Pages where nothing is out of sight: before a click gem scrolls to its node, and the package does not."""

WAIT_S = 10.0


@pytest.fixture(scope="module", autouse=True)
def one_browser():
    """Keep gem's browser between the tests of this file."""
    yield
    close_browsers()


@pytest.fixture
def pair(request, monkeypatch):
    """Make a page's environment of gem and of the package."""
    monkeypatch.syspath_prepend(find("miniwob"))
    monkeypatch.setenv("MINIWOB_CHROME_BINARY", find_chromium())
    monkeypatch.setenv("MINIWOB_CHROMEDRIVER", CHROMEDRIVER)
    from miniwob.environment import MiniWoBEnvironment

    theirs = MiniWoBEnvironment(request.param)
    theirs.set_record_screenshots(False)
    theirs.instance.driver.execute_script("core.EPISODE_MAX_TIME = 1e9;")  # theirs goes on while we look
    with gem.make(f"miniwob:{request.param}") as ours:
        yield ours, theirs
    theirs.close()


def flatten(root):
    """Return the elements of the package's reading, but its display of the last reward and the time."""
    below = [each for child in root.children for each in flatten(child)]
    return [] if root.id == "reward-display" else [root, *below]


def describe(elements):
    """Return what elements say."""
    return [(each.tag, each.text, each.value, each.id, each.classes) for each in elements]


def read_ours(env):
    """Return gem's page as the package's own code and element class read it."""
    from miniwob.dom import DOMElement

    return flatten(DOMElement(env._page.run(env._page.evaluate("() => core.getDOMInfo()"))))


def is_same(ours, theirs):
    """Return whether elements say the same and stand in the same places, but for three pixels."""
    edges = [(a.left - b.left, a.top - b.top) for a, b in zip(ours, theirs, strict=False)]
    return describe(ours) == describe(theirs) and all(abs(each) <= 3 for edge in edges for each in edge)


def place(env, ref):
    """Return the point of a node where gem clicks, in the window."""
    return env._page.run(env._page.evaluate("([ref]) => __gem.point(ref, null, null)", ref))


def translate(env, call):
    """Return a call as the package's actions, which click at points and press keys."""
    if call.name == "press":
        return [("PRESS_KEY", {"key": f"<{call.arguments['key']}>"})]
    at = [("CLICK_COORDS", {"coords": place(env, call.arguments["ref"])})]
    if call.name == "fill":
        at += [("PRESS_KEY", {"key": "C-a"}), ("TYPE_TEXT", {"text": call.arguments["text"]})]
    return at


def act(theirs, kind, given):
    """Carry out one of the package's actions by its `step`."""
    if "key" in given:
        given = {"key": theirs.action_space_config.allowed_keys.index(given["key"])}
    return theirs.step(theirs.create_action(kind, **given))


def compare_page(ours, theirs):
    """Compare what is there; wait before, for what moves takes its time in the package's browser."""
    deadline = time.monotonic() + WAIT_S
    observation, _, done, _, info = act(theirs, "NONE", {})
    while (
        not done and time.monotonic() < deadline and not is_same(read_ours(ours), flatten(info["root_dom"]))
    ):
        observation, _, done, _, info = act(theirs, "NONE", {})
    assert done == ours.view.done
    if done:
        assert info["raw_reward"] == pytest.approx(ours.view.reward)
    else:
        assert observation["utterance"] == ours.view.goal
        assert describe(flatten(info["root_dom"])) == describe(read_ours(ours))


def compare_episode(ours, theirs, seed, choose, turns):
    """Play an episode by both, compared after each call; return gem's reward, or None without an end."""
    ours.reset(seed=seed)
    theirs.reset(seed=seed)
    act(theirs, "MOVE_COORDS", {"coords": (0, 0)})  # gem takes the mouse back before an episode
    compare_page(ours, theirs)
    for _ in range(turns):
        for call in read_actions(choose(ours)).calls:
            for kind, given in translate(ours, call):
                act(theirs, kind, given)
            step = ours.step(write_action(call.name, *call.arguments.values()))
            compare_page(ours, theirs)
            if ours.view.done:
                return step.reward
    return None


@pytest.mark.parametrize("pair", PAGES, indirect=True)
def test_the_same_play_is_worth_the_same_by_both(pair):
    won = [compare_episode(*pair, seed, lambda env: env.solve(), 20) for seed in (3, 4)]
    assert won == [1.0, 1.0]
    for seed in (3, 4):
        compare_episode(*pair, seed, lambda env: env.sample_random_action(), 6)
