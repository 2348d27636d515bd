"""Pages of one's own in Chromium: by seed, with a checker of their own, and sentences for what is wrong."""

import pytest

import gem
from gem.envs.kit import browser
from gem.errors import BadArgument, NoVerdict
from gem.registry import FAMILIES

if not FAMILIES["browser"].is_here():
    pytest.skip("needs playwright and a Chromium", allow_module_level=True)

pytestmark = pytest.mark.system

PAGE = """<!DOCTYPE html><input id="word"><button onclick="sent = true">Send</button><script>
let wanted, sent = false;
window.task = {
  begin() { wanted = String(Math.floor(Math.random() * 1000)); return `Send ${wanted}`; },
  check() { return sent ? (word.value === wanted ? 1 : 0.5) : null; },
};
</script>"""


@pytest.fixture(scope="module", autouse=True)
def one_browser():
    """Keep the browser between the tests of this file."""
    yield
    browser.close_browsers()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a page in `mine`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/index.html").write_text(PAGE)
    return tmp_path / "mine"


def test_the_pages_own_checker_decides(folder):
    with gem.make("browser:mine") as env:
        goals = []
        for seed in (1, 2, 1):
            env.reset(seed=seed)
            goals.append(env.view.goal)
        assert goals[0] == goals[2] != goals[1]
        number = goals[2].split()[1]
        assert not env.step(f'fill(1, "{number}")').done
        step = env.step("click(2)")
        assert (step.reward, step.info["success"]) == (1.0, True)
        env.reset(seed=3)
        step = env.step("click(2)")
        assert (step.reward, step.terminated, step.info["success"]) == (0.5, True, False)


def test_a_folder_without_a_page_or_a_task_is_named(folder):
    with pytest.raises(BadArgument, match="browser:nowhere is no folder with a file index"):
        gem.make("browser:nowhere")
    (folder / "index.html").write_text("<p>Hello")
    with gem.make("browser:mine") as env, pytest.raises(BadArgument, match=r"no begin\(seed\) and check\(\)"):
        env.reset(seed=0)


def test_a_page_that_fails_while_it_is_checked_is_no_verdict(folder):
    (folder / "index.html").write_text(PAGE.replace("sent ?", "sent && nothing.here ?"))
    with gem.make("browser:mine") as env:
        env.reset(seed=0)
        with pytest.raises(NoVerdict, match="nothing is not defined"):
            env.step("click(2)")
