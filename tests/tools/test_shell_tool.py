import pytest

import gem
from gem.errors import BadArgument
from gem.sandbox import SandboxFailed
from gem.tools.shell_tool import ShellTool, cut_middle
from gem.tools.tool_env_wrapper import ToolEnvWrapper

terminal = pytest.importorskip("gem.envs.terminal.env")


@pytest.fixture(scope="module", autouse=True)
def box():
    try:
        terminal.check_shell()
    except SandboxFailed as absent:
        pytest.skip(str(absent))


@pytest.fixture
def shell():
    tool = ShellTool(timeout=20)
    yield tool
    tool.close()


def test_folder_and_variables_are_kept_and_a_new_episode_is_a_new_box(shell):
    assert shell.call("mkdir a && cd a && export X=5 && pwd").text.endswith("/a")
    assert shell.call("echo $X in $(basename $PWD)").text == "5 in a"
    shell.reset(seed=0)
    assert shell.call("echo [$X] $(basename $PWD); ls ~ | wc -l").text.startswith("[] ")


def test_errors_exit_codes_and_empty_input(shell):
    result = shell.call("echo out; echo err >&2; exit 3")
    assert (result.text, result.error) == ("out\nerr\n[exit code 3]", True)
    assert shell.call("cat; read x || echo nothing to read").text == "nothing to read"
    assert shell.call("true").text == "[no output]"


def test_a_command_that_hangs_is_stopped_and_the_box_goes_on():
    shell = ShellTool(timeout=1)
    shell.call("echo kept > file")
    result = shell.call("echo begun; sleep 60")
    assert result.error
    assert "begun" in result.text
    assert "[stopped: it took more than 1 s]" in result.text
    assert shell.call("cat ~/file").text == "kept"
    shell.close()


def test_background_jobs_go_on_between_calls_and_end_with_the_episode(shell):
    shell.call(": > beat; (while true; do date >> beat; sleep 0.05; done) > /dev/null 2>&1 & echo $! > pid")
    assert (
        shell.call(
            "until [ $(wc -l < beat) -gt 2 ]; do sleep 0.02; done; kill -0 $(cat pid) && echo alive"
        ).text
        == "alive"
    )
    shell.reset(seed=0)
    assert "alive" not in shell.call("ls; pgrep -f beat && echo alive").text


def test_long_output_is_cut_in_the_middle(shell):
    assert cut_middle("abcdef", 4) == "ab\n[... 2 characters left out ...]\nef"
    assert cut_middle("abcd", 4) == "abcd"
    text = shell.call("seq 100000").text
    assert len(text) < 11_000
    assert text.startswith("1\n2\n")
    assert "characters left out" in text
    assert text.endswith("100000")


def test_in_an_episode():
    env = ToolEnvWrapper(gem.make("game:GuessTheNumber-v0-easy"), [ShellTool(20)])
    assert "```bash" in env.reset(seed=0).obs
    assert env.step("```bash\nX=4; echo $((X*2))\n```").obs == "<output>\n8\n</output>"
    env.close()


def test_a_timeout_is_positive():
    with pytest.raises(BadArgument):
        ShellTool(timeout=-1)
