"""The oracle: what the trainer's learn step estimates, compared with exact gradients.

`judge` plays all episodes of small environments (`SETTINGS`), gives all their batches to the real learn step
of each algorithm (`CASES`), and says what the mean step is: unbiased, scaled, or biased and why. `gem-gym
oracle` prints its rows.
"""

from gem.train.oracle.cases import CASES, Case
from gem.train.oracle.envs import SETTINGS, Setting
from gem.train.oracle.exact import Exact, Listing
from gem.train.oracle.report import Judge, Row, judge

__all__ = ["CASES", "SETTINGS", "Case", "Exact", "Judge", "Listing", "Row", "Setting", "judge"]
