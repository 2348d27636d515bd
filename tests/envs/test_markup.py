"""One list of markup: a right answer is right in it whatever the environment."""

import pytest

import gem

ROW = {"question": "How many?", "answer": "42"}
ENVIRONMENTS = {
    "data:number": {"data": [ROW]},
    "data:math": {"data": [ROW]},
    "data:text": {"data": [ROW | {"answer": "Oslo"}]},
    "data:choice": {"data": [ROW | {"choices": ["Rome", "Oslo", "Bonn"], "answer": "B"}]},
    "game:GuessTheNumber-v0-easy": {},
    "game:TowerofHanoi-v0-easy": {},
    "math:Arithmetic-v0-easy": {},
    "multi:KuhnPoker-v0-vs-random": {},
    "qa:Facts-v0-easy": {},
}
MARKUP = (
    *(
        r"\text{%s}",
        r"\texttt{%s}",
        r"\mathtt{%s}",
        r"\emph{%s}",
        r"\textsf{%s}",
        r"\textnormal{%s}",
        r"\mbox{%s}",
    ),
    *(r"\underline{%s}", r"\color{red}{%s}", r"\color{red} %s", r"\textcolor{red}{%s}", r"\bm{%s}"),
    *(r"{\bf %s}", r"\bf %s", r"\large %s", r"\tt %s", r"\displaystyle %s", r"\texttt{\textbf{%s}}"),
    *(r"\(%s\)", r"\[%s\]", "$%s$", "$$%s$$", r"$\texttt{%s}$", "**%s**", "`%s`"),
)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_markup_decides_nothing(name):
    env = gem.make(name, **ENVIRONMENTS[name])
    env.reset(seed=1)
    answer = env.solve().removeprefix("\\boxed{").removesuffix("}")
    plain = env.fork().step(f"\\boxed{{{answer}}}")
    for markup in MARKUP:
        step = env.fork().step(f"\\boxed{{{markup % answer}}}")
        assert (step.obs, step.reward) == (plain.obs, plain.reward), markup
