"""The table of agents that have a name, for command lines, suites, configs and other files.

Error messages, the help of commands, the rule of `gem.trust` and the table in docs/guides/evaluating.md
follow from it. Other names of agents: the models of `gem.models`, the folder of a training run,
``file.py:NAME`` and ``module:NAME``.
"""

from __future__ import annotations

from typing import NamedTuple


class AgentName(NamedTuple):
    """One row of `AGENTS`.

    `form`: how the name is written; if it has a colon, something must follow the colon. `maker`: the entry
    point of a function that is called with the text behind the colon and the `AgentSettings`; for a form
    without a colon, without arguments. `plays`: what plays, for help and docs. `needs_trust`: whether a file
    of somebody else may not name it, because the agent runs code, reads or writes files, or calls a server
    under a name. Without it, an address in the name must be this machine's. `uses`: the fields of
    `AgentSettings` that have an effect on it.
    """

    form: str
    maker: str
    plays: str
    needs_trust: bool = False
    uses: frozenset[str] = frozenset()


_MODEL = frozenset(("temperature", "max_tokens", "tool_calls"))
_LOCAL = _MODEL | {"device"}
_ENDPOINT = _MODEL | {"api", "template", "api_key_env", "timeout_s", "send_reasoning", "stream", "extra"}
_PROGRAM = _LOCAL | _ENDPOINT | {"model", "program_s", "program_shows", "program_prints", "program_price"}

AGENTS = {
    "random": AgentName("random", "gem.agents.random:RandomAgent", "random legal actions"),
    "solver": AgentName("solver", "gem.agents.solver:SolverAgent", "the environment's own solver"),
    "openai": AgentName(
        "openai:MODEL[@BASE_URL]",
        "gem.agents.named:make_endpoint_agent",
        "a model behind a server",
        uses=_ENDPOINT,
    ),
    "program": AgentName(
        "program:COMMAND",
        "gem.serve.programs:make_program_agent",
        "a program in the sandbox, on the model of --model",
        needs_trust=True,
        uses=_PROGRAM,
    ),
    "hf": AgentName(
        "hf:NAME_OR_FOLDER", "gem.agents.named:make_local_agent", "a model of transformers", uses=_LOCAL
    ),
}
"""The agents by the part of their name before the colon, or the whole name."""
