"""Records for tests, written short."""

from gem.record import SEAT, Episode, SeatEnd, StopReason, Turn, Verdict
from gem.rollout.episode import TASK_ENDS
from gem.specs import TaskRef

UNSCORED = (StopReason.ERROR, StopReason.CANCELLED)


def turn(prompt=(), answer=(), *, logprobs=..., mask=None, after=(), seat=SEAT, **fields):
    """A turn that holds tokens; by default -0.5, -1.5 and so on are their log probabilities."""
    made = Turn(seat, **{"observation": "", "action": "move", **fields})
    if prompt or answer:
        if logprobs is ...:
            logprobs = [-0.5 - i for i in range(len(answer))]
        made.hold(prompt, answer, logprobs, mask, after=after)
    return made


def paid(*rewards, seat=SEAT):
    """Turns that earned these rewards."""
    return [Turn(seat, f"o{number}", f"a{number}", reward=reward) for number, reward in enumerate(rewards)]


def episode(*turns, stop=StopReason.SOLVED, seed=0, **fields):
    """An episode that ended like this for every seat that has a turn; scored where such a stop is."""
    ends = {
        seat: SeatEnd(stop, stop in TASK_ENDS, stop not in TASK_ENDS)
        for seat in dict.fromkeys(turn.seat for turn in turns) or (SEAT,)
    }
    verdict = Verdict.NONE if stop in UNSCORED else Verdict.SCORED
    given = {"ends": ends, "verdict": verdict, **fields}
    return Episode(TaskRef("game:X", seed=seed), turns=list(turns), stop=stop, **given)
