"""MiniWoB++ in Chromium: the tasks and rewards of the package; no verdict where the browser fails."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

import gem
from gem.content import Image
from gem.envs.bridges.specs import MINIWOB_NAMES, MINIWOB_SOLVED
from gem.envs.kit import browser
from gem.envs.kit.web_env import write_action
from gem.errors import BadArgument, NoVerdict
from gem.registry import FAMILIES

if not FAMILIES["miniwob"].is_here():
    pytest.skip(
        "needs playwright, a Chromium and a world: gem-gym worlds --fetch miniwob", allow_module_level=True
    )

pytestmark = pytest.mark.system


@pytest.fixture(scope="module", autouse=True)
def one_browser():
    """Keep the browser between the tests of this file."""
    yield
    browser.close_browsers()


@pytest.fixture
def make():
    """Make environments that are closed at the end."""
    made = []

    def make_one(name, **kwargs):
        made.append(gem.make(f"miniwob:{name}", **kwargs))
        return made[-1]

    yield make_one
    for env in made:
        env.close()


def play(env, seed, turns=8):
    """Return all that an episode of random play shows and pays."""
    texts = [env.reset(seed=seed).obs]
    for _ in range(turns):
        step = env.step(env.sample_random_action())
        texts += [step.obs, step.reward]
        if step.done:
            break
    return texts


def win(env, seed):
    """Let the expert play an episode; return its last step."""
    env.reset(seed=seed)
    while not (step := env.step(env.solve())).done:
        pass
    return step


def test_a_click_on_the_right_button_is_paid(make):
    env = make("click-button")
    text, info = env.reset(seed=0)
    assert 'Task: Click on the "okay" button.' in text
    assert '[2] button "okay"' in text
    assert {tool["name"] for tool in info["tools"]} == {"click", "fill", "select", "press", "drag", "scroll"}
    step = env.step("click(99)")
    assert "click: there is no [99] on the page." in step.obs
    assert not step.done
    assert "That is no action." in env.step("hello").obs
    step = env.step("click(2)")
    assert (step.reward, step.terminated, step.info["success"], step.info["stop"]) == (
        1.0,
        True,
        True,
        "solved",
    )
    env.reset(seed=0)
    step = env.step("click(5)")
    assert (step.reward, step.info["success"], step.info["stop"]) == (-1.0, False, "failed")


def test_the_turns_are_limited(make):
    env = make("click-button", max_turns=2)
    env.reset(seed=0)
    assert not env.step("?").done
    step = env.step("?")
    assert (step.reward, step.terminated, step.info["stop"]) == (-1.0, True, "turn_budget")


@pytest.mark.parametrize(
    "name",
    [
        "click-dialog",
        "choose-date",
        "email-inbox",
        "use-autocomplete",
        "simon-says",
        "social-media",
        "drag-box",
    ],
)
def test_an_episode_depends_on_its_seed_and_actions_alone(make, name):
    kept, other = make(name), make(name)
    forwards = [play(kept, seed) for seed in range(3)]
    assert [play(other, seed) for seed in (2, 1, 0)] == forwards[::-1]


PLAIN = """async ([seed]) => {
  core.EPISODE_MAX_TIME = 1e9; Math.seedrandom(seed); core.startEpisodeReal();
  const goal = core.getUtterance();
  return [goal.utterance || goal, document.querySelector("#wrap").textContent];
}"""


@pytest.mark.parametrize(
    "name", ["click-link", "login-user", "email-inbox-nl-turk", "navigate-tree", "multi-layouts"]
)
def test_the_tasks_are_those_of_the_package_by_its_own_seed(make, name):
    """On a page without gem's script, as the package's runner has it."""
    env = make(name)
    env.reset(seed=0)
    page = env._page
    owner = page._browser

    async def plain(seeds):
        context = await owner._browser.new_context(viewport={"width": 500, "height": 320}, offline=True)
        other = await context.new_page()
        await other.goto(env.address)
        tasks = [await other.evaluate(PLAIN, [seed]) for seed in seeds]
        await context.close()
        return tasks

    for seed, (goal, text) in zip(range(5), owner.run(plain(range(5)), 20), strict=True):
        env.reset(seed=seed)
        ours = page.run(page.evaluate("() => document.querySelector('#wrap').textContent"))
        assert (env.view.goal, ours) == (goal, text)


def test_text_of_an_agent_is_a_value_and_never_a_script(make):
    env = make("enter-text")
    env.reset(seed=0)
    hostile = '"); window.hit = 1; //<img src=x onerror="window.hit = 1">\'\\${window.hit = 1}`'
    step = env.step(write_action("fill", 1, hostile))
    assert env.view.nodes[0]["value"] == hostile
    assert env._page.run(env._page.evaluate("() => window.hit === undefined"))
    step = env.step(write_action("select", 1, hostile))
    assert "has no text" in step.obs
    assert "there is no key" in env.step(write_action("press", hostile[:30])).obs
    assert "at most 1000 are typed" in env.step(write_action("fill", 1, "x" * 2000)).obs


def test_a_page_reaches_no_network_and_no_other_address(make):
    env = make("click-test")
    env.reset(seed=0)
    failed = env._page.run(
        env._page.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'reached', () => 'failed')")
    )
    assert failed == "failed"


def test_the_splits_share_no_task(make):
    train, test = (make("click-link", split=split) for split in ("train", "test"))
    tasks = [{env.reset(seed=seed).obs for seed in range(40)} for env in (train, test)]
    assert min(map(len, tasks)) > 20
    assert not tasks[0] & tasks[1]
    with pytest.raises(BadArgument, match="too few tasks to split"):
        make("click-test", split="train")


def test_a_picture_is_shown_on_request(make):
    env = make("click-shape", picture=True)
    obs = env.reset(seed=0).obs
    assert isinstance(obs[-1], Image)
    assert obs[-1].data[:4] == b"\x89PNG"
    step = env.step('press("Tab")')
    assert [type(part).__name__ for part in step.obs] == ["Text", "Text", "Image"]


def test_a_hanging_page_is_no_verdict_and_is_replaced(make):
    env, other = make("click-test"), make("click-button")
    env.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(NoVerdict, match="no answer within"):
        env._page.run(env._page.evaluate("() => { while (true); }"), 0.5)
    with pytest.raises(NoVerdict):
        env.step("click(1)")
    assert other.step("click(2)").reward == 1.0
    assert win(env, 1).reward == 1.0


def test_a_killed_browser_is_no_verdict_and_is_replaced(make):
    env = make("click-test")
    env.reset(seed=0)
    os.kill(env._page._browser._pid, signal.SIGKILL)
    with pytest.raises(NoVerdict, match="the browser failed"):
        env.step('press("Tab")')
    assert win(env, 1).reward == 1.0


def test_many_environments_share_browsers_and_their_threads(make):
    envs = [make("click-button") for _ in range(browser.PAGES + 2)]
    with ThreadPoolExecutor(len(envs)) as pool:
        rewards = [step.reward for step in pool.map(win, envs, range(len(envs)))]
    assert rewards == [1.0] * len(envs)
    assert max(each.pages for each in browser._browsers) <= browser.PAGES


def test_a_browser_without_pages_ends(monkeypatch):
    browser.close_browsers()
    monkeypatch.setattr(browser, "IDLE_S", 0.05)
    with gem.make("miniwob:click-test") as env:
        env.reset(seed=0)
        owner = env._page._browser
        assert owner in browser._browsers
    owner._thread.join(20)
    assert not owner._thread.is_alive()
    assert owner not in browser._browsers


def test_what_runs_too_long_is_cut_off():
    async def never_answer():
        await asyncio.get_running_loop().create_future()

    owner = browser.Browser()
    try:
        with pytest.raises(NoVerdict, match=r"within 0\.05 s"):
            owner.run(never_answer(), 0.05)
    finally:
        owner.close()
    assert not owner.alive


@pytest.mark.slow
def test_every_page_of_the_package_begins_and_no_other(make):
    first = make("click-test")
    folder = first._file.parent
    assert sorted(path.stem for path in folder.glob("*.html")) == sorted(MINIWOB_NAMES)
    for name in MINIWOB_NAMES:
        with gem.make(f"miniwob:{name}") as env:
            assert "The page:\n[1]" in env.reset(seed=0).obs, name


@pytest.mark.slow
@pytest.mark.parametrize("name", MINIWOB_SOLVED)
def test_the_experts_win(make, name):
    env = make(name)
    assert [win(env, seed).info["success"] for seed in range(1200, 1205)] == [True] * 5
