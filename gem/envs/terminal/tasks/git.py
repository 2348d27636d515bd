"""Tasks on git repositories: searching the history, restoring, merging."""

from __future__ import annotations

from random import Random

from gem.envs.terminal.base import WORDS, Machine, TerminalTask, sentence
from gem.envs.terminal.tasks.texts import instruction, solution

_WHO = "Ada <ada@example.org>"
_DAY = 86_400
_START = (  # the history is one stream, so that it needs only one process
    "git init -q -b main repo && cd repo && git config user.name Ada && git config user.email "
    "ada@example.org "
    "&& git fast-import --quiet < ../history && rm ../history && git checkout -q -f main"
)


def _commit(
    branch: str, number: int, message: str, changes: dict[str, bytes | None], start: str = ""
) -> bytes:
    """Return a commit for git fast-import; a file of None is deleted."""
    lines = [f"commit refs/heads/{branch}\nmark :{number}\n".encode()]
    lines.append(f"committer {_WHO} {1_700_000_000 + number * _DAY} +0000\n".encode())
    lines.append(f"data {len(message.encode())}\n{message}\n".encode())
    lines.append(f"from {start}\n".encode() if start else b"")
    for path, data in changes.items():
        if data is None:
            lines.append(f"D {path}\n".encode())
        else:
            lines.append(f"M 100644 inline {path}\ndata {len(data)}\n".encode() + data + b"\n")
    return b"".join(lines) + b"\n"


def git_history(rng: Random, hard: bool) -> TerminalTask:
    """Find the commit of a change, or restore a deleted file."""
    commits = 40 if hard else 12
    keys = rng.sample(WORDS, 6)
    settings = dict(zip(keys, rng.sample(range(100, 999), 6), strict=True))
    values = rng.sample([n for n in range(100, 999) if n not in settings.values()], commits)
    lost = f"docs/{rng.choice(WORDS)}.txt"
    text = f"{sentence(rng, 8)}\n".encode()
    born, edited, died = 3, commits // 2, commits - 4
    ours = rng.randint(4, commits - 2)
    stream, wanted = b"", ("", 0)
    for number in range(1, commits + 1):
        key = rng.choice(keys)
        settings[key] = values[number - 1]
        if number == ours:
            wanted = (key, values[number - 1])
        changes: dict[str, bytes | None] = {
            "settings.ini": "".join(f"{key} = {value}\n" for key, value in settings.items()).encode()
        }
        if number in (born, edited, died):
            changes[lost] = {born: b"a first draft\n", edited: text, died: None}[number]
        stream += _commit(
            "main", number, f"{rng.choice(['Tune', 'Change', 'Set'])} {rng.choice(WORDS)}", changes
        )
    setup = f"{_START} && git rev-parse main && git log --format=%H --reverse main | sed -n {ours}p"
    looks = ("git -C repo log --oneline | wc -l", "cat repo/settings.ini")
    if not hard:
        return TerminalTask(
            instruction("find_commit", key=wanted[0], value=wanted[1]),
            lambda machine: (
                "" if machine.answer("commit.txt") == machine.setup.split()[1] else "commit.txt is wrong"
            ),
            f"git -C repo log --reverse --format=%H -S'{wanted[0]} = {wanted[1]}' -- settings.ini | head -n "
            "1 > commit.txt",
            {"history": stream},
            setup=setup,
            looks=looks,
        )
    message = f"Restore {lost}"

    def check(machine: Machine) -> str:
        head = machine.setup.split()[0]
        log = machine.run("git -C repo log -2 --format=%H:%s refs/heads/main --").stdout.split("\n")
        if len(log) < 2 or not log[1].startswith(head) or log[0].partition(":")[2] != message:
            return "main is not one commit on"
        changed = machine.run(
            f"git -C repo diff-tree --no-commit-id --name-status -r {head} refs/heads/main"
        ).stdout
        if (
            changed != f"A\t{lost}\n"
            or machine.run(f"git -C repo cat-file blob refs/heads/main:{lost}").stdout != text.decode()
        ):
            return "the commit is another"
        return "" if machine.read(f"repo/{lost}") == text else "the working tree is another"

    return TerminalTask(
        instruction("restore_file", lost=lost, message=message),
        check,
        solution("restore_file", lost=lost, message=message),
        {"history": stream},
        setup=setup,
        looks=looks,
    )


def git_merge(rng: Random, hard: bool) -> TerminalTask:
    """Merge branches that conflict."""
    branches = ["feature", "hotfix"] if hard else ["feature"]
    hosts = sorted(f"{name}.example.org" for name in rng.sample(WORDS, 20))
    base = sorted(rng.sample(hosts, 6))
    stream = _commit("main", 1, "Begin", {"hosts.txt": _text(base), "README": b"one host per line, sorted\n"})
    union = set(base)
    number = 1
    for branch in ["main", *branches]:
        added = {*base, *rng.sample([host for host in hosts if host not in base], 5)}
        union |= added
        number += 1
        changes: dict[str, bytes | None] = {
            "hosts.txt": _text(sorted(added)),
            f"{branch}.md": f"{branch}\n".encode(),
        }
        stream += _commit(branch, number, f"Hosts of {branch}", changes, ":1")
    wanted = _text(sorted(union)).decode()
    names = " and then ".join(branches)

    def check(machine: Machine) -> str:
        heads = machine.setup.split()
        parents = machine.run("git -C repo rev-list --parents refs/heads/main --").stdout.split("\n")
        merged: set[str] = set()
        merges = [line.split()[1:] for line in parents if len(line.split()) == 3]
        for pair in merges:
            merged.update(pair)
        if len(merges) != len(branches) or not merged.issuperset(heads):
            return "main is not the merge of the branches"
        if machine.run("git -C repo cat-file blob refs/heads/main:hosts.txt").stdout != wanted:
            return "hosts.txt on main is wrong"
        if set(machine.run("git -C repo ls-tree --name-only refs/heads/main").stdout.split()) != {
            "README", "hosts.txt", "main.md", *(f"{branch}.md" for branch in branches),
        }:  # fmt: skip
            return "main has other files"
        return (
            ""
            if (machine.read("repo/hosts.txt") or b"").decode(errors="replace") == wanted
            else "it is not checked out"
        )

    script = "\n".join(
        f"git merge -q {branch} > /dev/null 2>&1 || "
        f"{{ (git show main:hosts.txt; git show {branch}:hosts.txt) "
        "| LC_ALL=C sort -u > hosts.txt && git add hosts.txt && git commit -q --no-edit; }"
        for branch in branches
    )
    return TerminalTask(
        instruction("git_merge", names=names),
        check,
        f"cd repo\n{script}\ncd ..",
        {"history": stream},
        setup=f"{_START} && git rev-parse main {' '.join(branches)}",
        looks=("git -C repo branch", "cat repo/hosts.txt"),
    )


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
