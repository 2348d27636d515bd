"""The forms in which replies state an answer, for the graders of choices, numbers and texts alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.graders.choice import ChoiceGrader
from gem.graders.number import NumberGrader
from gem.graders.stated import read_reply
from gem.graders.text import TextGrader

CHOICES = {"choices": ["Rome", "Oslo", "Bern", "Kyiv"], "answer": "B"}
GRADERS = {
    "text": (TextGrader(), "Oslo", "Oslo", "Rome"),
    "number": (NumberGrader(), "18", "18", "17"),
    "letter": (ChoiceGrader(), CHOICES, "B", "A"),
    "choice": (ChoiceGrader(), CHOICES, "Oslo", "Rome"),
}
STATED = [
    *("@", "The answer is @.", "The answer is: @", "The answer is:\n@", "The answer is\n\n@", "Answer: @"),
    *("Answer:\n@", "**Answer:** @", "**Answer: @**", "**Answer**: @", "### Answer\n@", "### Answer: @"),
    *("## Final Answer: @", "**Final Answer**\n\n@", "**Final Answer:**\n@", "Final answer: @"),
    *("The final answer is **@**.", "The answer is *@*.", "The answer is `@`.", 'The answer is "@".'),
    *("The answer is “@”.", "The answer is [@].", "The answer is $@$.", r"The answer is \(@\).", "#### @"),
    *("So the answer is @.", "Therefore the correct answer is @.", "Hence, the answer should be @."),
    *("The answer would be @.", "My answer is @.", "I think the answer is @.", "It's @.", "It is @."),
    *("Since it is cold, the answer is @.", "The answer to the question is @.", "Answer = @", "answer=@"),
    *("> @", '"@"', "“@”", "*@*", "**@**", "`@`", "```\n@\n```", '{"answer": "@"}', "{'answer': '@'}"),
    *('```json\n{"answer": "@"}\n```', '{"answer": "@", "reason": "known"}', 'answer: "@"'),
    *("The answer is @.\n\nLet me know if you need more!", "Answer: @\n\nConfidence: high"),
    *("The answer is @, because it is so.", "The answer is @ (as shown above).", "The answer is @ — done."),
    *("The answer is @. It is in the north.", "The answer is @.\n\nThe wrong answer is Kyiv."),
    *("@ is the answer.", "@ is correct.", "I know it.\nSo it is @.", "It is cold there. Therefore, @"),
    *("Final Answer: The final answer is $@$. I hope it is correct.", "✅ **@**", "→ @", "∴ @"),
    *("Antwort: @", "Die Antwort ist @.", "La réponse est @.", "Réponse : @", "Respuesta: @", "Ответ: @"),
    *("答案：@", "答案是@。", "答え：@", "答えは@です。", "정답: @", "정답은 @입니다.", "الجواب: @"),
    *("<think>Rome?</think>@", "Assistant: The answer is @.", "@<|im_end|>", "The answer is @.</s>"),
    *("Think.\n#### @", "<answer>@", "I say: <answer>@"),
]
INSIDE = [
    *("@", r"\text{@}", r"\textbf{@}", '"@"', "'@'", "`@`", "**@**", "[@]", " @ ", "@.", r"\mathrm{@}"),
    *(r"\texttt{@}", r"\mathtt{@}", r"\displaystyle @", r"\text{The answer is } @", r"\text{Answer: @}"),
    *("Answer: @", "answer = @", "The answer is @", "\n@\n"),
]
FORMS = [
    *STATED,
    *(rf"\boxed{{{each}}}" for each in INSIDE),
    *(f"Known.\n<answer>{each}</answer>" for each in INSIDE),
    *("<answer>\\boxed{@}</answer>", "<ANSWER>@</ANSWER>", "<final_answer>@</final_answer>", "\\fbox{@}"),
]


@pytest.mark.parametrize("name", GRADERS)
def test_an_answer_is_read_in_any_common_form(name):
    grader, reference, right, wrong = GRADERS[name]
    assert [form for form in FORMS if not grader(form.replace("@", right), reference).correct] == []
    assert [form for form in FORMS if grader(form.replace("@", wrong), reference).correct] == []


UNSTATED = [  # where `number` takes the last one of a reply
    *("I doubt that the answer is @.", "I don't think that the answer is @.", "The wrong answer is @."),
    *(
        "Is the answer @?",
        "The answer is @?\nI do not know.",
        "A common answer is @.",
        "If the answer is @, so be it.",
    ),
    *("Your answer is @, which I like.", "To answer this, we note that one is @. It is not."),
]
DENIED = [
    *(
        "The answer is not @.",
        "The answer isn't @.",
        "The answer is @ or Kyiv.",
        "The answer is @.\nNo: Kyiv.",
    ),
    *(
        "The answer is @. Wait, no.",
        "The answer is @. Sorry, I was wrong.",
        "The answer is @. That is wrong.",
    ),
    *(
        "@ or Kyiv",
        "@, Kyiv",
        "The answer is @.\nThe answer is Kyiv.",
        "The answer is @. Actually, it is Kyiv.",
    ),
    *("\\boxed{not @}", "\\boxed{@ or Kyiv}", "<answer>@, Kyiv</answer>", "\\boxed{Kyiv} The answer is @."),
    *('{"answer": "@"}\n{"answer": "Kyiv"}', "<think>The answer is @.</think> Kyiv", "It is not @."),
]


@pytest.mark.parametrize("name", GRADERS)
def test_what_is_denied_doubted_or_taken_back_is_no_answer(name):
    grader, reference, right, _ = GRADERS[name]
    other = "19" if name == "number" else "Kyiv"
    replies = [
        form.replace("@", right).replace("Kyiv", other) for form in [*DENIED, *UNSTATED * (name != "number")]
    ]
    assert [reply for reply in replies if grader(reply, reference).correct] == []


@pytest.mark.parametrize(
    "form", ["The answer is:\n@\nKyiv", "Answer: @\n\n- Kyiv\n- Bern", "Answer: @. But it could be Kyiv."]
)
def test_a_text_among_others_is_no_answer(form):
    assert not TextGrader()(form.replace("@", "Oslo"), "Oslo").correct


def test_a_statement_ends_where_its_sentence_does():
    (statement,) = read_reply("The answer is St. Louis. It is in Missouri.").statements
    assert "St. Louis" in statement.readings()
    assert TextGrader()("The answer is St. Louis because it is.", "St. Louis").correct


@given(st.lists(st.sampled_from([*FORMS, " is", "No, ", "\n", "' ", "*", "<answer>", '{"answer": "', "so "])))
def test_any_reply_is_read(pieces):
    reply = read_reply("".join(pieces))
    assert all(statement.text for statement in reply.statements)
    for grader, reference, *_ in GRADERS.values():
        grader(reply.text, reference)
