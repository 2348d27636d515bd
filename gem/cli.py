"""The command ``gem-gym``.

A command is one row of `COMMANDS` and one function, or a dict of functions by subcommand; tyro turns a
function's signature and docstring into flags and help. Only the command that was asked for is imported, so
that listing ids does not load torch.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, arg
from tyro.constructors import PrimitiveConstructorSpec

import gem
from gem import seeding
from gem.content import printable, text_of
from gem.errors import BadArgument, GemError, StoreError, UnknownEnv, did_you_mean
from gem.record import Agent, Episode, StopReason
from gem.registry import load

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
"""Exit codes: the command ran and the answer is no; it could not run; Ctrl-C."""


MaybeInt: TypeAlias = Annotated[
    int | None,
    PrimitiveConstructorSpec(  # tyro's own would speak of {None}|INT
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: int(words[0]),
        is_instance=lambda value: value is None or isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]


MaybePath: TypeAlias = Annotated[
    Path | None,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="FILE",
        instance_from_str=lambda words: Path(words[0]),
        is_instance=lambda value: value is None or isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    ),
]


MaybeText: TypeAlias = Annotated[
    str | None,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME",
        instance_from_str=lambda words: words[0],
        is_instance=lambda value: value is None or isinstance(value, str),
        str_from_instance=lambda value: [str(value)],
    ),
]


class Command(NamedTuple):
    """A row of the table: where the function is, and the line that ``gem-gym --help`` shows."""

    entry_point: str
    summary: str


COMMANDS: dict[str, Command] = {
    "list": Command("gem.cli:list_ids", "list the environments"),
    "play": Command("gem.cli:play", "play an episode, or watch an agent play one"),
    "check": Command("gem.cli:check", "judge environments by what they claim"),
    "audit": Command("gem.cli:audit", "find out what the rewards of environments are worth"),
    "demos": Command("gem.cli:demos", "write expert episodes for a supervised warm-up"),
    "init": Command("gem.cli:init", "write a package with an environment of your own"),
    "train": Command("gem.train.command:command", "train a language model on an environment"),
    "oracle": Command(
        "gem.cli_oracle:oracle", "compare what training algorithms estimate with exact gradients"
    ),
    "eval": Command("gem.cli_eval:evaluate", "measure agents on environments"),
    "store": Command("gem.cli_store:COMMANDS", "list, show and merge stored episodes"),
    "regrade": Command("gem.cli:regrade", "score stored episodes again, by another grader"),
    "serve-search": Command("gem.cli:serve_search", "serve a search engine over HTTP, for search tools"),
    "models": Command("gem.cli:models", "list the language models that have names, and fetch them"),
    "doctor": Command("gem.cli:doctor", "say what works on this machine, and what to type for the rest"),
    "sandbox": Command("gem.cli:sandbox", "say how well programs are isolated here, and test it"),
}


PARSES_ITSELF = ("train",)
"""Commands whose defaults follow their arguments: their functions take the words and the program's name."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a model wrote may not fit the terminal's encoding; that must not end the program.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
    except GemError as error:
        print(f"{type(error).__name__}: {printable(str(error))}", file=sys.stderr)
        return MISUSED
    except KeyboardInterrupt as stop:
        notes = getattr(stop, "__notes__", ())
        print("\nstopped by Ctrl-C", *map(printable, notes), sep="; ", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `gem-gym list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _run(args: list[str]) -> int:
    name, *rest = args or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        print(f"gem-gym {gem.__version__}")
        return 0
    if name not in COMMANDS:
        raise BadArgument(f"no command {name!r}.{did_you_mean(name, COMMANDS)} `gem-gym --help` shows all.")
    found, prog = load(COMMANDS[name].entry_point), f"gem-gym {name}"
    if name in PARSES_ITSELF:
        return found(rest, prog) or 0
    run = tyro.extras.subcommand_cli_from_dict if isinstance(found, dict) else tyro.cli
    return run(found, prog=prog, args=rest, config=(FlagCreatePairsOff,)) or 0


def _help() -> str:
    rows = [f"  {name:<14}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: gem-gym COMMAND [...]",
            "",
            "A gym for LLM agents.",
            "",
            *rows,
            "",
            "`gem-gym COMMAND --help` explains a command; `gem-gym --version` says which gem this is.",
        ]
    )


def list_ids(
    family: Annotated[Positional[str | None], arg(metavar="[FAMILY]", help_behavior_hint="")] = None,
) -> None:
    """List the environments: id, turns that the task states, solver, and the pip extra it needs.

    Args:
        family: the part of an id before the colon; all families when left out.
    """
    found = gem.ids(family and family.rstrip(":"))
    if not found:
        families = sorted({env_id.partition(":")[0] for env_id in gem.ids()})
        raise UnknownEnv(
            f"no family {family!r}.{did_you_mean(family or '', families)} There are: {', '.join(families)}."
        )
    specs = [gem.spec(env_id) for env_id in found]
    rows = [(s.id, s.max_turns or "-", s.solver, s.extra or "-") for s in specs]
    table("id", "turns", "solver", "extra", rows=rows)


def play(
    env_id: Annotated[Positional[str], arg(metavar="ID")],
    agent: str = "human",
    seed: MaybeInt = None,
    turns: MaybeInt = None,
    seat: str | None = None,
    others: str | None = None,
) -> int:
    """Play an episode in the terminal, or watch an agent play it.

    Args:
        env_id: an environment, as game:Sudoku-v0-easy; `gem-gym list` shows all.
        agent: human (you), random (legal actions), solver (the environment's own expert),
            openai:MODEL[@BASE_URL] (a model behind a server), or the folder of a training run.
        seed: which episode; drawn, and shown, when left out.
        turns: stop after so many turns.
        seat: of a game of several, the seat that the agent takes; it takes all when left out.
        others: who plays the other seats, beside `seat`: an agent's name as above, but for human.
    """
    from gem.rollout import Job, rollout
    from gem.rollout.session import session

    seed = seeding.fresh() if seed is None else seeding.check(seed)
    limits = _limits(turns)
    actor = None if agent == "human" else local_agent(agent, accepted="human, random, solver")
    rest = _others(env_id, seat, others)
    print(f"{gem.spec(env_id).id}, seed {seed}\n")
    if actor is None:
        episode = session(env_id, seed, limits=limits, others=rest)
    else:
        holders = {seat: actor, **rest} if seat else actor
        (episode,) = rollout([Job(env_id, seed)], holders, limits=limits)
        show(episode)
    if episode.stop is StopReason.CANCELLED:
        return INTERRUPTED
    return 0 if episode.scored else FAILED


def check(
    targets: Annotated[Positional[tuple[str, ...]], arg(metavar="ID|FILE.py:Class", help_behavior_hint="")],
    seeds: int = 3,
    thorough: bool = False,
    faults: bool = False,
    record: bool = False,
) -> int:
    """Judge environments: seeds, state, forks, hostile actions, documentation, and what their specs claim.

    Args:
        targets: ids, or classes as my_envs.py:MyEnv or my_package.envs:MyEnv.
        seeds: how many episodes to try.
        thorough: also compare transcripts on every host and under two hash seeds; seconds each, ids alone.
        faults: also break it and what is around it: its code, tools, sandbox, process and agent; seconds.
        record: write the golden transcript of each id, under tests/golden/.
    """
    from gem.testing import check_env
    from gem.testing.golden import FOLDER
    from gem.testing.golden import record as write_golden

    if not targets:
        raise BadArgument("nothing to check was named: an id, or a class as my_envs.py:MyEnv.")
    if record and not FOLDER.is_dir():
        raise BadArgument(
            f"there is no {FOLDER}/ here; --record writes into a checkout of gem, from its root."
        )
    code = 0
    for name in targets:
        target = environment(name)
        report = check_env(target, seeds=range(seeds), hosts=thorough, hash_seed=thorough, faults=faults)
        print(printable(str(report)))
        if not report.ok:
            code = FAILED
        elif record:
            if not isinstance(target, str):
                raise BadArgument(f"{name} is a class; golden transcripts are kept for ids.")
            print(f"  recorded {write_golden(target)}")
    return code


def _audit_code() -> int:
    from gem.testing.audit_code import audit_code
    from gem.testing.solutions import HUMANEVAL, basics, humaneval

    code = 0
    for name, solutions in (("code:Basics", basics()), ("HumanEval", humaneval())):
        if not solutions:
            print(f"{name}: not audited: GEM_DATA names no folder that holds {' or '.join(HUMANEVAL)}.")
            continue
        print(f"{name}: about {30 * len(solutions)} programs, which takes minutes ...", file=sys.stderr)
        found = audit_code(solutions)
        print(f"{name}, {found}")
        code = code if found.ok else FAILED
    return code


def _audit_data(path: Path, answer_key: str) -> int:
    from gem.tasks.sources import load
    from gem.testing.audit_grader import unread_references

    tasks = load(path, None, answer_key, answer_key)
    found = unread_references([tasks[i].reference for i in range(len(tasks))])
    for row, text in found:
        print(f"  row {row}: {printable(text)[:200]}")
    print(
        f"{path}: {len(found)} of {len(tasks)} references cannot be read whole: only the same words "
        "are right."
    )
    return FAILED if found else 0


def audit(
    targets: Annotated[
        Positional[tuple[str, ...]], arg(metavar="ID|FAMILY|FILE.py:Class", help_behavior_hint="")
    ],
    episodes: int = 40,
    instances: int = 200,
    json: MaybePath = None,
    grader: MaybeText = None,
    data: MaybePath = None,
    answer_key: str = "answer",
) -> int:
    """Audit environments: is the full reward reached, what does knowing nothing earn, does the answer leak?

    A solver, legal random play and policies that know nothing play each environment. The card of one is
    printed in full, of several a line each, with the findings that are open.

    Args:
        targets: ids, whole families as game, or classes as my_envs.py:MyEnv.
        episodes: how many each policy plays, at most; fewer where episodes are long.
        instances: how many seeds are dealt to count distinct instances.
        json: write the cards to this file; the cards of other environments that it holds stay.
        grader: audit a grader instead, math, text or code: rewritings must score the same, mutants not.
        data: list instead the references in this file that the mathematics grader cannot read whole.
        answer_key: the column of the reference in that file.
    """
    if data is not None:
        if targets or json is not None or grader is not None:
            raise BadArgument("--data audits the references of a file alone; leave out the others.")
        return _audit_data(data, answer_key)
    if grader is not None:
        if targets or json is not None:
            raise BadArgument("--grader audits a grader alone; leave out environments and --json.")
        if grader == "code":
            return _audit_code()
        from gem.testing.audit_grader import audit_grader

        found = audit_grader(grader)
        print(found)
        return 0 if found.ok else FAILED
    from gem.testing.audit import audit_env
    from gem.testing.card import read_cards, write_cards

    wanted: list[str | Callable[..., Any]] = []
    for name in targets:
        wanted += gem.ids(name.removesuffix(":")) or [environment(name)]
    if not wanted:
        raise BadArgument("nothing to audit was named: an id, a family, or a class as my_envs.py:MyEnv.")
    cards = read_cards(json) if json is not None and json.exists() else {}
    rows, code = [], 0
    for target in wanted:
        try:
            card = audit_env(target, episodes=episodes, instances=instances)
        except GemError as error:  # of a family, what is not installed or takes several seats
            if len(wanted) == 1:
                raise
            print(f"{target}: not audited: {printable(str(error))}", file=sys.stderr)
            continue
        cards[card.env] = card
        if not card.ok:
            code = FAILED
        if len(wanted) == 1 or not card.ok:
            print(printable(str(card)))
        expert, lottery = card.policies.get("solver"), card.policies.get("random")
        rows.append(
            (
                card.env,
                f"{expert.reward:.3f}" if expert else "-",
                f"{lottery.reward:.3f}" if lottery else "-",
                f"{max(card.ignorant.values()):.3f}",
                f"{card.distinct} of {card.dealt}",
                card.first.median,
                len(card.findings) or "-",
            )
        )
        if json is not None:
            write_cards(cards, json)
    if len(wanted) > 1:
        columns = ("solver", "random", "knowing nothing", "distinct", "tokens", "open")
        table("env", *columns, rows=rows)
    return code


def demos(
    env_id: Annotated[Positional[str], arg(metavar="ID")],
    out: Path,
    episodes: Annotated[int, arg(aliases=["-n"])] = 1000,
    seed: int = 0,
    lost: bool = False,
) -> int:
    """Write episodes that the environment's own solver plays to an episode store, for a supervised warm-up.

    What was stopped goes on by the same command: episodes that the store holds are not played again.

    Args:
        env_id: the environment; `gem-gym list` shows which have a solver.
        out: the store; episodes are added to what it holds.
        episodes: how many of this seed the store is to hold.
        seed: the same seed gives the same episodes.
        lost: also keep the episodes that the solver lost.
    """
    from gem.rollout.demos import write_demos

    done = write_demos(env_id, out, episodes=episodes, seed=seeding.check(seed), lost=lost)
    if done.stored:
        print(f"{out} already holds {done.stored} episodes of {env_id} with seed {seed}: not played again")
    print(f"wrote {done.kept} episodes of {env_id} to {out}")
    if done.kept:
        left_out = done.played - done.kept
        print(f"{done.turns} turns, mean return {done.reward:.3f}; {left_out} lost ones left out")
    return 0


def init(
    name: Annotated[Positional[str], arg(metavar="NAME")],
    dataset: bool = False,
    into: Path = Path(),
) -> int:
    """Write a package with an environment of your own, ready to install, check and change.

    Args:
        name: of the package, as word-ladder; its environment becomes word_ladder:WordLadder-v0.
        dataset: an environment over a data set (questions, answers, a grader) instead of a game.
        into: the folder in which the package's own folder is made.
    """
    from gem.scaffold import write_package

    package = write_package(name, into, kind="dataset" if dataset else "class")
    print(
        f"wrote {package.folder}, with {package.env_id}. Next:\n"
        f"  pip install -e {package.folder}\n"
        f"  gem-gym check {package.env_id}\n"
        f"  gem-gym audit {package.env_id}"
    )
    return 0


def serve_search(
    source: Annotated[Positional[str], arg(metavar="SOURCE")],
    host: str = "127.0.0.1",
    port: int = 8000,
    topk: int = 3,
    index: MaybePath = None,
) -> int:
    """Serve a search engine by Search-R1's /retrieve protocol, in JSON and msgpack, until Ctrl-C.

    Args:
        source: world (the built-in one), a folder of text files, a .jsonl corpus, or a .zim file.
        host: where to listen; whoever can reach it can search, so by default only this machine.
        port: 0 takes a free one.
        topk: how many documents a request gets that does not say.
        index: a folder in which the index is kept, to be ready at once next time.
    """
    from gem.serve.search import SearchServer
    from gem.tools.search import open_engine

    print(f"opening {source} ...", flush=True)
    with SearchServer(open_engine(source, index_dir=index), host, port, topk=topk) as server:
        print(f"SEARCH_URL={server.url}", flush=True)
        server.serve_forever()
    return 0


def environment(name: str) -> str | Callable[..., Any]:
    """Return the id that `name` is, or the class that ``file.py:Class`` or ``module:Class`` names.

    Raises:
        UnknownEnv: for an unknown id of a known family. BadArgument: when there is no such file or class.
    """
    source, _, class_name = name.rpartition(":")
    if not source and class_name.endswith(".py"):
        raise BadArgument(f"{name} names a file and no class in it; accepted: {name}:Class.")
    if not source or any(env_id.startswith(f"{source}:") for env_id in gem.ids()):
        return gem.spec(name).id
    if not source.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
        try:
            return load(name)
        except BadArgument as error:
            raise BadArgument(
                f"no environment {name!r} is registered, and as module:Class: {error} "
                "Accepted: an id that `gem-gym list` shows, file.py:Class, or module:Class."
            ) from error
    path = Path(source)
    if not path.is_file():
        raise BadArgument(f"there is no file {source}; accepted: an id, file.py:Class, or module:Class.")
    sys.path.insert(0, str(path.parent.resolve()))  # its own imports, and the processes that unpickle it
    return load(f"{path.stem}:{class_name}")


def regrade(
    store: Annotated[Positional[Path], arg(metavar="STORE")],
    grader: str = "math",
    cache: MaybePath = None,
    out: MaybePath = None,
) -> int:
    """Score stored episodes again, without running them, and say where the verdicts differ.

    What is graded is an episode's last answer; its reference comes from the environment's task.

    Args:
        store: a file of episodes, as EpisodeStore writes them.
        grader: math, text, code, or module:Name of a grader that is made without arguments.
        cache: an SQLite file of verdicts by content, so that nothing is graded twice.
        out: write each verdict to this file, one JSON object a line.
    """
    from dataclasses import asdict

    import msgspec

    from gem.graders.cache import CachedGrader
    from gem.rollout.regrade import named_grader
    from gem.rollout.regrade import regrade as regraded
    from gem.rollout.store import EpisodeStore

    judge = named_grader(grader)
    with contextlib.ExitStack() as stack:
        if cache is not None:
            judge = stack.enter_context(CachedGrader(judge, cache, name=getattr(judge, "name", grader)))
        episodes = stack.enter_context(EpisodeStore(store, read_only=True))
        found = list(regraded(episodes, judge))
        left_out = len(episodes) - len(found)
    if out is not None:
        try:
            out.write_bytes(b"".join(msgspec.json.encode(asdict(row)) + b"\n" for row in found))
        except OSError as error:
            raise StoreError(f"{out}: cannot write the verdicts: {error.strerror}.") from error
    rows = []
    for spec in sorted({row.spec for row in found}):
        of = [row for row in found if row.spec == spec]
        newly = [row.after for row in of if row.changed]
        before, after = ([getattr(row, name) for row in of] for name in ("before", "after"))
        rows.append((spec, len(of), before.count(True), after.count(True), *map(newly.count, (True, False))))
        rows[-1] += (after.count(None),)
    columns = ("episodes", "right before", "right now", "newly right", "newly wrong", "no verdict")
    table("env", *columns, rows=rows)
    for row in [row for row in found if row.changed][:10]:
        verdict = "right" if row.after else "wrong"
        print(printable(f"{row.episode} is {verdict} now ({row.why}): {row.answer[-200:]}"))
    if left_out:
        print(f"{left_out} episodes without a verdict or an answer were left out.")
    return 0


def models(fetch: MaybeText = None, json: bool = False, device: MaybeText = None) -> int:
    """List the language models that can be loaded by name: what they are, and where, or how to get them.

    Those that the cache of the Hugging Face hub holds are listed too. Any of them can be trained, as in
    `gem-gym train --model NAME`.

    Args:
        fetch: bring the model of this name by pip into the cache: GEM_CACHE, else gem-gym in the user's own.
        json: the list as JSON, one object a line.
        device: time products of the shapes of SmolLM2-135M in float32 and bfloat16 there, as cpu or cuda.
    """
    from dataclasses import asdict
    from json import dumps

    from gem import models as known

    if fetch is not None:
        print(known.fetch(fetch))
        return 0
    if device is not None:
        seconds = known.matmul_seconds(device, width=576, hidden=1536)
        table("type", "ms", rows=[(name, f"{1000 * each:.3f}") for name, each in seconds.items()])
        return 0
    found = known.listed()
    if json:
        for model in found:
            print(dumps(asdict(model)))
        return 0
    rows = [
        (
            model.name,
            f"{model.parameters / 1e6:.0f}M" if model.parameters else "-",
            model.context or "-",
            model.licence,
            model.origin,
            model.path or f"not here: {model.way}",
        )
        for model in found
    ]
    table("name", "parameters", "context", "licence", "origin", "where", rows=rows)
    return 0


def doctor() -> int:
    """Try what works on this machine, and say what to type for the rest.

    Environments of each kind are begun, the backends of the sandbox tested, packages and engines looked for.

    The exit code is 1 when something that is installed is broken. What is absent is no fault.
    """
    from gem.doctor import report

    text, sound = report()
    print(text)
    return 0 if sound else FAILED


def sandbox(
    backend: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    seen: bool = False,
) -> int:
    """Say which sandbox programs get on this machine, after trying what it holds back.

    Args:
        backend: try this one alone: remote, container, userns, bwrap-slots, landlock or none.
        seen: say also what a program in it can see of this machine.
    """
    from gem.sandbox.command import describe

    lines, held = describe(backend, sights=seen)
    print(printable("\n".join(lines)))
    return 0 if held else FAILED


def local_agent(name: str, temperature: float = 1.0, accepted: str = "random, solver") -> Agent:
    """Return the agent of that name: ``random``, ``solver``, a model behind a server, or a training run's.

    ``openai:MODEL`` and ``openai:MODEL@BASE_URL`` name a model behind a server. A folder stands for the model
    of the training run in it. The message about any other name lists the `accepted` ones.

    Raises:
        BadArgument: when there is neither such an agent nor such a folder.
    """
    from gem.agents.random import RandomAgent
    from gem.agents.solver import SolverAgent

    if name in ("random", "solver"):
        return RandomAgent() if name == "random" else SolverAgent()
    if endpoint := re.fullmatch(r"openai:(.+?)(?:@(https?://.+))?", name, re.DOTALL):
        if re.search(r"@$|@[^@/]*:\d", endpoint[1]):  # else the key would go to the public server
            raise BadArgument(f"agent is {name!r}; a BASE_URL begins with http:// or https://.")
        from gem.agents.openai import OpenAIAgent

        return OpenAIAgent(endpoint[1], base_url=endpoint[2], temperature=temperature)
    if os.path.isdir(name):
        from gem.train.trainer import trained_agent

        return trained_agent(Path(name), temperature)
    raise BadArgument(
        f"agent is {name!r}; accepted: {accepted}, openai:MODEL[@BASE_URL], or the folder of a training run."
    )


def _others(env_id: str, seat: str | None, others: str | None) -> dict[str, Agent]:
    """Return who holds the seats of a game that `seat` leaves; nobody where no seat is named."""
    seats = gem.spec(env_id).seats
    if seat is None:
        if others is not None:
            raise BadArgument(f"others is {others!r} without a seat; name one of {', '.join(seats)}.")
        return {}
    if seat not in seats or len(seats) == 1:
        raise BadArgument(f"seat is {seat!r}; {env_id} has {len(seats)}: {', '.join(seats)}.")
    player = local_agent(others or "random")
    return {other: player for other in seats if other != seat}


def _limits(turns: int | None) -> gem.Limits:
    if turns is not None and turns < 1:
        raise BadArgument(f"turns is {turns}; accepted: 1 or more.")
    return gem.Limits(turns=turns)


def show(episode: Episode, rewards: bool = False) -> None:
    """Print what was said in an episode, and how it ended; with `rewards`, what each turn earned too."""
    lines = []
    for turn in episode.turns:
        heard = f"[{turn.seat}]\n" if episode.several else ""
        lines.append(f"{heard}{text_of(turn.observation)}\n\n{turn.seat}> {turn.action or ''}\n")
        if rewards and turn.reward is not None:
            lines.append(f"reward {turn.reward:g}\n")
    for seat, end in episode.ends.items():
        heard = f"[{seat}]\n" if episode.several else ""
        lines.append(f"{heard}{text_of(end.observation)}\n")
    count = len(episode.turns)
    after = f"{episode.stop} after {count} turn{'s' * (count != 1)}"
    if episode.error:
        broken = episode.error
        lines.append(f"no verdict: {broken.type} in {broken.boundary}: {broken.message}")
    elif not episode.several:
        lines.append(f"{after}, return {episode.reward():g}")
    else:
        lines.append(after)
        lines += [
            f"{seat}: {end.stop}, return {episode.reward(seat):g}" for seat, end in episode.ends.items()
        ]
    print(printable("\n".join(lines)))


def table(*columns: str, rows: Sequence[Sequence[Any]], cropped: Collection[str] = ()) -> None:
    """Print a table; into a pipe as aligned plain text, one row a line, never wrapped.

    On a terminal that is too narrow the columns that are `cropped` lose their ends instead of being wrapped.
    """
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Column, Table
        from rich.text import Text

        heads = [  # ids differ at their ends; rich narrows the columns that may wrap
            Column(name, no_wrap=name not in cropped if cropped else place == 0)
            for place, name in enumerate(columns)
        ]
        grid = Table(*heads, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for row in rows:
            cells = [
                Text(str(cell), no_wrap=True, overflow="ellipsis") if name in cropped else Text(str(cell))
                for name, cell in zip(columns, row, strict=True)
            ]
            grid.add_row(*cells)
        Console().print(grid)
        return
    lines = [columns, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
