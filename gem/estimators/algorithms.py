"""Algorithms: what a policy learns from the episodes of a batch, each a value of the table `ALGORITHMS`.

An `Algorithm` is a function from a `View`, the episodes' rewards in plain numbers, to advantages, with what a
trainer has to know about it. To add one, add an entry to the table, or write one in a file of your own and
name it as ``path/file.py:NAME``. Nothing else in gem compares an algorithm's name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gem.errors import BadArgument, did_you_mean
from gem.estimators.advantages import grpo, rebn, reinforce, rloo, turn_rebn, turn_rewards
from gem.estimators.returns import discounted_returns, gae
from gem.naming import FORMS, find_named, is_loaded, is_path, keep_value
from gem.plugins import call_foreign, check_parameters
from gem.record import SEAT, Episode

if TYPE_CHECKING:
    from torch import Tensor

PerTurn = Sequence[Sequence[float]]
"""A number for each turn of each episode."""


class _NoCritic(tuple[Any, ...]):
    """The values of a view without a critic: empty, and an error for an algorithm that reads them."""

    def __iter__(self) -> Any:
        """Refuse to be read."""
        raise BadArgument("view.values and view.bootstraps are a critic's; set critic=True in the Algorithm.")

    def __getitem__(self, index: Any) -> Any:
        """Refuse to be read."""
        return self.__iter__()


_NO_CRITIC = _NoCritic()


@dataclass(frozen=True, slots=True)
class View:
    """The episodes that an algorithm compares: those with a verdict, of one environment, as one seat played.

    With ``normalise_by="batch"`` the episodes of all environments are in one view. E: episodes. T: the turns
    of an episode by this seat, which may be none.

    `episodes` (E,): the episodes themselves. `seat`: whose turns. `rewards` (E, T): the reward of each turn,
    minus its divergence from the reference with `kl_reward`. `returns` (E, T): their discounted sums from the
    turn on; what a time limit cut off counts as 0. `groups` (E,): the task, equal for samples of one task.
    `starts` (E,): the first turn that the samples of a group do not share, which is not 0 only with
    ``group="turn"``. `gamma`, `lam`: the run's discount and lambda. With a critic, `values` (E, T): its value
    of the state before each turn, and `bootstraps` (E,): its value of the state where an outside limit
    truncated the episode, 0 elsewhere; without one they are empty. `tokens` (E, T): the number of tokens
    sampled in each turn, 0 where the agent gives none.
    """

    episodes: Sequence[Episode]
    seat: str
    rewards: PerTurn
    returns: PerTurn
    groups: Sequence[str]
    starts: Sequence[int]
    gamma: float = 1.0
    lam: float = 1.0
    values: PerTurn = _NO_CRITIC
    bootstraps: Sequence[float] = _NO_CRITIC
    tokens: Sequence[Sequence[int]] = ()


Advantages = Callable[[View], PerTurn]
"""A function from a view to advantages (E, T). It depends on the view alone."""

Select = Callable[[View], Sequence[Sequence[bool]]]
"""A function from a view to the turns to learn from, (E, T)."""

Loss = Callable[["Tensor", "Tensor", "Tensor | None", "Tensor", "Tensor"], "Tensor"]
"""A function of ``logp, old, reference, advantage, mask``, each (R, T) for R rows of up to T sampled tokens.

`logp`: the log probability of each sampled token, with gradient. `old`: that when it was sampled.
`reference`: that under the policy before RL, None where the run keeps none (``kl=0``). `advantage`: that of
the token's turn. `mask`: 1 where there is a token; elsewhere all are 0. A row is an episode's conversation,
or a part of it where a turn does not continue the one before. The loss returns what to minimise for each
token, (R, T), or for each row, (R,). The caller sums it over tokens or rows, and divides by what `normalise`
says, such as the number of episodes. A step may take several passes, so a loss cannot compare rows."""


TAKES = {
    **dict.fromkeys(("advantages", "select"), ("view",)),
    "loss": ("logp", "old", "reference", "advantage", "mask"),
    "scale": ("batch",),
}
"""The parameters of an algorithm's functions."""


@dataclass(frozen=True)
class Algorithm:
    """A training algorithm.

    `name`: as flags and figures show it. `advantages`: see Advantages. `summary`: one line for `--help`.
    `source`: the paper. `defaults`: settings of `gem-gym train` that differ from its own defaults, such as
    ``{"gamma": 1.0, "ratio": "sequence"}``.

    `group`: which episodes are samples of one thing: ``none``; ``task``, `group` samples of each task; or
    ``turn``, samples that share an episode up to a turn. `seats`: ``any``, or ``one`` for games of one seat.
    `critic`: train a critic too. It learns lambda-returns (arXiv 1506.02438), whatever the advantages are;
    the setting `whiten` normalises these.

    `select`: the turns to learn from; None: all. In the divisor of the loss (the setting `normalise`) an
    episode counts whether turns of it are chosen or not; a turn or a token counts where it is chosen.
    `loss`: instead of the clipped surrogate; None: that one, with the settings `clip`, `clip_high` and
    `ratio`. The run adds divergence, entropy and the critic's loss to either.

    `bias`: for `gem-gym oracle`, why the mean step is not the gradient of the mean return; empty: it is one.
    `scale`: the length of the mean step over that gradient's, as a function of the episodes of a batch.
    """

    name: str
    advantages: Advantages
    summary: str = ""
    source: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    group: Literal["none", "task", "turn"] = "none"
    seats: Literal["any", "one"] = "any"
    critic: bool = False
    select: Select | None = None
    loss: Loss | None = None
    bias: str = ""
    scale: Callable[[int], float] = lambda batch: 1.0

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            BadArgument: for one of another type, or a group or seats that do not exist.
        """
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise BadArgument(f"an algorithm's name is {self.name!r}; accepted: letters, digits and _.")
        for name in ("advantages", "select", "loss", "scale"):
            given = getattr(self, name)
            if not callable(given) and (given is not None or name in ("advantages", "scale")):
                raise BadArgument(f"algorithm {self.name}: {name} is {given!r:.80}; accepted: a function.")
            if given is not None:
                check_parameters(f"algorithm {self.name}: {name}", given, TAKES[name])
        for name, accepted in (("group", ("none", "task", "turn")), ("seats", ("any", "one"))):
            if getattr(self, name) not in accepted:
                raise BadArgument(
                    f"algorithm {self.name}: {name} is {getattr(self, name)!r}; "
                    f"accepted: {', '.join(accepted)}."
                )
        if not isinstance(self.defaults, Mapping):
            raise BadArgument(f"algorithm {self.name}: defaults are {self.defaults!r:.80}; accepted: a dict.")

    def compute_advantages(self, view: View) -> list[list[float]]:
        """Return the advantages of a view, checked.

        Raises:
            BadArgument: where `advantages` fails, or returns another shape or a number that is not finite.
        """
        what = f"algorithm {self.name}: advantages(view)"
        return check_turns(what, call_foreign(what, self.advantages, view), view.rewards)

    def select_turns(self, view: View) -> list[list[bool]] | None:
        """Return which turns of a view are learnt from, checked; None: all.

        Raises:
            BadArgument: where `select` fails, or returns another shape.
        """
        if self.select is None:
            return None
        what = f"algorithm {self.name}: select(view)"
        chosen = check_turns(what, call_foreign(what, self.select, view), view.rewards)
        return [[bool(value) for value in turns] for turns in chosen]


def check_turns(what: str, given: Any, like: PerTurn) -> list[list[float]]:
    """Return numbers per turn as lists of floats, of the same lengths as `like`.

    Raises:
        BadArgument: for another shape, or a number that is not finite; `what` says who returned it.
    """
    try:
        rows = [[float(value) for value in turns] for turns in given]
    except (TypeError, ValueError):
        raise BadArgument(
            f"{what} returned {given!r:.80}; accepted: for each of the {len(like)} episodes a list with one "
            "number per turn."
        ) from None
    if len(rows) != len(like):
        raise BadArgument(
            f"{what} returned {len(rows)} lists for {len(like)} episodes; accepted: one for each episode."
        )
    for number, (row, turns) in enumerate(zip(rows, like, strict=True)):
        if len(row) != len(turns):
            raise BadArgument(
                f"{what} returned {len(row)} numbers for episode {number}, which has {len(turns)} turns; "
                "accepted: one for each turn."
            )
        for turn, value in enumerate(row):
            if not math.isfinite(value):
                raise BadArgument(
                    f"{what} returned {value} for episode {number}, turn {turn}; accepted: finite numbers."
                )
    return rows


# -- views


def make_view(
    episodes: Sequence[Episode],
    seat: str,
    gamma: float,
    *,
    penalties: PerTurn | None = None,
    **others: Any,
) -> View:
    """Return the view of episodes with a verdict.

    Args:
        episodes: all have a verdict.
        seat: whose turns.
        gamma: the discount per turn, in [0, 1].
        penalties: (E, T), what to subtract from the reward of each turn; None: nothing.
        others: other fields of View, and `rewards` where they are not those of the episodes.

    Raises:
        BadArgument: for a reward that is not finite.
    """
    rewards = others.pop("rewards", None) or [turn_rewards(episode, seat) for episode in episodes]
    if penalties is not None:
        rewards = [
            [reward - less for reward, less in zip(earned, lost, strict=True)]
            for earned, lost in zip(rewards, penalties, strict=True)
        ]
    returns = [discounted_returns(each, gamma) for each in rewards]
    groups = [episode.group for episode in episodes]
    tokens = [[len(turn.token_ids) for turn in episode.turns_of(seat)] for episode in episodes]
    starts = others.pop("starts", None) or [0] * len(episodes)
    return View(episodes, seat, rewards, returns, groups, starts, gamma, tokens=tokens, **others)


def compare_episodes(
    view: View, compare: Callable[[Sequence[float], Sequence[str]], Sequence[float]]
) -> list[list[float]]:
    """Return advantages that are equal for all turns of an episode.

    `compare`: a function of the episodes' returns and groups, such as `rloo`, to one advantage per episode.
    It gets the episodes that have a turn.
    """
    acted = [index for index, turns in enumerate(view.returns) if turns]
    relative = compare([view.returns[index][0] for index in acted], [view.groups[index] for index in acted])
    advantages: list[list[float]] = [[] for _ in view.returns]
    for index, score in zip(acted, relative, strict=True):
        advantages[index] = [score] * len(view.returns[index])
    return advantages


# -- the advantages of the table that need more than returns


def estimate_gae(view: View) -> list[list[float]]:
    """Return generalised advantage estimates, see `gem.estimators.gae`."""
    return [
        gae(rewards, values, view.gamma, view.lam, bootstrap)
        for rewards, values, bootstrap in zip(view.rewards, view.values, view.bootstraps, strict=True)
    ]


def compare_branches(view: View) -> list[list[float]]:
    """Return turn-level GRPO's advantages: those of the turn where an episode's group branches.

    The episodes of a group are the same up to a turn, which each then samples again: a Monte-Carlo sample of
    that turn's value in the same state. The turn's advantage is the return from there on, minus the group's
    mean, divided by the group's deviation; every other turn has none. The turn was drawn from all turns of
    the group's first episode, so its advantage is multiplied by their number.

    Source: the Monte-Carlo values of VinePPO (Kazemnejad et al., arXiv 2410.01679), relative to their group.
    """
    turns = {
        episode.group: len(returns)
        for episode, returns in zip(view.episodes, view.returns, strict=True)
        if episode.sample == 0
    }
    usable = [index for index, returns in enumerate(view.returns) if len(returns) > view.starts[index]]
    scores = [view.returns[index][view.starts[index]] for index in usable]
    relative = grpo(scores, [(view.groups[index], view.starts[index]) for index in usable])
    advantages = [[0.0] * len(returns) for returns in view.returns]
    for index, score in zip(usable, relative, strict=True):
        advantages[index][view.starts[index]] = score * turns.get(view.groups[index], 1)
    return advantages


def select_branches(view: View) -> list[list[bool]]:
    """Return, of each episode, the turn where its group branches."""
    return [
        [number == start for number in range(len(returns))]
        for returns, start in zip(view.returns, view.starts, strict=True)
    ]


# -- the table

GROUP_STD = "divides by the group's deviation, which depends on its samples"
BATCH_STD = "mean and deviation are of the batch's own turns"
WHOLE = {"gamma": 1.0}
"""Algorithms that compare whole episodes use no discount."""

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "reinforce",
            lambda view: reinforce(view.returns),
            "plain returns",
            "Williams, Machine Learning 8 (1992)",
        ),
        Algorithm(
            "rebn",
            lambda view: rebn(view.returns),
            "Return Batch Normalisation",
            "Liu et al., GEM, arXiv 2510.01051",
            bias=BATCH_STD,
        ),
        Algorithm(
            "turn_rebn",
            lambda view: turn_rebn(view.returns),
            "the same, separately for the first turns, the second turns, and so on",
            "Greensmith, Bartlett and Baxter, J. Machine Learning Research 5 (2004)",
            bias=f"{BATCH_STD} at one place",
        ),
        Algorithm(
            "rloo",
            lambda view: compare_episodes(view, rloo),
            "relative to the mean of the other samples of a task",
            "Ahmadian et al., Back to Basics, arXiv 2402.14740",
            WHOLE,
            group="task",
        ),
        Algorithm(
            "grpo",
            lambda view: compare_episodes(view, grpo),
            "relative to a group of samples of one task, over its deviation",
            "Shao et al., DeepSeekMath, arXiv 2402.03300",
            WHOLE,
            group="task",
            bias=GROUP_STD,
        ),
        Algorithm(
            "dr_grpo",
            lambda view: compare_episodes(view, functools.partial(grpo, scale=False)),
            "the same without the division",
            "Liu et al., arXiv 2503.20783",
            WHOLE,
            group="task",
            scale=lambda batch: 1 - 1 / batch,
        ),
        Algorithm(
            "gspo",
            lambda view: compare_episodes(view, grpo),
            "as grpo, but clips whole sequences",
            "Zheng et al., arXiv 2507.18071",
            {**WHOLE, "ratio": "sequence", "clip": 3e-4, "clip_high": 4e-4},
            group="task",
            bias=GROUP_STD,
        ),
        Algorithm(
            "turn_grpo",
            compare_branches,
            "relative to samples of one turn, which branch off in the middle of an episode",
            "Kazemnejad et al., VinePPO, arXiv 2410.01679",
            WHOLE,
            group="turn",
            seats="one",
            select=select_branches,
            bias=GROUP_STD,
        ),
        Algorithm(
            "ppo",
            estimate_gae,
            "estimates of a critic",
            "Schulman et al., arXiv 1707.06347",
            {"gamma": 0.9},
            critic=True,
            bias=f"{BATCH_STD}; lambda trusts a wrong critic",
        ),
    )
}
"""The algorithms that gem has, by name."""


def name_algorithm(algorithm: Algorithm) -> str:
    """Return the name by which this process finds an algorithm that a program made; see find_algorithm."""
    if ALGORITHMS.get(algorithm.name) is algorithm:
        return algorithm.name
    return keep_value(algorithm, KIND, algorithm.name)


KIND = "algorithm"


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of a name: of the table, ``package.module:NAME``, or ``path/file.py:NAME``.

    Raises:
        BadArgument: where there is none.
    """
    check_algorithm_name(name)
    algorithm = ALGORITHMS[name] if name in ALGORITHMS else find_named(name, KIND)
    if not isinstance(algorithm, Algorithm):
        raise BadArgument(f"algorithm is {name!r}, {algorithm!r:.80}; accepted: a gem.estimators.Algorithm.")
    return algorithm


def is_known(name: str) -> bool:
    """Return whether an algorithm is of the table, or was loaded in this process."""
    return name in ALGORITHMS or is_loaded(name, KIND)


def check_algorithm_name(name: str) -> None:
    """Check the form of a name; one with a colon is not looked for.

    Raises:
        BadArgument: for a name without colon that is not in the table.
    """
    if not isinstance(name, str) or not (name in ALGORITHMS or ":" in name or is_path(name)):
        raise BadArgument(
            f"algorithm is {name!r}; accepted: {', '.join(ALGORITHMS)}, or one of your own, as {FORMS}."
            f"{did_you_mean(str(name), ALGORITHMS)}"
        )


# -- advantages without a trainer

KINDS: tuple[str, ...] = tuple(
    name for name, each in ALGORITHMS.items() if not each.critic and each.group != "turn"
)
"""The algorithms whose advantages follow from the episodes alone."""


def turn_advantages(
    episodes: Sequence[Episode],
    kind: str | Algorithm,
    gamma: float,
    seat: str = SEAT,
    penalties: Sequence[Sequence[float]] | None = None,
) -> list[list[float] | None]:
    """Return the advantages of a seat's turns, parallel to `episodes` and to their ``turns_of(seat)``.

    An episode without verdict gives None and enters no mean and no deviation. Truncated episodes are not
    bootstrapped: without a critic, rewards that were cut off count as 0.

    Args:
        episodes: a batch; ``rloo``, ``grpo`` and ``dr_grpo`` compare the episodes of one `group`.
        kind: one of `KINDS`, or an algorithm of your own without critic.
        gamma: the discount per turn, in [0, 1]. Algorithms that compare whole episodes compare discounted
            returns; their papers use 1.
        seat: whose turns.
        penalties: numbers to subtract from the reward of each turn, parallel to `episodes` and their turns,
            such as a divergence from a reference; None: nothing.

    Raises:
        BadArgument: for another kind, or a reward that is not finite in an episode with verdict.
    """
    algorithm = kind if isinstance(kind, Algorithm) else ALGORITHMS.get(kind)
    if algorithm is None or algorithm.critic or algorithm.group == "turn":
        raise BadArgument(f"kind is {kind!r:.80}; accepted: {', '.join(KINDS)}, or an Algorithm like these.")
    scored = [episode for episode in episodes if episode.scored]
    if penalties is not None:
        penalties = [each for each, episode in zip(penalties, episodes, strict=True) if episode.scored]
    following = iter(algorithm.compute_advantages(make_view(scored, seat, gamma, penalties=penalties)))
    return [next(following) if episode.scored else None for episode in episodes]
