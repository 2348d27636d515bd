"""Client for environment servers that speak OpenEnv's protocol, as the family ``openenv:``.

``openenv:http://host:port`` is a running server. ``openenv:PATH`` is the folder of an environment, with its
``openenv.yaml``: each object starts the server of its own on the loopback interface, and ends it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar

from gem import codec
from gem.content import Image, Obs, Text
from gem.core import Env, Start, Step
from gem.envs.bridges.addresses import is_server
from gem.errors import (
    BadArgument,
    NoVerdict,
    ToolError,
    WorkerDied,
    check_seconds,
    needs_extra,
)
from gem.hiding import hide_credentials, hide_secrets, plain_address
from gem.parsing import drop_all_thinking
from gem.record import StopReason

with needs_extra("the openenv: family", "websockets", "serve"):
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import ClientConnection

    from gem.hosts.web_sockets import ConnectionRefused, open_web_socket

ANSWER_AT_MOST = 100 << 20
"""The largest message in bytes, as in OpenEnv's own client."""

_START_S = 600.0  # for a server of its own, on a busy machine; if it dies, the connection is refused at once
_END_S = 5.0

USUAL_FIELDS = ("text", "message", "action", "answer", "code", "command")
"""The action fields that the text fills, first match first, if a server's schema has several fields."""

SHOWN_FIELDS = (
    "text",
    "message",
    "response",
    "prompt",
    "observation",
    "output",
    "question",
    "echoed_message",
)
"""The observation fields to show: the first of them that is text is shown alone."""

REFUSED = ("INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR")


class OpenEnvEnv(Env):
    """An environment on any server that speaks OpenEnv's protocol.

    Task:
        The server's task. Its observation is shown as text.

    Action:
        Text. It fills the field that `field` names, or else the only or the usual field of the server's
        actions, as text or as JSON of the type in the schema. A JSON object with the schema's fields is sent
        unchanged. Thinking is left out, except in the field `text`: a gem server drops it itself. If the
        server refuses an action, the agent reads the refusal and earns 0.

    Observation:
        The text of the observation, if it has one under a usual name. Otherwise all its fields, as JSON.

    Reward:
        The server's, or 0 for a step without one. An episode that ends without a reward has no verdict.

    End:
        When the server says done. A gem server puts truncation and the stop reason into the metadata.

    Source:
        https://github.com/huggingface/OpenEnv, protocol of release 0.10.
    """

    forkable: ClassVar[bool] = False
    shared: ClassVar[tuple[str, ...]] = ("_resources", "_socket", "_fields", "_app", "url")

    def __init__(
        self,
        name: str,
        field: str | None = None,
        shown: str | None = None,
        headers: Mapping[str, str] | None = None,
        call_s: float = 60.0,
    ) -> None:
        """Keep the server's address; the first reset connects to it.

        Args:
            name: the address, as ``http://127.0.0.1:8000``, or the folder of an environment, whose server is
                started. Its packages must be installed beside gem's.
            field: the action field that the text fills; None: chosen from the server's schema.
            shown: the observation field that is shown; None: see Observation.
            headers: HTTP headers to send, for example with a key.
            call_s: seconds that one answer may take.
        """
        check_seconds("call_s", call_s, optional=False)
        self._app = None if is_server(name) else _read_app(name)
        self.url, self.field, self.shown = name.rstrip("/"), field, shown
        self.headers, self.call_s = dict(headers or {}), call_s
        self._resources = ExitStack()
        self._socket: ClientConnection | None = None

    _secret_arguments: ClassVar[tuple[str, ...]] = ("headers",)

    # -- the contract

    def reset(self, seed: int | None = None) -> Start:
        """Begin an episode on the server; see Env.reset."""
        super().reset(seed)
        # The server often passes seeds to numpy or C, which take fewer bits.
        asked = {"type": "reset", "data": {"seed": (self.seed or 0) % 2**31}}
        known = self._socket is not None
        try:
            result = self._ask(asked)
        except WorkerDied:
            if not known:
                raise
            result = self._ask(asked)  # the server was restarted since the last episode
        if result.get("done"):
            raise NoVerdict(f"the server ended the episode in its reset: {_why(result)}")
        return Start(self._obs(result), _info(result))

    def step(self, action: str) -> Step:
        """Take one action on the server; see Env.step."""
        try:
            result = self._ask({"type": "step", "data": self._action(action)})
        except ToolError as refused:  # the agent's mistake; the episode goes on
            return Step(f"Your action was refused: {refused}", 0.0, False, False, {"refused": True})
        done, reward = bool(result.get("done")), result.get("reward")
        metadata = result.get("metadata") or {}
        info = _info(result)
        if (reward is None and done) or metadata.get("verdict") == "none":
            raise NoVerdict(f"the server ended the episode without a reward: {_why(result)}")
        truncated = done and metadata.get("truncated") is True and metadata.get("terminated") is not True
        stop = metadata.get("stop")
        if done and isinstance(stop, str) and stop in {each.value for each in StopReason}:
            info["stop"] = stop
        return Step(self._obs(result), float(reward or 0.0), done and not truncated, truncated, info)

    def close(self) -> None:
        """End the session on the server; see Env.close."""
        self._drop(b'{"type":"close"}')
        super().close()

    # -- messages

    @property
    def _place(self) -> str:
        return plain_address(self.url)

    def _hide(self, why: str) -> str:
        return hide_secrets(hide_credentials(why), self.headers, self.url)

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the data of the answer.

        Raises:
            WorkerDied: when the server is gone, and the session with it.
            ToolError, NoVerdict: when the server answers with an error.
        """
        try:
            socket = self._connect(begins=message["type"] == "reset")
            _check_unasked(socket)
            socket.send(json.dumps(message))
            answer = json.loads(socket.recv(self.call_s))
        except ConnectionRefused as refused:
            raise BadArgument(f"{self._place} answers {refused.answer}.") from refused
        except (OSError, EOFError, WebSocketException, ValueError, RecursionError) as error:
            self._drop()  # or a late answer would be taken for the next one's
            why = f"the server at {self._place} is gone: {type(error).__name__}: {error}"
            raise WorkerDied(self._hide(why)) from error
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, dict):
            raise NoVerdict(f"the server's answer is unreadable: {answer!r:.200}")
        if answer.get("type") == "error":
            why = f"the server says: {data.get('message')!s:.1000} ({data.get('code')})"
            raise (ToolError if data.get("code") in REFUSED else NoVerdict)(why)
        if answer.get("type") != "observation" or not _is_result(data):
            raise NoVerdict(f"the server's answer is no result of a {message['type']}: {answer!r:.200}")
        return data

    def _connect(self, begins: bool) -> ClientConnection:
        if self._socket is None:
            if not begins:
                raise OSError("the connection was lost, and the session with it")
            if self._app is not None:
                self.url = self._resources.enter_context(_run_server(*self._app))
            self._socket = self._resources.enter_context(
                open_web_socket(
                    self.url + "/ws",
                    additional_headers=self.headers,
                    max_size=ANSWER_AT_MOST,
                    open_timeout=self.call_s if self._app is None else max(self.call_s, _START_S),
                    close_timeout=2.0,
                )
            )
        return self._socket

    def _drop(self, last: bytes | None = None) -> None:
        socket, self._socket = self._socket, None
        with suppress(OSError, EOFError, WebSocketException):
            if socket is not None and last is not None:
                socket.send(last.decode())
        with suppress(OSError, EOFError, WebSocketException):
            self._resources.close()

    # -- text and fields

    def _action(self, text: str) -> dict[str, Any]:
        """Return an action in the form of the server's schema."""
        reply = drop_all_thinking(text)
        with suppress(ValueError, RecursionError):
            written = json.loads(reply)
            if isinstance(written, dict) and written and set(written) <= set(self._schema()) | {"metadata"}:
                return written
        field = self._field()
        if self._fields is None or self._fields.get(field) in ("string", None):
            return {field: text if field == "text" else reply}
        try:
            return {field: json.loads(reply)}
        except (ValueError, RecursionError):
            raise ToolError(f"{field} is to be of type {self._fields[field]}, as JSON writes it.") from None

    def _field(self) -> str:
        if self.field is None:
            known = [*self._schema()]
            usual = [name for name in USUAL_FIELDS if name in known]
            if len(known) != 1 and not usual:
                raise BadArgument(
                    f"actions at {self._place} have the fields {', '.join(known) or 'unknown'}; say which "
                    "one a text fills: field=..."
                )
            self.field = usual[0] if usual else known[0]
        return self.field

    _fields: dict[str, Any] | None = None

    def _schema(self) -> dict[str, Any]:
        """Return the fields of an action, and their types."""
        if self._fields is None:
            import httpx  # where a field was named, nobody asks for the schema

            try:
                got = httpx.get(
                    self.url + "/schema", headers=self.headers, timeout=self.call_s, trust_env=False
                )
                properties = got.raise_for_status().json()["action"]["properties"]
                self._fields = {
                    name: each.get("type") for name, each in properties.items() if name != "metadata"
                }
            except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
                why = f"the server at {self._place} shows no schema of actions: {error}"
                raise WorkerDied(self._hide(why)) from error
        return self._fields

    def _obs(self, result: dict[str, Any]) -> Obs:
        observation = result.get("observation")
        if isinstance(observation, str):
            return observation
        if not isinstance(observation, dict):
            return "" if observation is None else json.dumps(observation)
        parts = observation.get("parts")
        if isinstance(parts, list) and parts:
            with suppress(KeyError, TypeError, ValueError):
                return tuple(_part(part) for part in parts)
        for name in (self.shown,) if self.shown else SHOWN_FIELDS:
            if isinstance(observation.get(name), str):
                return str(observation[name])
        return json.dumps(
            {key: value for key, value in observation.items() if key != "metadata"}, ensure_ascii=False
        )


def _read_app(name: str) -> tuple[Path, str]:
    """Return the folder of an environment and its application. Raises BadArgument."""
    folder = Path(os.path.expanduser(name))
    try:
        listed = (folder / "openenv.yaml").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadArgument(
            f"{name!r:.120} is no address of a server, and no folder with an openenv.yaml; accepted: "
            "http://host:port, or the path of an environment of OpenEnv."
        ) from error
    app = re.search(r"^app:\s*[\"']?([\w.]+:\w+)[\"']?\s*$", listed, re.MULTILINE)
    if app is None:
        raise BadArgument(f"{folder / 'openenv.yaml'} names no app; accepted: a line as app: server.app:app.")
    return folder.resolve(), app[1]


@contextmanager
def _run_server(folder: Path, app: str) -> Iterator[str]:
    """Run an application until the block ends; yield its address on the loopback interface."""
    paths = [str(folder), str(folder.parent), os.environ.get("PYTHONPATH", "")]
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with socket.create_server(("127.0.0.1", 0)) as listening:  # whoever connects waits until it has started
        port = listening.getsockname()[1]
        words = [
            sys.executable,
            "-m",
            "uvicorn",
            app,
            "--fd",
            str(listening.fileno()),
            "--log-level",
            "error",
        ]
        server = subprocess.Popen(
            words, cwd=folder, env=own, stdin=subprocess.DEVNULL, stdout=2, pass_fds=[listening.fileno()]
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(_END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _check_unasked(socket: ClientConnection) -> None:
    """Refuse a message that came before a request: it would be taken for the answer. Raises OSError."""
    with suppress(TimeoutError):
        socket.recv(0)
        raise ConnectionError("it sent a message that answers nothing")


def _part(part: dict[str, Any]) -> Text | Image:
    if part["type"] == "image":
        image = codec.restored({"$image": [part["data"], part["mime"], part.get("alt", "")]})
        assert isinstance(image, Image)
        return image
    return Text(str(part["text"]))


def _is_result(data: Mapping[str, Any]) -> bool:
    """Return whether an answer is valid; a reward that is not a finite number makes it invalid."""
    reward = data.get("reward")
    try:
        paid = reward is None or (isinstance(reward, int | float) and isfinite(reward))
    except OverflowError:  # of a whole number
        paid = False
    metadata = data.get("metadata")
    return (
        paid
        and "observation" in data
        and isinstance(data.get("done"), bool | None)
        and isinstance(metadata, Mapping | None)
    )


def _info(result: dict[str, Any]) -> dict[str, Any]:
    metadata = result.get("metadata")
    return {"metadata": metadata} if isinstance(metadata, dict) and metadata else {}


def _why(result: dict[str, Any]) -> str:
    return json.dumps(result.get("metadata"))[:500]
