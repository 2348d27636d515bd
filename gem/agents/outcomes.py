"""The table that decides what a server's answer counts as, for all wire formats, streamed or not.

Outcomes caused by the model are scored. Outcomes caused by the server get no verdict, after retries. A wire
format turns an HTTP response into `Said`; `judge` finds its row in `OUTCOMES`; `reply` makes the reply of a
scored row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gem.content import ToolCall
from gem.record import Reply

EXCERPT = 300
"""Characters of a server's answer that an error quotes."""


NO_END = "none"
"""The finish reason in `Reply.extra` of an answer that came without one."""


class Verdict(StrEnum):
    """The consequence for the ask."""

    SCORED = "scored"  # there is a reply
    RETRIED = "no verdict after the retries"
    REFUSED = "no verdict, at once"
    UNAVAILABLE = "AgentUnavailable, at once"
    GRACE = "AgentUnavailable after the grace time"


class Fault(StrEnum):
    """The reason why there is no complete response."""

    UNREACHED = "unreached"  # no connection: refused, an unknown host, no route
    SLOW = "slow"  # not complete within the time
    BROKEN = "broken"  # the connection ended early
    CUT = "cut"  # a stream without its end
    UNREADABLE = "unreadable"  # not JSON, or JSON of a wrong shape, or too long


@dataclass(frozen=True, slots=True)
class Said:
    """The result of one request.

    `why` describes it for an error message. `fault` is set where there is no complete response. `complaint`
    is the text of a server's error, under any status; `failed` is True for an error under status 200.
    `own_words` is True where most of the request is text that the model wrote before. Of an answer: `text`
    (None: the server gave none, not even an empty one), `refusal`, `reasoning`, `calls`, the server's word
    for its `end`, its `usage`, tokens, and the data for `Reply.extra`.
    """

    why: str = ""
    fault: Fault | None = None
    status: int = 200
    complaint: str = ""
    failed: bool = False
    own_words: bool = False
    retry_after_s: float = 0.0
    text: str | None = None
    refusal: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    end: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def something(self) -> bool:
        """Whether the response has any output of the model."""
        return bool(self.text or self.refusal or self.reasoning or self.calls)

    @property
    def sampled(self) -> int | None:
        """The server's count of sampled tokens; None where it does not count."""
        return self.usage.get("completion_tokens")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row of the table: a kind of result, its verdict, and the test that recognises it."""

    what: str
    verdict: Verdict
    holds: Callable[[Said], bool]


CUT_ENDS = frozenset(("length", "max_tokens", "max_output_tokens", "model_length"))
CUT_ENDS |= {"model_context_window_exceeded"}
"""Finish reasons of an answer that a token limit cut."""

CALL_ENDS = frozenset(("tool_calls", "function_call", "tool_use"))
ENDS = CALL_ENDS | {"stop", "end_turn", "stop_sequence", "eos", "eos_token", "completed"}
"""Finish reasons of an answer that the model ended itself."""

SERVER_ENDS = frozenset(("content_filter", "error", "abort", "aborted", "cancelled", "canceled", "failed"))
SERVER_ENDS |= {"timeout", "network_error", "insufficient_system_resource", "sensitive", "safety"}
SERVER_ENDS |= {
    "recitation",
    "blocklist",
    "prohibited_content",
    "spii",
    "in_progress",
    "queued",
    "incomplete",
}
"""Finish reasons of an answer that the server ended, or has not finished."""

BUSY = frozenset((408, 409, 425, 429))
"""HTTP statuses below 500 after which a retry may succeed."""


def judge(response: Said) -> Outcome:
    """Return the first row of the table that matches."""
    return next(outcome for outcome in OUTCOMES if outcome.holds(response))


_OVERLOADED = re.compile(r"rate.?limit|too many requests|overloaded|over capacity", re.IGNORECASE)
_RATE = re.compile(r"rate_limit_exceeded|tokens per min|\bTPM\b", re.IGNORECASE)
"""What servers say of too many tokens within a minute, also of one request (413)."""


def is_overloaded(response: Said) -> bool:
    """Return whether the server is overloaded, so that it should get fewer requests."""
    if response.fault is Fault.SLOW or response.status in (429, 503, 529):
        return True
    words = _OVERLOADED if response.failed or response.status >= 500 else _RATE
    return bool(words.search(response.complaint))


def blames_length(response: Said) -> bool:
    """Return whether a server refuses a request as too long; it may be that it refuses every request."""
    errs = (response.failed or response.status != 200) and judge(response).verdict is Verdict.SCORED
    return errs and not _call_unread(response)


def reply(response: Said) -> Reply:
    """Return the reply of an answer that is scored."""
    if _call_unread(response):
        return Reply(
            response.text or "",
            usage=response.usage,
            extra={**response.extra, "error": response.why[:EXCERPT]},
        )
    if response.status != 200 or response.failed or _did_not_fit(response):
        extra = (
            {**response.extra, "error": response.complaint[:EXCERPT]}
            if response.complaint
            else response.extra
        )
        return Reply("", finish="context", usage=response.usage, extra=extra)
    end = (response.end or "stop").lower()
    extra = dict(response.extra)
    if end not in ENDS and end not in CUT_ENDS:
        extra["finish_reason"] = end[:EXCERPT]
    return Reply(
        "\n".join(filter(None, (response.text, response.refusal))),
        response.prompt_ids,
        response.token_ids,
        response.logprobs,
        "length" if _has_end(response, CUT_ENDS) else "stop",
        tool_calls=response.calls,
        reasoning=response.reasoning or None,
        usage=response.usage,
        extra=extra,
    )


def name_ends(end: str | None) -> set[str]:
    """Return a finish reason in the forms that the table knows: whole, its parts, and their first words.

    >>> sorted(name_ends("contentFilter (SAFETY)"))
    ['content_filter', 'content_filter (safety)', 'safety']
    """
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", end or "")
    parts = [text, *re.split(r"[:(/|,;)]|\s-\s", text)]
    words = [word for part in parts for word in (part, part.strip().partition(" ")[0])]
    return {word.strip().lower().replace("-", "_") for word in words} - {""}


def _has_end(response: Said, words: frozenset[str]) -> bool:
    """Return whether the finish reason is one of these words, or has it as a part: ``content_filter: X``."""
    return not words.isdisjoint(name_ends(response.end))


def _did_not_fit(response: Said) -> bool:
    return _has_end(response, CUT_ENDS) and not response.something and response.sampled == 0


def _empty_but_sampled(response: Said) -> bool:
    whole = (ENDS - CALL_ENDS) | CUT_ENDS  # a call that the server names and does not give is lost
    if response.sampled is not None:
        return response.sampled > 0 and (response.end is None or _has_end(response, whole))
    return response.text is not None and _has_end(response, whole)


_UNREAD = re.compile(
    r"tool_use_failed|failed to parse input at pos|error parsing tool call|malformed_function_call",
    re.IGNORECASE,
)


def _call_unread(response: Said) -> bool:
    """Return whether the server reports that it could not parse a call that the model wrote."""
    if _has_end(response, frozenset(("malformed_function_call",))):
        return True
    return (response.failed or response.status in (400, 422, 500)) and bool(
        _UNREAD.search(response.complaint)
    )


_MODERATED = re.compile(r"moderat|flagged|content policy|content_policy|safety system", re.IGNORECASE)
_NO_MODEL = re.compile(r"model_not_found|invalid_api_key|api key not valid", re.IGNORECASE)

OUTCOMES: tuple[Outcome, ...] = (
    Outcome("no connection", Verdict.GRACE, lambda s: s.fault is Fault.UNREACHED),
    Outcome("no whole answer in time", Verdict.RETRIED, lambda s: s.fault is Fault.SLOW),
    Outcome("a broken connection", Verdict.RETRIED, lambda s: s.fault is Fault.BROKEN),
    Outcome("a stream cut before its end", Verdict.RETRIED, lambda s: s.fault is Fault.CUT),
    Outcome(
        "a body that is no JSON or of another shape", Verdict.RETRIED, lambda s: s.fault is Fault.UNREADABLE
    ),
    Outcome("a call that the server cannot read", Verdict.SCORED, _call_unread),
    Outcome(
        "no credit left",
        Verdict.UNAVAILABLE,
        lambda s: s.status == 402 or (s.status == 429 and "insufficient_quota" in s.complaint),
    ),
    Outcome("a rate limit, under any status", Verdict.RETRIED, lambda s: bool(_RATE.search(s.complaint))),
    Outcome(
        "a prompt that is too long",
        Verdict.SCORED,
        lambda s: (s.failed or s.status in (400, 413, 422, 500)) and too_long(s.complaint, s.status),
    ),
    Outcome(
        "a request that is too large (413), most of it what the model said",
        Verdict.SCORED,
        lambda s: s.status == 413 and s.own_words,
    ),
    Outcome(
        "a prompt that moderation refuses",
        Verdict.REFUSED,
        lambda s: s.status == 403 and bool(_MODERATED.search(s.complaint)),
    ),
    Outcome("a key that is refused (401, 403)", Verdict.UNAVAILABLE, lambda s: s.status in (401, 403)),
    Outcome(
        "an unknown model or address (404)",
        Verdict.UNAVAILABLE,
        lambda s: s.status == 404 or (s.status in (400, 422) and bool(_NO_MODEL.search(s.complaint))),
    ),
    Outcome("a redirection", Verdict.UNAVAILABLE, lambda s: 300 <= s.status < 400),
    Outcome(
        "a busy or broken server (429, 5xx)", Verdict.RETRIED, lambda s: s.status in BUSY or s.status >= 500
    ),
    Outcome("a request that is refused (other 4xx)", Verdict.REFUSED, lambda s: s.status != 200),
    Outcome("an error under status 200", Verdict.RETRIED, lambda s: s.failed),
    Outcome(
        "an end by the server (filter, error, abort)", Verdict.RETRIED, lambda s: _has_end(s, SERVER_ENDS)
    ),
    Outcome("tool calls", Verdict.SCORED, lambda s: bool(s.calls)),
    Outcome("a refusal in words", Verdict.SCORED, lambda s: bool(s.refusal)),
    Outcome("text cut by the token limit", Verdict.SCORED, lambda s: bool(s.text) and _has_end(s, CUT_ENDS)),
    Outcome("text", Verdict.SCORED, lambda s: bool(s.text)),
    Outcome("reasoning alone, cut by the token limit or not", Verdict.SCORED, lambda s: bool(s.reasoning)),
    Outcome("no token, for want of space behind the prompt", Verdict.SCORED, _did_not_fit),
    Outcome("empty text that the model sampled", Verdict.SCORED, _empty_but_sampled),
    Outcome("nothing that the model said", Verdict.RETRIED, lambda s: True),
)
"""All outcomes, in the order in which they are tested."""


# -- what servers say in errors


_SKIPPED = frozenset(("input", "ctx", "request", "body", "messages"))  # what echoes the request
_ECHO = re.compile(r"""['"](?:input|ctx)['"]\s*:""")
_ERROR_CHARS = 4000  # characters of an error that are read


def complaint(data: Any) -> str:
    """Return the message in an error's body as one line, without echoed parts of the request."""
    return " ".join(_words(data, 6))[:_ERROR_CHARS]


def complaint_of(body: bytes) -> str:
    """Return the message in the body of an error, JSON or not."""
    try:
        return complaint(json.loads(body))
    except (ValueError, RecursionError):
        return _cut_echo(body.decode("utf-8", "replace"))


def written_call(data: Any) -> str | None:
    """Return the model's text from an error that quotes a call that could not be parsed; else None."""
    error = data.get("error") if isinstance(data, dict) else None
    written = error.get("failed_generation") if isinstance(error, dict) else None
    return written if isinstance(written, str) else None


def _cut_echo(text: str) -> str:
    return " ".join(_ECHO.split(text[:_ERROR_CHARS], maxsplit=1)[0].split())


def _words(data: Any, depth: int) -> Iterator[str]:
    if isinstance(data, str):
        yield _cut_echo(data)
    elif isinstance(data, int):
        yield str(data) if abs(data) < 10**12 else ""
    elif depth and isinstance(data, dict):
        for key, value in list(data.items())[:32]:
            if key not in _SKIPPED:
                yield from _words(value, depth - 1)
    elif depth and isinstance(data, list):
        for value in data[:32]:
            yield from _words(value, depth - 1)


_TOO_LONG = re.compile(
    r"context[ _]length|context[ _]window|context[ _]size|context limit|exceed_context|prompt is too long"
    r"|(?:prompt|input) (?:length|is too long|\(\d+ tokens\) is (?:longer|too long))"
    r"|maximum (?:prompt|input) length|input token count|exceeds the maximum number of tokens"
    r"|must have less than \d+ tokens|tokens? ?\+ ?`?max_new_tokens`? must be|kv cache can hold"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)",
    re.IGNORECASE,
)


def too_long(error: str, status: int = 400) -> bool:
    """Return whether an error says that the prompt does not fit the model's context.

    llama.cpp has two such messages; one is about the memory that requests share, and does not mean that this
    prompt is too long. Nor does one about the most tokens that an answer may have.
    """
    if status == 500 or "context size has been exceeded" in error.lower():
        return "exceed_context_size" in error
    return bool(_TOO_LONG.search(error)) and not over_cap(error)


_PROMPT = re.compile(
    r"prompt is too long|prompt length|your (?:input|prompt) exceeds|messages resulted in"
    r"|input (?:is too long|\(\d+ tokens\) is (?:longer|too long))|maximum (?:prompt|input) length"
    r"|input token count|must have less than \d+ tokens|available context size|exceed_context",
    re.IGNORECASE,
)
"""What servers say where the prompt alone does not fit."""

_SUMS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"context limit: (?P<prompt>\d+) \+ \d+ > (?P<context>\d+)",
        r"max_new_tokens`? must be <= (?P<context>\d+).*?given: (?P<prompt>\d+)",
        r"context length (?:is|of) (?:only )?(?P<context>\d+) tokens.*?"
        r"(?P<least>at least )?\b(?P<prompt>\d+) (?:tokens )?"
        r"(?:input tokens|in the (?:messages|input|prompt)|from the input|of text input)",
    )
)

_CAP = re.compile(
    r"max_(?:completion_|output_|new_)?tokens\W+(?:or \S+ )?"
    r"(?:(?:must|should) be (?:less|smaller|lower|at most|between|no more|<)|is too (?:large|big|high))",
    re.IGNORECASE,
)

FIRST_LIMIT = 4096
"""The token limit to try where none was set, and the server says that its own does not fit."""
LEAST_LIMIT = 16
"""The smallest token limit to try; some servers refuse smaller ones."""


def over_cap(error: str) -> bool:
    """Return whether an error says that no answer may be as long as was asked for, whatever the prompt."""
    return bool(_CAP.search(error)) and not any(pattern.search(error) for pattern in _SUMS)


def shorter(error: str, limit: int | None) -> int | None:
    """Return the next token limit to try for an answer, after an error about the length.

    None if the prompt alone does not fit: the error says so, or even an answer of `LEAST_LIMIT` tokens was
    refused. Some servers report only a lower bound of the prompt ("at least"), and some do not say whether
    it is the prompt or the answer; then half the limit is the next to try. `limit`: None where none was set.
    """
    for pattern in _SUMS:
        if match := pattern.search(error):
            space = int(match["context"][:12]) - int(match["prompt"][:12])
            half = (space if limit is None else limit) // 2
            # some servers count an end more than they say
            space = min(space, half) if match.groupdict().get("least") else space - 1
            return space if space > 0 and (limit is None or space < limit) else None
    if _PROMPT.search(error):
        return None
    half = FIRST_LIMIT if limit is None else limit // 2
    return half if half >= LEAST_LIMIT else None


_UNKNOWN = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|extra(?:_| )|not permitted|not allowed"
    r"|forbidden|no endpoints|requires?\b|invalid (?:argument|field|parameter)",
    re.IGNORECASE,
)
_TOOLS = re.compile(r"\btools\b|tool[ _-](?:choice|use|calling)|function[ _]calling", re.IGNORECASE)


def names(error: str, name: str) -> bool:
    """Return whether an error names the field `name` of a request."""
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", error))


def refuses(error: str, name: str) -> bool:
    """Return whether an error says that a request may not have the field `name`."""
    return names(error, name) and bool(_UNKNOWN.search(error))


def refuses_tools(error: str) -> bool:
    """Return whether an error says that the model or its server does not support tools."""
    return bool(_TOOLS.search(error) and _UNKNOWN.search(error))
