"""The remote backend: programs run on a service that speaks SandboxFusion's ``/run_code``.

The service is responsible for the isolation; this side sees only errors of the connection and of the service.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from gem.errors import BadArgument, needs_extra, replace_surrogates
from gem.proxies import through_proxy
from gem.sandbox.base import Budget, Case, Result, SandboxFailed, Status
from gem.sandbox.piped import OneShotSandbox
from gem.sandbox.request import Request
from gem.sandbox.verdicts import checked_case

_MARGIN_S = 30.0  # for the service's queue, past the program's own budget
_COMPILE = 'compile({source}, "main.py", "exec", dont_inherit=True)'
# What the submission prints comes before the mark; its value, as JSON, after.
_REACHED = '__import__("sys").stdout.write("{mark}")\n'
_CALL = """
import json as _json, sys as _sys
_space = {{"__name__": "submission"}}
exec("from typing import *", _space)
exec(compile({source}, "main.py", "exec", dont_inherit=True), _space)
def _plain(value):
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return [_plain(item) for item in value]
    if type(value) is dict and all(key is None or type(key) in (str, int, float, bool) for key in value):
        return {{key if type(key) is str else _json.dumps(key): _plain(item) for key, item in value.items()}}
    raise TypeError("the result is no plain data: " + type(value).__name__)
_first, *_rest = {call}.split(".")
_found = _space[_first]
if _rest and isinstance(_found, type):
    _found = _found()
for _name in _rest:
    _found = getattr(_found, _name)
_value = _json.dumps(_plain(_found(*_json.loads({args}))))
_sys.stdout.write("{mark}" + _value)
"""


class RemoteSandbox(OneShotSandbox):
    """A SandboxFusion service.

    Args:
        url: the address, such as http://host:8080; ``GEM_SANDBOX_URL`` by default.
        headers: HTTP headers to send, for a service that needs a key.
        transport: an httpx transport, for tests and proxies.

    Raises:
        SandboxFailed: when there is no address.
        MissingExtra: without the package httpx.
    """

    backend = "remote"

    def __init__(
        self, url: str | None = None, *, headers: Mapping[str, str] | None = None, transport: Any = None
    ) -> None:
        super().__init__()
        url = url or os.environ.get("GEM_SANDBOX_URL")
        if not url:
            raise SandboxFailed(
                "no service was named: pass url=..., or set GEM_SANDBOX_URL in the environment."
            )
        with needs_extra("the remote sandbox", "httpx", "openai"):
            import httpx
        self._client = httpx.Client(base_url=url, headers=dict(headers or {}), transport=transport)
        self._broken: type[Exception] = httpx.HTTPError
        self.info |= {"url": url}

    def _run_once(self, request: Request) -> Result:
        """Run a program on the service; `Budget.wall_s` and `memory_mb` are passed on."""
        code, budget = request.code, request.budget
        if request.args:
            code = f"import sys; sys.argv[1:] = {list(request.args)!r}\n{code}"
        asked = {
            "code": code,
            "language": "python",
            "run_timeout": budget.wall_s,
            "memory_limit_MB": budget.memory_mb,
            "stdin": request.stdin.decode("utf-8", "replace"),
            "files": {path: base64.b64encode(data).decode() for path, data in request.files.items()},
        }
        begun = time.monotonic()
        return self._result(self._ask(asked, budget), budget, begun)

    def _session(self, request: Request) -> NoReturn:
        """Refuse to open a session: the protocol runs whole programs and keeps no state."""
        raise BadArgument(
            "the backend 'remote' has no sessions: its service runs whole programs. Use another backend."
        )

    def _judge(self, request: Request) -> list[Result]:
        """Compile the code in its own process, then run every case in another."""
        for case in request.cases:
            checked_case(case, request.budget)
        compiled = self.run(_COMPILE.format(source=repr(request.code)), budget=request.budget)
        if not compiled.ok:
            return [replace(compiled, status=Status.CE)]
        results: list[Result] = []
        for number, case in enumerate(request.cases):
            result = self._case(request.code, case, request.files, request.budget)
            results.append(result)
            if request.go_on is not None and not request.go_on(number, result):
                break
        return results

    def _case(self, code: str, case: Case, files: Mapping[str, bytes] | None, budget: Budget) -> Result:
        if case.stdin is not None:
            return self.run(code, stdin=case.stdin, files=files, budget=budget)
        if case.tester is not None:
            raise SandboxFailed(
                f"the backend {self.backend!r} cannot hold a submission and its tester apart: no verdict. "
                "Use another backend for tests that are asserts."
            )
        mark = secrets.token_hex(16)
        if case.call is None:
            program = f"{code}\n{case.code}\n" + _REACHED.format(mark=mark)
        else:
            program = _CALL.format(
                source=repr(code), call=repr(case.call), args=repr(json.dumps(case.args)), mark=mark
            )
        result = self.run(program, files=files, budget=budget)
        before, reached, value = result.stdout.rpartition(mark)
        if not reached:
            words = result.stderr + "the program ended before its end\n"
            return replace(result, status=Status.RE, stderr=words) if result.ok else result
        return replace(result, stdout=before, value=None if case.call is None else value)

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._client.close()

    def _ask(self, request: dict[str, Any], budget: Budget) -> dict[str, Any]:
        try:
            response = self._client.post("/run_code", json=request, timeout=budget.wall_s + _MARGIN_S)
            response.raise_for_status()
            answer = response.json()
        except (self._broken, ValueError) as error:
            url = self.info["url"]
            raise SandboxFailed(
                f"the service at {url}{through_proxy(url)} failed: {error!r}"[:500]
            ) from error
        if not isinstance(answer, dict) or answer.get("status") == "SandboxError":
            reason = answer.get("message") if isinstance(answer, dict) else answer
            raise SandboxFailed(f"the service at {self.info['url']} says that it failed: {str(reason)[:300]}")
        return answer

    def _result(self, answer: dict[str, Any], budget: Budget, begun: float) -> Result:
        ran = answer.get("run_result")
        if not isinstance(ran, dict):
            raise SandboxFailed(
                f"the service at {self.info['url']} answered without a run_result: {answer}"[:500]
            )
        longest = budget.output_kb << 10
        texts = [ran.get(name) or "" for name in ("stdout", "stderr")]
        if not all(isinstance(text, str) for text in texts):
            raise SandboxFailed(f"the service at {self.info['url']} answered without text: {answer}"[:500])
        out, err = (replace_surrogates(text[: longest + 1]) for text in texts)
        code = ran.get("return_code")
        if ran.get("status") not in ("Finished", "TimeLimitExceeded") or (
            ran["status"] == "Finished" and not isinstance(code, int)
        ):  # "Error" is the service's own, not the program's
            raise SandboxFailed(f"the service at {self.info['url']} could not run it: {err or ran}"[:500])
        killed = -code if isinstance(code, int) and code < 0 else None
        if ran.get("status") == "TimeLimitExceeded":
            status = Status.TLE
        elif max(len(out), len(err)) > longest:
            status = Status.OLE
        elif code == 0:
            status = Status.OK
        else:
            status = Status.MLE if err.rstrip().endswith("MemoryError") else Status.RE
        return Result(
            status=status,
            stdout=out[:longest],
            stderr=err[:longest],
            exit_code=None if killed else code,
            signal=killed,
            wall_s=ran.get("execution_time") or time.monotonic() - begun,
            cut=max(len(out), len(err)) > longest,
            info=self.info,
        )
