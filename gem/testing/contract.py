"""Check that an environment keeps the contract, with `check_env`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from gem import errors, registry
from gem.core import Env
from gem.testing.deadline import CALL_S, CallHung, call_deadline
from gem.testing.fault_rules import FAULT_RULES
from gem.testing.places import called_method, where
from gem.testing.rules import RULES, Broken, Skip, Subject

Target: TypeAlias = "str | registry.EnvSpec | Env | Callable[..., Env]"
"""What can be checked: an id, a spec, a class or other callable, or an environment, which is spawned."""


class Finding(NamedTuple):
    """A mistake: the rule that it breaks first, what was seen, and what to change.

    `also`: the other rules that the same error breaks, raised at the same place. `calls`: the methods that
    raised it.
    """

    rule: str
    seen: str
    change: str
    also: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """Every rule that is broken by the same cause."""
        return (self.rule, *self.also)

    def __str__(self) -> str:
        """Return the rule, what was seen, and what to change; then the other rules with the same cause."""
        text = f"{self.rule}: {self.seen}\n    -> {self.change}"
        if not self.also:
            return text
        calls = f", in {', '.join(self.calls)}" if self.calls else ""
        rules = f"{len(self.also)} more rule{'s' * (len(self.also) > 1)}"
        return f"{text}\n    The same in {rules}{calls}: {', '.join(self.also)}"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of check_env: `held` rules, `skipped` rules with reasons, `findings` of broken rules."""

    target: str
    findings: tuple[Finding, ...] = ()
    held: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.findings

    def raise_if_broken(self) -> None:
        """Raise ContractBroken, with the whole report, when a rule is broken."""
        if not self.ok:
            raise errors.ContractBroken(str(self))

    def __str__(self) -> str:
        """Return a line of counts, then the broken and the skipped rules."""
        broken_rules = sum(len(finding.rules) for finding in self.findings)
        counts = f"{len(self.held)} rules hold, {broken_rules} broken, {len(self.skipped)} skipped"
        broken = [f"  BROKEN {finding}" for finding in self.findings]
        skipped = [f"  skipped {rule}: {why}" for rule, why in self.skipped.items()]
        return "\n".join([f"{self.target}: {counts}", *broken, *skipped])


def check_env(
    target: Target,
    *,
    seeds: Iterable[int] = (0, 1, 2),
    turns: int = 40,
    rules: Collection[str] | None = None,
    hosts: bool = False,
    hash_seed: bool = False,
    faults: bool = False,
    on_rule: Callable[[str], object] | None = None,
    call_s: float | None = CALL_S,
    end_process: bool = False,
) -> Report:
    """Check that an environment keeps the contract, and the claims of its spec.

    Args:
        target: an id, an EnvSpec, a class or other callable that makes one, or an environment.
        seeds: the seeds of the episodes to try; more seeds find more.
        turns: the most turns of a transcript that is compared.
        rules: the rules to run; None means all.
        hosts: also compare transcripts on the serial, thread and process hosts (seconds).
        hash_seed: also compare transcripts under two hash seeds, in two processes (seconds).
        faults: also inject faults, with the rules of `gem.testing.fault_rules` (seconds).
        on_rule: called with the name of each rule before it runs.
        call_s: seconds that one call of the environment may take; None for no limit. One that takes longer is
            a finding, and no further rule is tried. It is kept in a main thread alone, by SIGALRM.
        end_process: end the process, with a traceback, in a call that no signal interrupts.

    Raises:
        BadArgument: for a rule that does not exist. UnknownEnv, MissingExtra, MissingData: as gem.make does.
    """
    every = {**RULES, **FAULT_RULES}
    for name in rules or ():
        if name not in every:
            known = ", ".join(every)
            raise errors.BadArgument(
                f"no rule {name!r}.{errors.did_you_mean(name, every)} There are: {known}."
            )
    name, maker, claims = resolve(target)
    case = Subject(name, maker, claims, tuple(seeds), turns, hosts, hash_seed)
    if not case.seeds:
        raise errors.BadArgument("check_env got no seeds; give one or more.")
    findings: list[Finding] = []
    passed: list[str] = []
    skipped: dict[str, str] = {}
    causes: dict[tuple[str, str, str], int] = {}
    with call_deadline(call_s, end_process=end_process) as case.deadline:
        for rule_name, check in every.items():
            if rule_name not in rules if rules is not None else rule_name in FAULT_RULES and not faults:
                continue
            if on_rule is not None:
                on_rule(rule_name)
            try:
                with ExitStack() as case.opened:
                    check(case)
                passed.append(rule_name)
            except Broken as broken:
                finding = Finding(rule_name, broken.problem, broken.change)
                _add(finding, broken.__cause__, findings, causes)
            except Skip as reason:
                skipped[rule_name] = str(reason)
            except (errors.MissingExtra, errors.MissingData):
                raise
            except CallHung as hung:
                change = f"let the call return; it was {hung.place}. No further rule was tried."
                findings.append(Finding(rule_name, str(hung), change))
                break
            except Exception as error:  # whatever a stranger's environment raises is the finding
                raised = f"{type(error).__name__} was raised: {str(error)[:300]}"
                _add(Finding(rule_name, raised, f"handle that {where(error)}."), error, findings, causes)
            if rule_name == "is-env" and findings:  # nothing else can be asked of it
                break
    return Report(name, tuple(findings), tuple(passed), skipped)


def _add(
    finding: Finding,
    error: BaseException | None,
    findings: list[Finding],
    causes: dict[tuple[str, str, str], int],
) -> None:
    """Add a finding, or its rule to the finding that the same error at the same place has given."""
    if error is None:
        findings.append(finding)
        return
    cause = type(error).__name__, str(error), where(error)
    call = called_method(error)
    calls = (f"{call}()",) if call else ()
    if cause not in causes:
        causes[cause] = len(findings)
        findings.append(finding._replace(calls=calls))
        return
    first = findings[causes[cause]]
    calls = tuple(dict.fromkeys((*first.calls, *calls)))
    findings[causes[cause]] = first._replace(also=(*first.also, finding.rule), calls=calls)


def resolve(target: Target) -> tuple[str, Callable[..., Env], registry.EnvSpec | None]:
    """Return a target's name, the callable that makes it, and its spec or None.

    Raises:
        BadArgument: for a target that cannot be checked.
    """
    if isinstance(target, str):
        maker = registry.Maker(target)
        return target, maker, registry.claims_of(maker)
    if isinstance(target, registry.EnvSpec):
        claims = registry.claims_of(registry.Maker(target))
        return target.id, lambda **kwargs: registry.make(target, **kwargs), claims
    if isinstance(target, Env):
        return str(target), target.spawn, target.spec
    if callable(target):
        return getattr(target, "__qualname__", str(target)), target, None
    raise errors.BadArgument(
        f"cannot check a {type(target).__name__}; accepted: an id, an EnvSpec, a class, an environment."
    )
