"""SandboxFusion's protocol, against a server that answers as its documentation says."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("httpx")

from gem.errors import BadArgument
from gem.graders.code import CodeGrader, feedback
from gem.graders.code_tests import read_tests
from gem.sandbox.base import Budget, Case, SandboxFailed, Status
from gem.sandbox.piped import UnsafeSandbox
from gem.sandbox.remote import RemoteSandbox

LOCAL = UnsafeSandbox()


class Service(BaseHTTPRequestHandler):
    """Runs what it is sent, on this machine, and remembers the requests."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, request))
        if self.server.failures:
            self.server.failures -= 1
            return self.answer({"status": "SandboxError", "message": "no pod"})
        files = {path: base64.b64decode(data) for path, data in request["files"].items()}
        budget = Budget(wall_s=request["run_timeout"])
        done = LOCAL.run(request["code"], stdin=request["stdin"].encode(), files=files, budget=budget)
        spent = done.status is Status.TLE
        return self.answer(
            {
                "status": "Success" if done.ok else "Failed",
                "message": "",
                "compile_result": None,
                "run_result": {
                    "status": "TimeLimitExceeded" if spent else "Finished",
                    "execution_time": done.wall_s,
                    "return_code": None if spent else done.exit_code,
                    "stdout": done.stdout,
                    "stderr": done.stderr,
                },
                "files": {},
            }
        )

    def answer(self, what):
        body = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        server.requests, server.failures = [], 0
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


@pytest.fixture
def sandbox(service):
    opened = RemoteSandbox(f"http://127.0.0.1:{service.server_port}")
    yield opened
    opened.close()


def test_a_program(sandbox, service):
    done = sandbox.run("import sys; print(input(), sys.argv[1], open('f').read())", stdin=b"in", args=["a"],
                       files={"f": b"file"}, budget=Budget(wall_s=5))  # fmt: skip
    assert (done.status, done.stdout) == (Status.OK, "in a file\n")
    ((path, request),) = service.requests
    assert path == "/run_code"
    assert (request["language"], request["run_timeout"]) == ("python", 5)
    assert done.info["backend"] == "remote"


@pytest.mark.system
def test_how_programs_end(sandbox):
    assert sandbox.run("1 / 0").status is Status.RE
    assert sandbox.run("while True: pass", budget=Budget(wall_s=0.5)).status is Status.TLE
    assert sandbox.run("print('x' * 5000)", budget=Budget(output_kb=1)).status is Status.OLE


@pytest.mark.system
def test_judging(sandbox):
    results = sandbox.judge(
        "def f(x): return x * 2", [Case(call="f", args=(4,)), Case(code="assert f(1) == 2")]
    )
    assert [result.value for result in results] == ["8", None]
    assert all(result.ok for result in results)
    early = sandbox.judge("import sys; sys.exit(0)", [Case(code="assert f(1) == 2"), Case(call="f")])
    assert [result.status for result in early] == [Status.RE, Status.RE]
    (broken,) = sandbox.judge("def f(x:", [Case(call="f", args=(4,)), Case(stdin=b"")])
    assert broken.status is Status.CE
    assert "SyntaxError" in broken.stderr
    with pytest.raises(BadArgument, match="exactly one"):
        sandbox.judge("1", [Case()])
    with pytest.raises(SandboxFailed, match="cannot hold a submission and its tester apart"):
        CodeGrader(sandbox).judge("def f(): pass", read_tests(["assert f() is None"]))


def test_a_failure_of_the_service_is_tried_again_once(sandbox, service):
    service.failures = 1
    assert sandbox.run("print(1)").ok
    service.failures = 2
    with pytest.raises(SandboxFailed, match="no pod"):
        sandbox.run("print(1)")


def test_nobody_there():
    sandbox = RemoteSandbox("http://127.0.0.1:1")
    with pytest.raises(SandboxFailed, match=r"127\.0\.0\.1:1"):
        sandbox.run("print(1)")
    sandbox.close()


def test_an_answer_that_is_none():
    import httpx

    own = '{"status": "Failed", "run_result": {"status": "Error", "stderr": "exception on running command"}}'
    cut = '{"status": "Success", "run_result": {"status": "Finished", "return_code": null}}'
    odd = '{"status": "Success", "run_result": {"status": "Finished", "return_code": 0, "stdout": {"a": 1}}}'
    for body in ("[]", "{}", "<html>", '{"run_result": 3}', own, cut, odd):
        transport = httpx.MockTransport(lambda request, body=body: httpx.Response(200, text=body))
        sandbox = RemoteSandbox("http://service", transport=transport)
        with pytest.raises(SandboxFailed, match="service"):
            sandbox.run("print(1)")
        sandbox.close()


@pytest.mark.parametrize("code", [0, 1])
def test_half_a_surrogate_pair_reaches_no_observation(code):
    import httpx

    ran = {"status": "Finished", "return_code": code, "stdout": "\ud800 out", "stderr": "\udfff err"}
    answer = json.dumps({"status": "Success", "run_result": ran})
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=answer))
    sandbox = RemoteSandbox("http://service", transport=transport)
    result = sandbox.run("print(1)")
    assert (result.stdout, result.stderr) == ("? out", "? err")
    tests = read_tests({"inputs": ["1\n"], "outputs": ["2\n"], "public": 1})
    score = CodeGrader(sandbox).judge("print(1)", tests)
    assert not score.correct
    feedback(score.info["public"], "program").encode()
    sandbox.close()


def test_no_sessions_and_no_name(sandbox, monkeypatch):
    with pytest.raises(BadArgument, match="no sessions"):
        sandbox.session()
    monkeypatch.delenv("GEM_SANDBOX_URL", raising=False)
    with pytest.raises(SandboxFailed, match="GEM_SANDBOX_URL"):
        RemoteSandbox()
