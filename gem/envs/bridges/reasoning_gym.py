r"""Bridge to reasoning-gym: more than a hundred procedural data sets, as the family ``rg:``.

The package makes good questions, but it was not written for hostile answers or for many seeds. The tables
here repair the defects of its data sets. ``tests/envs/bridges/test_reasoning_gym*.py`` test every row.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from gem import seeding
from gem.core import Env, Start, Step
from gem.envs.bridges import reasoning_gym_repairs as repairs
from gem.envs.bridges.generators import GlobalGenerators
from gem.envs.bridges.reasoning_gym_screens import EVALUATORS, SCREENS, explain_refusal
from gem.envs.bridges.specs import RG_NAMES
from gem.errors import (
    BadArgument,
    NoSolver,
    NoVerdict,
    UnknownEnv,
    check_count,
    did_you_mean,
)
from gem.parsing import boxed, boxed_or_tagged, fences, strip_markup
from gem.record import StopReason
from gem.specs import check_accepted


@contextlib.contextmanager
def _forget_part(package: str) -> Iterator[None]:
    """Forget the modules of a package whose import is interrupted: the next import would find only a part."""
    try:
        yield
    except BaseException:
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
            del sys.modules[name]
        raise


with GlobalGenerators().active(), _forget_part("reasoning_gym"):  # rich draws, for its links
    from reasoning_gym.composite import CompositeDataset
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import DATASETS

ANSWER_FORM = "Give your final answer inside \\boxed{}."

RESEEDABLE = frozenset(
    {
        "arc_agi",
        "base_conversion",
        "codeio",
        "figlet_font",
        "group_anagrams",
        "letter_counting",
        "n_queens",
        "rearc",
        "rush_hour",
        "sentence_reordering",
        "spell_backward",
        "word_ladder",
        "word_sorting",
    }
)
"""Data sets whose constructor reads files (10 to 600 ms) and draws nothing. One instance of each gets another
seed for each item. All others are built again for each item, because some draw in their constructor."""

BLANK = {"base_conversion": "", "codeio": "{}"}
"""The reference answer of an item that a data set failed to make; another item is made instead."""

EXAMPLES = {
    "graph_color": "possible_answer",
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}
"""Where the metadata of an item has a right answer, in sets that have several and give none as reference."""

EVALUATES_OWN = {"bitwise_arithmetic": frozenset({"eval"})}
"""What a scorer calls with its own question and never with an answer, by data set."""

_ITEM_SEEDS = 2**31  # numpy's legacy generator, which one data set seeds, takes 32 bits
_SHADOWS: dict[tuple[str, str], Any] = {}
_GENERATORS: WeakValueDictionary[tuple[str, str], Any] = WeakValueDictionary()


def names() -> list[str]:
    """Return the names of the data sets in the installed package."""
    return sorted(DATASETS)


class ReasoningGymEnv(Env):
    r"""Answer one question of a reasoning-gym data set.

    Task:
        One question per episode, drawn from the `size` questions that the data set `name` makes with
        `seed`. Different seeds make unrelated questions. Further keywords configure the data set, as
        ``max_terms=4``.
    Action:
        Any text. The content of the last ``\boxed{}``, or else of the last ``<answer></answer>``, is the
        answer.
    Observation:
        The question, and how to answer.
    Reward:
        The data set's own score, between 0 and 1. Many data sets give part of it for a nearly right answer.
        Only the full score is a success. An answer that the scorer cannot read earns 0. Quotes, a code fence
        and LaTeX that only lays an answer out, as a matrix does, cost nothing.
    End:
        After one action.
    Source:
        reasoning-gym (arXiv 2505.24760), Apache-2.0; generators, references and scorers are the package's.
    """

    shared: ClassVar[tuple[str, ...]] = ("_generator", "_dataset")

    answer_marks = ("<answer>",)
    max_turns = 1

    def __init__(
        self, name: str, size: int = 500, seed: int = 42, *, dataset: Any = None, **config: Any
    ) -> None:
        """Choose the data set, the number of questions, and the seed that makes them.

        `dataset`, a data set object of the package, replaces these questions: its item `i` is question `i`,
        and it scores the answers.

        Raises:
            UnknownEnv: when the package has no such data set. UnknownArgument, BadArgument: for a keyword
                or value that its configuration does not accept, and for a data set whose scorer has not
                been checked: it may run what the model writes.
        """
        if name not in DATASETS:
            raise UnknownEnv(f"reasoning-gym has no data set {name!r}.{did_you_mean(name, DATASETS)}")
        check_count("size", size)
        accepted = [f.name for f in dataclasses.fields(DATASETS[name][1]) if f.name not in ("seed", "size")]
        check_accepted(accepted, config, f"rg:{name}", "size", "seed")
        self.name = name
        self.size = size
        self.set_seed = seeding.check(seed)
        self.config = config
        self._generator = _generator(name, config)
        check_scorers(self._generator)
        self.dataset = dataset
        self._entry: dict[str, Any] = {}

    def reset(self, seed: int | None = None, idx: int | None = None) -> Start:
        """Draw a question, or take question `idx`; see Env.reset.

        Raises:
            BadArgument: when there is no question `idx`.
        """
        if idx is None and seed is None:
            idx = self._next
        if idx is not None and idx not in range(self.size):
            raise BadArgument(f"idx is {idx!r}; {self} has questions 0 to {self.size - 1}.")
        super().reset(seed)
        if self._next is not None:
            self._next = None if idx is None else (idx + 1) % self.size
        self._entry = self._item(self.rng.randrange(self.size) if idx is None else idx)
        return Start(f"{self._entry['question'].strip()}\n\n{ANSWER_FORM}", {})

    def step(self, action: str) -> Step:
        """Score the answer; see Env.step."""
        answer = boxed_or_tagged(action)
        if answer is None:
            info = {"success": False, "correct": False, "stop": StopReason.UNREADABLE.value}
            return Step(f"Your answer could not be read. {ANSWER_FORM}", 0.0, True, False, info)
        score, why = self._score(answer, self._entry, self._need_seed())
        for plain in _plain_forms(answer):
            if score < 1.0 and plain != answer:
                other = self._score(plain, self._entry, self._need_seed())
                score, why = other if other[0] > score else (score, why)
        correct = score >= 1.0
        info = {
            "success": correct,
            "correct": correct,
            "parsed_action": answer,
            "stop": (StopReason.SOLVED if correct else StopReason.FAILED).value,
        }
        if why:
            info["why"] = why
        return Step(f"Your answer scores {score:.4g} of 1.", score, True, False, info)

    def sample_random_action(self) -> str:
        """Return a right answer of a random question, or a digit if the data set gives none."""
        other = self._right_answer(self._item(self.actor_rng.randrange(self.size)))
        return _answer(str(self.actor_rng.randrange(10)) if other is None else other)

    def solve(self) -> str:
        """Return a right answer, which the agent does not see (an oracle)."""
        right = self._right_answer(self._entry)
        if right is None:
            raise NoSolver(f"{self} has no solver: the data set gives no right answer.")
        return _answer(right)

    def _right_answer(self, entry: dict[str, Any]) -> str | None:
        if entry.get("answer") is not None:
            return str(entry["answer"])
        metadata = entry.get("metadata", {})
        example = metadata.get(EXAMPLES.get(metadata.get("source_dataset", self.name), ""))
        return example if example is None or isinstance(example, str) else json.dumps(example)

    # -- what scripts read and assign, by upstream's names

    _dataset: Any = None
    _next: int | None = None

    @property
    def dataset(self) -> Any:
        """The questions, as entries of the package by number; or the object that was given or assigned."""
        return Questions(self) if self._dataset is None else self._dataset

    @dataset.setter
    def dataset(self, value: Any) -> None:
        own = None if isinstance(value, Questions) else value
        if own is not None:
            check_scorers(own)
            self.size = len(own)
        self._dataset = own

    @property
    def idx(self) -> int:
        """The number of the question that reset() takes next, once a script has assigned a number."""
        return self._next or 0

    @idx.setter
    def idx(self, value: int) -> None:
        self._next = value

    @property
    def answer(self) -> Any:
        """The reference answer of the running episode; None if the data set gives none."""
        return self._entry.get("answer")

    @answer.setter
    def answer(self, value: Any) -> None:
        self._entry = {**self._entry, "answer": value}

    def _item(self, index: int) -> dict[str, Any]:
        """Make question `index`, from its own data set with a hashed seed.

        Inside one data set, item i + 1 of seed s is item i of seed s + 1. So neighbouring seeds would share
        all their questions but one.
        """
        if self._dataset is not None:
            with _foreign(seeding.derive(self.set_seed, "item", index) % _ITEM_SEEDS):
                return dict(self._dataset[index])
        attempt = 0
        while True:
            seed = seeding.derive(self.set_seed, "item", index, attempt) % _ITEM_SEEDS
            with _foreign(seed):
                if self.name in RESEEDABLE:
                    self._generator.seed = seed
                    entry = self._generator[0]
                else:
                    entry = _build(self.name, {**self.config, "seed": seed})[0]
            source = entry["metadata"].get("source_dataset", self.name)
            if entry["answer"] is None or entry["answer"] != BLANK.get(source):
                return entry  # type: ignore[no-any-return]
            attempt += 1

    def _score(self, answer: str, entry: dict[str, Any], seed: int) -> tuple[float, str]:
        """Return the data set's score of `answer`, and the reason if gem set it to 0."""
        scorer = _scorer(self._generator if self._dataset is None else self._dataset, entry)
        why = explain_refusal(_name(scorer), answer, entry)
        if why:
            return 0.0, why
        try:
            with _foreign(seed % _ITEM_SEEDS):
                score = float(scorer.score_answer(answer, entry))
        except Exception as error:  # the package's scorer may raise anything
            self._check_reference(scorer, entry, error)
            return 0.0, f"the scorer could not read the answer: {type(error).__name__}"
        return (score, "") if math.isfinite(score) else (0.0, f"the scorer returned {score}")

    def _check_reference(self, scorer: Any, entry: dict[str, Any], error: Exception) -> None:
        """Raise NoVerdict if the scorer also fails on the reference answer: not the agent's mistake."""
        if entry["answer"] is None:
            return
        try:
            with _foreign(0):
                scorer.score_answer(entry["answer"], entry)
        except Exception:
            raise NoVerdict(f"the scorer of {self} fails on its own reference answer: {error!r}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the generator; the receiving process builds or shares its own."""
        return {key: value for key, value in vars(self).items() if key != "_generator"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state and find the generator."""
        vars(self).update(state)
        self._generator = _generator(self.name, self.config)


class Questions(Sequence[dict[str, Any]]):
    """The questions of an environment as entries of the package, with the package's scorer."""

    def __init__(self, env: ReasoningGymEnv) -> None:
        """Show the questions of `env`."""
        self.env = env

    def __len__(self) -> int:
        """Return the number of questions."""
        return self.env.size

    def __getitem__(self, index: Any) -> Any:
        """Return one entry: question, answer and metadata."""
        return self.env._item(range(self.env.size)[index])

    def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
        """Return the package's score of an answer; 0 for one that its scorer may not or cannot read."""
        return self.env._score(answer, entry, 0)[0]


# -- which scorers may read what a model wrote


def check_scorers(dataset: Any) -> None:
    """Check that every data set that scores the answers of `dataset` is known not to run them.

    Raises:
        BadArgument: for one that is not.
    """
    for part in _parts(dataset).values():
        kind, name = type(part), _name(part)
        if why := _distrust(kind, name):
            raise BadArgument(
                f"the scorer of {name or kind.__name__} might run what a model writes: {why}. Accepted: the "
                "data sets of `gem-gym list rg`, those that keep ProceduralDataset.score_answer, and those "
                "that are registered with reasoning_gym.register_dataset() and for which you set "
                "gem.envs.bridges.reasoning_gym_screens.SCREENS[NAME] to a function of (answer, entry) that "
                "returns whether the scorer may read the answer."
            )


def _distrust(kind: type, name: str) -> str:
    """Return why a data set's scorer may not read answers; ``""`` if it may, after its screen."""
    if name in SCREENS or _scoring(kind) is ProceduralDataset.score_answer:
        return ""
    if name not in RG_NAMES:
        return "gem does not know it"
    called = sorted(_evaluators(kind) - EVALUATES_OWN.get(name, frozenset()))
    return f"it calls {', '.join(called)}" if called else ""


@functools.cache
def _evaluators(kind: type) -> set[str]:
    return _collect_names(kind, _scoring(kind), set()) & EVALUATORS


def _scoring(kind: type) -> Any:
    return getattr(kind, "score_answer", None)


def _collect_names(kind: type, function: Any, visited: set[Any]) -> set[str]:
    """Return the names that a function of the package uses, and those that its own functions use."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or function in visited:
        return set()
    visited.add(function)
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    for name in list(names):
        target = function.__globals__.get(name)
        if isinstance(target, type) and target.__module__.startswith("reasoning_gym"):
            for method in vars(target).values():
                names |= _collect_names(target, method, visited)
        names |= _collect_names(kind, target, visited) | _collect_names(
            kind, getattr(kind, name, None), visited
        )
    return names


def _name(dataset: Any) -> str:
    """Return the name under which the scorer of a data set is registered; ``""`` for an unknown one."""
    names, scorer = {kind: name for name, (kind, _) in DATASETS.items()}, _scoring(type(dataset))
    known = (base for base in type(dataset).__mro__ if base in names and _scoring(base) is scorer)
    return next((names[base] for base in known), "")


def _parts(dataset: Any) -> dict[str, Any]:
    """Return the data sets that score the answers of `dataset` by name: itself, or those of a composite."""
    if not isinstance(dataset, CompositeDataset):
        return {"": dataset}
    parts: dict[str, Any] = {}
    for name, part in dataset.datasets.items():
        parts |= _parts(part) if isinstance(part, CompositeDataset) else {name: part}
    return parts


def _scorer(dataset: Any, entry: dict[str, Any]) -> Any:
    """Return the data set that scores `entry`, which a composite looks up by the entry's source."""
    parts = _parts(dataset)
    source = entry["metadata"].get("source_dataset") if isinstance(dataset, CompositeDataset) else ""
    if source not in parts:
        raise BadArgument(
            f"a question of a composite has the source_dataset {source!r}; accepted: {', '.join(parts)}."
        )
    check_scorers(parts[source])
    return parts[source]


# -- calls into the package


@contextlib.contextmanager
def _foreign(seed: int) -> Iterator[None]:
    """Guard a call into the package: one at a time, and the caller's global generators are left as they were.

    Some data sets seed the global generators (`pool_matrix`) and some draw from them unseeded (`codeio`,
    `list_functions`), so they are seeded for the call, and put back.
    """
    with GlobalGenerators().active(seed):
        for (module, name), replacement in _SHADOWS.items():
            vars(sys.modules[module])[name] = replacement
        try:
            yield
        finally:
            for module, name in _SHADOWS:  # other users of the package find it unchanged
                vars(sys.modules[module]).pop(name, None)


def _generator(name: str, config: dict[str, Any]) -> Any:
    """Return the data set that scores, shared by all environments of one configuration."""
    key = (name, repr(sorted(config.items())))
    with _foreign(0):
        generator = _GENERATORS.get(key)
        if generator is None:
            generator = _GENERATORS[key] = _build(name, {**config, "seed": 0})
        return generator


def _build(name: str, config: dict[str, Any]) -> ProceduralDataset:
    """Build a data set of one item, and repair it."""
    dataset_class, config_class = DATASETS[name]
    try:
        dataset = dataset_class(config=config_class(size=1, **config))
    except (AssertionError, TypeError, ValueError, AttributeError) as error:
        raise BadArgument(f"rg:{name} got {config}; its configuration refuses that: {error}") from error
    for part_name, part in _parts(dataset).items():
        if repair := REPAIRS.get(part_name or name):
            repair(part)
    return dataset


class _OrderedSet(set[str]):
    """A set that is iterated in order, as are its differences."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(set.__iter__(self)))

    def __sub__(self, other: Any) -> _OrderedSet:
        return _OrderedSet(set.__sub__(self, other))


class _OrderedFrozenSet(frozenset[str]):
    """A frozenset that is iterated in order."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(frozenset.__iter__(self)))


def _order_letters(dataset: Any) -> None:
    dataset.letters = _OrderedSet(dataset.letters)


def _order_monomials(dataset: Any) -> None:
    unordered = dataset._get_monomials
    dataset._get_monomials = lambda rng: sorted(unordered(rng), key=str)


def _order_neighbours(dataset: Any) -> None:
    for graph in dataset.word_graphs.values():
        graph.update({word: sorted(neighbours) for word, neighbours in graph.items()})


def _shadow(name: str, replacement: Any) -> Callable[[Any], None]:
    """Return a repair that replaces a builtin in the data set's module during every call from gem."""

    def repair(dataset: Any) -> None:
        module = type(dataset).__module__
        _SHADOWS[module, name] = vars(sys.modules[module])[name] = replacement

    return repair


REPAIRS: dict[str, Callable[[Any], None]] = {
    # questions or reference answers depend on the order of a set, which changes with the hash seed
    "isomorphic_strings": _order_letters,
    "ransom_note": _order_letters,
    "polynomial_multiplication": _order_monomials,
    "word_ladder": _order_neighbours,
    "knight_swap": _shadow("frozenset", _OrderedFrozenSet),
    # it prints, which would break a protocol over stdout
    "codeio": _shadow("print", lambda *args: None),
    # some references are wrong
    "mahjong_puzzle": repairs.judge_rounds,
    "syllogism": repairs.check_middle_terms,
    "family_relationships": repairs.name_younger_relatives,
    # some right answers earn nothing
    "tsumego": repairs.allow_one_capture,
    "survo": repairs.accept_other_solutions,
    "advanced_geometry": repairs.accept_rounded,
}
"""The repair of a data set, applied when it has been built."""


_MATRIX_END = re.compile(
    r"(?:\\left\s*[\[(|.]\s*)?\\begin\{(?:(?:[bBpvV]|small)?matrix\}|array\}(?:\{[lcr| ]*\})?)|"
    r"\\end\{(?:(?:[bBpvV]|small)?matrix|array)\}(?:\s*\\right\s*[\])|.])?|\\hline(?![a-zA-Z])"
)
_ROW_END = re.compile(r"\\\\(?:\[[\d.]+(?:pt|em|ex|mm|cm)\])?(?![a-zA-Z])")


def _plain_forms(answer: str) -> Iterator[str]:
    """Yield what an answer says if its markup is only layout: LaTeX, a fence around it, rows of a matrix.

    Everything else that it says stays in it, so a wrong answer does not become another one.
    """
    yield strip_markup(answer)
    for start, end, _, inside in fences(answer):
        if (start, end) == (0, len(answer)):
            yield inside.strip()
    formula, begun = answer.strip("$ \n"), answer.count("\\begin")  # of several: which is meant?
    ends = [match.span() for match in _MATRIX_END.finditer(formula)]
    alone = begun == 1 and ends and (ends[0][0], ends[-1][1]) == (0, len(formula))  # no sign beside it
    if alone or (not begun and "\\\\" in answer):
        rows = _ROW_END.sub("\n", _MATRIX_END.sub("\n", formula)).replace("&", " ").splitlines()
        yield strip_markup("\n".join(" ".join(row.split()) for row in rows if row.strip()))


def _answer(text: str) -> str:
    """Return `text` as an answer: in a box, or in tags if its braces would break the box."""
    boxed_text = f"\\boxed{{{text}}}"
    return boxed_text if boxed(boxed_text) == text.strip() else f"<answer>{text}</answer>"
