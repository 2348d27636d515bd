"""MCPTool: the tools of any Model Context Protocol server, by stdio or streamable HTTP."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

from gem.content import Image, ToolSpec
from gem.errors import (
    BadArgument,
    NoVerdict,
    ToolError,
    UnknownArgument,
    check_least,
    did_you_mean,
    replace_surrogates,
)
from gem.files import read_json
from gem.hiding import hide_secrets
from gem.proxies import through_proxy
from gem.tools import calls
from gem.tools._mcp_sessions import McpSession, Server
from gem.tools.base_tool import BaseTool, ToolResult
from gem.tools.shell_tool import cut_middle

MAX_CHARS = 20_000
"""The default of the most characters that the agent reads of one result."""

MAX_IMAGE_BYTES = 5 * 2**20
MAX_DESCRIPTION, MAX_SCHEMA = 4_000, 20_000
"""The most characters of a tool's description, and of its arguments' schema, to take from a server."""

MAX_LEVELS = 100
"""The most levels of lists and objects in the arguments of a call; readers of JSON end at about 200."""

_PING_S = 5.0
_NAME = re.compile(r"[\w.:/-]{1,128}")
_INVALID_PARAMS = -32602
_RESERVED = range(-32768, -31999)  # JSON-RPC's own codes: the protocol or the server failed
HANDLERS = {
    "log": "logging_callback",
    "message": "message_handler",
    "sampling": "sampling_callback",
    "elicitation": "elicitation_callback",
}
"""The accepted handlers of server messages, with their names in the package mcp."""

Handler: TypeAlias = Callable[..., Awaitable[Any]]

_SERVER_KEYS = ("url", "headers", "command", "args", "env", "cwd", "type", "transport")


class RemoteTool(BaseTool):
    """One tool of a server, called through the session of the MCPTool that offers it."""

    live = True

    def __init__(
        self, owner: MCPTool, server: str, remote_name: str, name: str, description: str, input_schema: Any
    ) -> None:
        """Name the tool `name` to the agent and `remote_name` to the server."""
        super().__init__()
        self.owner, self.server, self.remote_name = owner, server, remote_name
        self.name, self.description, self.input_schema = name, description, input_schema
        self.parameters = _readable(input_schema)

    def spec(self) -> ToolSpec:
        """Return the tool as offered to a model, with the server's own schema if that is valid."""
        return ToolSpec(self.name, self.description, _adapt_schema(self.input_schema))

    def call(self, **arguments: Any) -> ToolResult:
        """Call the tool on its server; see `MCPTool.call_tool`."""
        return self.owner.call_tool(self.server, self.remote_name, arguments)


class MCPTool(BaseTool):
    """The tools of one or several MCP servers, as one tool for a ToolEnvWrapper.

    The agent sees each of the servers' tools with its name, description and arguments; with several servers
    the names are ``<server>_<tool>``. Each episode has its own session with each server, opened by its first
    call and closed by the next `reset`. Sessions of all episodes share one background thread.

    Server output is untrusted data: it is cut to size, and unreadable schemas are left out.

    How a call may end:

    - A result, an error that the server reports, or arguments that it refuses: text for the agent.
    - No answer within `timeout`: if the server still answers other requests, the call was at fault, and the
      agent reads that its effect is unknown. If the session no longer answers but a new one does, the agent's
      calls to that server fail until the episode ends.
    - A server that cannot be reached, has died or answers no session: NoVerdict.

    No call is ever sent twice.
    """

    name = "mcp"
    live = True

    _secret_arguments: ClassVar[tuple[str, ...]] = ("config", "auth")  # headers, environment, the URL itself

    def __init__(
        self,
        config: str | Mapping[str, Any],
        timeout: float = 30.0,
        connect_timeout: float = 30.0,
        max_chars: int = MAX_CHARS,
        num_workers: int = 1,
        *,
        execution_timeout: float | None = None,
        max_retries: int = 0,
        validate_on_init: bool = False,
        auth: str | None = None,
        handlers: Mapping[str, Handler] | None = None,
    ) -> None:
        """Set the servers; none is contacted yet, unless `validate_on_init` is set.

        Args:
            config: the URL of a server; or a mapping for one, ``{"url": ..., "headers": {...}}`` or
                ``{"command": ..., "args": [...], "env": {...}, "cwd": ...}``; or, as in the configuration
                files of MCP clients, ``{"mcpServers": {name: <such a mapping>, ...}}``. A started server gets
                `env` and the few variables that every program needs, not this process's environment.
            timeout: seconds that one call may take.
            connect_timeout: seconds that starting or reaching a server may take.
            max_chars: the most characters that the agent reads of one result.
            num_workers: upstream's; has no effect here.
            execution_timeout: upstream's name of `timeout`.
            max_retries: how often a failed connection is retried; a call is sent only once.
            validate_on_init: ask the servers for their tools now.
            auth: a token, sent to a single server over HTTP as ``Authorization: Bearer``; for several servers
                use their `headers`.
            handlers: coroutine functions for the servers' messages, as in the package mcp, by name: ``log``,
                ``message``, ``sampling``, ``elicitation``.

        Raises:
            BadArgument: for a configuration that names no server or cannot be read.
            NoVerdict: with `validate_on_init`, when a server cannot be reached.
        """
        super().__init__(num_workers)
        timeout = timeout if execution_timeout is None else execution_timeout
        check_least("max_retries", max_retries, 0)
        for name in handlers or ():
            if name not in HANDLERS:
                raise BadArgument(f"handlers has {name!r}; accepted: {', '.join(HANDLERS)}.")
        if not timeout > 0 or not connect_timeout > 0 or max_chars < 1:
            raise BadArgument(
                f"timeout is {timeout}, connect_timeout {connect_timeout}, max_chars {max_chars}; "
                "accepted: above 0."
            )
        self.timeout, self.connect_timeout, self.max_chars = timeout, connect_timeout, max_chars
        self._listing = _Listing()
        self._lock = threading.RLock()
        self._sessions: dict[str, McpSession] = {}
        self._lost: dict[str, str] = {}
        self.max_retries = max_retries
        self._auth = auth
        self._handlers = {HANDLERS[name]: handler for name, handler in (handlers or {}).items()}
        self._servers = _servers(config, auth)
        if validate_on_init:
            self.offered()

    # -- upstream's constructors

    @classmethod
    def from_url(cls, url: str, headers: Mapping[str, str] | None = None, **kwargs: Any) -> Self:
        """Return the tools of a server over streamable HTTP; `kwargs` go to the constructor."""
        return cls({"url": url, "headers": dict(headers or {})}, **kwargs)

    @classmethod
    def from_local_command(
        cls,
        command: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return the tools of a program that speaks over stdio; `kwargs` go to the constructor."""
        return cls({"command": command, "args": list(args), "env": dict(env or {}), "cwd": cwd}, **kwargs)

    @classmethod
    def from_config_file(cls, path: str | Path, **kwargs: Any) -> Self:
        """Return the tools of the servers in a JSON file with ``mcpServers``.

        Raises:
            BadArgument: when the file cannot be read.
        """
        try:
            config = read_json(path)
        except (OSError, ValueError) as error:
            raise BadArgument(
                f"the MCP configuration {str(path)!r} cannot be read: {error}. Accepted: a JSON file with "
                '{"mcpServers": {name: {"command": ...} or {"url": ...}}}.'
            ) from error
        return cls(config, **kwargs)

    @classmethod
    def from_multi_server(cls, servers: Mapping[str, Any], **kwargs: Any) -> Self:
        """Return the tools of several servers, given as a mapping of names to URLs or to server mappings."""
        return cls({"mcpServers": dict(servers)}, **kwargs)

    # -- what is offered

    def offered(self) -> Sequence[BaseTool]:
        """Return the servers' tools; the first call asks the servers.

        Raises:
            NoVerdict: when a server cannot be reached.
        """
        with self._lock:
            if self._listing.tools is None:
                self._listing.tools = [
                    (server.name, *about)
                    for server in self._servers.values()
                    for about in self._ask_for_tools(server)
                ]
            several = len(self._servers) > 1
            return [
                RemoteTool(self, server, name, f"{server}_{name}" if several else name, about, input_schema)
                for server, name, about, input_schema in self._listing.tools
            ]

    def get_available_tools(self) -> list[dict[str, Any]]:
        """Return the name, description and parameters (a JSON Schema) of each tool."""
        return [tool.schema()["function"] for tool in self.offered()]

    def instruction_string(self) -> str:
        """Return the text that tells the agent about the servers' tools."""
        return "\n\n".join(tool.instruction_string() for tool in self.offered())

    # -- calls

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool by the name that the agent sees."""
        offered = {tool.name: tool for tool in self.offered()}
        if name not in offered:
            hint = did_you_mean(name[:60], offered)
            raise ToolError(f"there is no tool {name!r:.60}.{hint} Tools: {', '.join(offered)}.")
        return offered[name].run(arguments)

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        """Run the first call in `action`, as upstream's tools do; see BaseTool.execute_action."""
        for match in calls.find(action, self.offered()):
            if match.call is None:
                done = ToolResult(match.error, True)
            else:
                done = self.run({"name": match.call.name, "arguments": dict(match.call.arguments)})
            return True, done.error, self.shown(done.text), action[: match.end]
        return False, True, "", ""

    def call_tool(self, server: str, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Send one call to a server, once.

        Raises:
            ToolError: when the arguments are refused, or the call did not end in time on a healthy server.
            NoVerdict: when the server cannot be reached, has died or answers no session.
        """
        if server in self._lost:
            raise ToolError(self._lost[server])
        session, sent = self._session(self._servers[server]), _sendable(arguments, MAX_LEVELS)
        try:
            answer = session.call(name, sent, self.timeout)
        except TimeoutError as error:
            unknown = f"{name} gave no answer within {self.timeout:g} s; whether it did anything is unknown."
            if session.answers(_PING_S):
                raise ToolError(unknown) from error
            session.end()  # it may keep the thread of all sessions busy
            if not self._healthy(session.server):
                why = f"{session.server} does not answer any more.{session.last_words}"
                raise NoVerdict(session.server.hide(why)) from error
            self._lost[server] = f"{unknown} Its server takes no more calls in this episode."
            raise ToolError(self._lost[server]) from error
        except Exception as error:
            code = getattr(error, "code", None)
            if isinstance(code, int) and (code == _INVALID_PARAMS or code not in _RESERVED):
                own = session.server  # the model reads this, and needs the queries of other addresses
                refusal = hide_secrets(f"{name}: {error}", own.headers, own.url)
                raise ToolError(cut_middle(refusal, self.max_chars)) from error
            why = (
                f"{session.server} failed in a call of {name}: {type(error).__name__}: {error!s:.300}."
                f"{session.last_words} The call may have happened, so it was not repeated."
            )
            raise NoVerdict(session.server.hide(why)) from error
        if answer.result_type == "input_required":
            raise ToolError(f"{name} asks for more input before it goes on, which nobody gives here.")
        return self._result(answer)

    def _result(self, answer: Any) -> ToolResult:
        """Convert a server's answer to the result that the agent reads."""
        pieces: list[str] = []
        images: list[Image] = []
        for part in answer.content:
            if part.type == "text":
                pieces.append(part.text)
            elif part.type == "image" and (image := _image(part.data, part.mime_type)):
                images.append(image)
            elif part.type == "resource" and isinstance(getattr(part.resource, "text", None), str):
                pieces.append(part.resource.text)
            else:
                pieces.append(f"[{part.type}, which cannot be shown]")
        if not answer.content and answer.structured_content is not None:
            pieces.append(json.dumps(answer.structured_content, ensure_ascii=False))
        return ToolResult(
            cut_middle("\n".join(pieces), self.max_chars) or ("" if images else "[no output]"),
            error=bool(answer.is_error),
            images=images,
        )

    # -- sessions

    def _session(self, server: Server) -> McpSession:
        """Return this episode's session with a server; a broken session is not reopened."""
        with self._lock:
            if server.name not in self._sessions:
                self._sessions[server.name] = self._open(server)
            return self._sessions[server.name]

    def _open(self, server: Server) -> McpSession:
        for left in range(self.max_retries, -1, -1):
            try:
                return McpSession(server, self.connect_timeout, self._handlers)
            except ImportError:
                raise
            except Exception as error:
                if not left:
                    check = "URL" if server.url else "command by hand"
                    where = f"{server}{through_proxy(server.url or '')}"
                    why = f"{where} cannot be reached: {error} Check its {check}."
                    raise NoVerdict(server.hide(why)) from error
        raise AssertionError  # the last try returns or raises

    def _healthy(self, server: Server) -> bool:
        """Return whether a new session gets an answer when an old one does not."""
        try:
            control = McpSession(server, min(self.connect_timeout, 2 * _PING_S))
        except Exception:
            return False
        control.end()
        return True

    def _ask_for_tools(self, server: Server) -> list[tuple[str, str, Any]]:
        session = self._session(server)
        try:
            tools = session.tools(self.timeout)
        except Exception as error:
            why = f"{server} does not list its tools: {error!s:.300}.{session.last_words}"
            raise NoVerdict(server.hide(why)) from error
        unique: dict[str, tuple[str, str, Any]] = {}
        for tool in tools:
            if _NAME.fullmatch(tool.name):
                about = cut_middle(tool.description or tool.title or tool.name, MAX_DESCRIPTION)
                unique.setdefault(tool.name, (tool.name, about, tool.input_schema))
        return list(unique.values())

    def reset(self, seed: int) -> None:
        """Begin an episode: the next call opens a new session."""
        with self._lock:
            for session in self._sessions.values():
                session.end()
            self._sessions = {}
            self._lost = {}
            self.offered()

    def close(self) -> None:
        """Close the sessions; calling it twice is harmless, and a later call opens new ones."""
        with self._lock:
            sessions, self._sessions, self._lost = self._sessions, {}, {}
        for session in sessions.values():
            session.close()

    def reconfigure(self, config: str | Mapping[str, Any], same_tools: bool = False) -> None:
        """Replace the servers and close the old sessions.

        With `same_tools` the new servers have the same tools as the old ones and are not asked for them.
        """
        servers = _servers(config, self._auth)
        self.close()
        with self._lock:
            self._servers, self._listing = servers, self._listing if same_tools else _Listing()
            self._init = ((config,), {**self._init[1], **self._limits()})

    def spawn(self) -> Self:
        """Return a new tool for the same servers with its own sessions; the list of tools is shared."""
        other = super().spawn()
        other._listing = self._listing
        return other

    def _limits(self) -> dict[str, Any]:
        return {
            "timeout": self.timeout, "connect_timeout": self.connect_timeout, "max_chars": self.max_chars,
            "execution_timeout": None,
        }  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the state of this process; a copy opens its own sessions."""
        gone = ("_lock", "_sessions", "_lost")
        return {key: value for key, value in vars(self).items() if key not in gone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock(), _sessions={}, _lost={})

    def __del__(self) -> None:
        for session in getattr(self, "_sessions", {}).values():
            session.end()


class _Listing:
    """The list of the servers' tools (server, name, description, input schema), shared by spawned tools."""

    tools: list[tuple[str, str, str, Any]] | None = None


def _servers(config: Any, auth: str | None = None) -> dict[str, Server]:
    """Return the servers of a configuration by name; a single one over HTTP gets the token `auth`.

    Raises:
        BadArgument: for a configuration that names no server or cannot be read.
    """
    if isinstance(config, Mapping) and "mcpServers" in config:
        named = config["mcpServers"]
        if not isinstance(named, Mapping) or not named:
            raise BadArgument(
                f"mcpServers is {named!r:.80}; accepted: a mapping of names to servers, not empty."
            )
    else:
        named = {"server": config}
    servers = {str(name): _server(str(name), each) for name, each in named.items()}
    if auth is None:
        return servers
    if not isinstance(auth, str) or not auth.isascii() or not auth.isprintable():
        raise BadArgument(
            f"auth is a {type(auth).__name__} that is not a token; accepted: printable ASCII text."
        )
    if sum(bool(server.url) for server in servers.values()) > 1:
        raise BadArgument("auth is for one server over HTTP; accepted for several: headers for each server.")
    header = {"Authorization": f"Bearer {auth}"}
    return {
        name: replace(server, headers={**header, **server.headers}) if server.url else server
        for name, server in servers.items()
    }


def _server(name: str, config: Any) -> Server:
    if isinstance(config, str):
        config = {"url": config}
    if not isinstance(config, Mapping) or bool(config.get("url")) == bool(config.get("command")):
        raise BadArgument(
            f"the MCP server {name!r} is {config!r:.120}; accepted: a URL, "
            '{"url": ..., "headers": {...}} or {"command": ..., "args": [...], "env": {...}, "cwd": ...}.'
        )
    for key in config:
        if key not in _SERVER_KEYS:
            raise UnknownArgument(
                f"the MCP server {name!r} has {key!r}.{did_you_mean(str(key), _SERVER_KEYS)} "
                f"Accepted: {', '.join(_SERVER_KEYS)}."
            )
    kind = config.get("type") or config.get("transport") or ""
    if kind not in ("", "stdio", "http", "streamable-http", "streamableHttp"):
        raise BadArgument(
            f"the MCP server {name!r} is of type {kind!r}; accepted: 'stdio', 'streamable-http'. "
            "The older SSE transport is not supported."
        )
    url, command, args = config.get("url", ""), config.get("command", ""), config.get("args") or ()
    if url and not re.match(r"https?://[^/\s]", str(url)):
        raise BadArgument(f"the MCP server {name!r} has the URL {url!r:.120}; accepted: http:// or https://.")
    if not isinstance(args, list | tuple) or not all(isinstance(arg, str) for arg in args):
        raise BadArgument(f"the MCP server {name!r} has args {args!r:.120}; accepted: a list of texts.")
    for key in ("command", "cwd"):
        if not isinstance(config.get(key) or "", str | os.PathLike):
            raise BadArgument(
                f"the MCP server {name!r} has the {key} {config[key]!r:.120}; accepted: text or a path."
            )
    for key in ("env", "headers"):
        given = config.get(key) or {}
        if not isinstance(given, Mapping) or not all(
            isinstance(x, str) for pair in given.items() for x in pair
        ):
            raise BadArgument(
                f"the MCP server {name!r} has the {key} {given!r:.120}; accepted: texts by name."
            )
    return Server(
        name,
        str(url),
        dict(config.get("headers") or {}),
        str(command),
        tuple(args),
        dict(config.get("env") or {}),
        None if config.get("cwd") is None else os.fspath(config["cwd"]),
    )


def _adapt_schema(schema: Any) -> Mapping[str, Any]:
    """Return a server's schema for the model: unchanged if it describes an object and is not too large."""
    if isinstance(schema, Mapping) and schema.get("type") == "object" and _fits(schema):
        return schema
    return _readable(schema)


def _fits(schema: Any) -> bool:
    try:
        return len(json.dumps(schema)) <= MAX_SCHEMA
    except (TypeError, ValueError, RecursionError):
        return False


def _readable(schema: Any) -> dict[str, Any]:
    """Return a server's argument schema in the form that gem reads.

    A schema may be true, a type may be a list, and a server may send anything. Parts of unusual form are left
    out; the server checks its arguments itself.
    """
    if not isinstance(schema, Mapping) or not _fits(schema):
        schema = {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    return {
        **schema,
        "type": "object",
        "properties": {str(name): _rule(rule) for name, rule in properties.items()},
        "required": [name for name in required if isinstance(name, str) and name in properties],
    }


def _rule(rule: Any) -> dict[str, Any]:
    kept = dict(rule) if isinstance(rule, Mapping) else {}
    kinds = kept.get("type")
    if not isinstance(kinds, str) and not (
        isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)
    ):
        kept.pop("type", None)
    if not isinstance(kept.get("enum"), list):
        kept.pop("enum", None)
    if not isinstance(kept.get("description", ""), str):
        del kept["description"]
    return kept


def _sendable(value: Any, levels: int) -> Any:
    """Return an argument as a message can hold it; what cannot be sent would end the session.

    Raises:
        ToolError: for lists and objects in each other on more than `levels` levels.
    """
    if isinstance(value, str):
        return replace_surrogates(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if not levels:
        raise ToolError(f"the arguments have more than {MAX_LEVELS} levels of lists and objects; use fewer.")
    if isinstance(value, Mapping):
        return {_sendable(key, levels): _sendable(each, levels - 1) for key, each in value.items()}
    return [_sendable(each, levels - 1) for each in value]


def _image(data: str, mime: str) -> Image | None:
    if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4 or not re.fullmatch(r"image/[\w.+-]{1,40}", mime):
        return None
    try:
        return Image(base64.b64decode(data, validate=True), mime)
    except (binascii.Error, ValueError):
        return None
