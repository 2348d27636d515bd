"""``gem-gym proxy`` in a process of its own: it prints where it is, records, and ends by Ctrl-C."""

import signal
import subprocess
import sys

import pytest

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package, reason=f"needs {package}: pip install 'gem-gym[serve]'")
httpx = pytest.importorskip("httpx", reason="needs httpx: pip install 'gem-gym[serve]'")

from gem.cli import main
from gem.rollout import EpisodeStore
from gem.testing.stub_server import StubServer


@pytest.mark.system
def test_a_program_is_recorded_until_ctrl_c(tmp_path):
    with StubServer("hello") as stub:
        command = [sys.executable, "-m", "gem", "proxy", "--model", stub.base_url, "--port", "0", "--any-key"]
        process = subprocess.Popen(
            [*command, "--out", tmp_path / "run", "--calls", "1"], stdout=subprocess.PIPE, text=True
        )
        try:
            url = process.stdout.readline().strip().removeprefix("OPENAI_BASE_URL=")
            token = process.stdout.readline().removeprefix("GEM_PROXY_TOKEN=").split()[0]
            with httpx.Client(headers={"Authorization": "Bearer p1"}, timeout=60) as client:
                body = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}
                answers = [client.post(f"{url}/chat/completions", json=body) for _ in range(2)]
                assert [each.status_code for each in answers] == [200, 403]
                root = url.removesuffix("/v1")
                reward = f"{root}/episodes/p1/reward"
                owner = {"Authorization": f"Bearer {token}"}
                assert client.post(reward, json={"reward": 9.0}).status_code == 401
                assert client.post(reward, json={"reward": 0.5}, headers=owner).status_code == 200
                client.post(f"{url}/chat/completions", json=body)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        assert stub.requests[0]["model"] == "m-1"
    with EpisodeStore(tmp_path / "run" / "episodes.jsonl") as store:
        rewarded, stopped = store
    assert (rewarded.job, rewarded.reward(), rewarded.stop.value) == ("p1", 0.5, "turn_limit")
    assert (stopped.sample, stopped.scored, stopped.error.message) == (1, False, "the proxy was stopped.")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "solver"], "cannot answer messages"),
        (["--model", "vllm:http://127.0.0.1:1"], "need a template"),
        (["--model", "smollm2", "--template", "smollm2"], "no other model takes one"),
        (["--model", "nosuchmodel"], "accepted: http://ADDRESS/v1, vllm:URL"),
        (["--model", "http://127.0.0.1:1/v1", "--host", "0.0.0.0"], "a token"),
        (["--model", "http://127.0.0.1:1/v1", "--host", "0.0.0.0", "--any-key"], "a token"),
        (["--model", "http://127.0.0.1:1/v1", "--grader", "maths"], "Did you mean 'math'"),
        (["--model", "http://127.0.0.1:1/v1", "--idle", "0"], "seconds above 0"),
        (["--model", "http://127.0.0.1:1/v1", "--port", "99999"], "accepted: a free port"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path, capsys, flags, said):
    assert main(["proxy", "--out", str(tmp_path / "run"), *flags]) == 2
    assert said in capsys.readouterr().err
