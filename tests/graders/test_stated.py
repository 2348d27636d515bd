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
    *("The answer is @. It is in the north.", "The answer is @! It's in Norway."),
    "The answer is @.\n\nThe wrong answer is Kyiv.",
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
    *("His answer is @, which I like.", "To answer this, we note that one is @. It is not."),
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


EXPLAINED = [
    *(
        "The answer is @.\n\nActually, Oslo has been the capital since 1814.",
        "The answer is @. Sorry for the long explanation.",
    ),
    *(
        "The answer is @.\n\nWait, let me double check: 9 * 2, so @ is right.",
        "Answer: @\nMaybe I should explain: the north.",
    ),
    *(
        "Answer: @\n\nNo, other options don't fit.",
        "The answer is @. Perhaps surprising, but true.",
    ),
    *(
        "The answer is @. Actually, many people confuse it with Kyiv.",
        "The answer is @. Alternatively, one could use a map.",
    ),
    *(
        "The answer is @.\n\nHold on to this fact.",
        "The answer is @. No, really.",
    ),
    *(
        "Answer: @\n\nNo. of letters: 4",
        "The answer is @. I was wrong at first.",
    ),
    *(
        "The answer is @. I made a mistake before.",
        "Answer: @. This is not true for Kyiv.",
    ),
    *(
        "Answer: @. That is false for the others.",
        "Answer: @. It is wrong to choose Kyiv.",
    ),
    *(
        "Answer: @\n\nNo: Kyiv is in Italy.",
        "The answer is @ — I'm not sure why.",
    ),
]


@pytest.mark.parametrize("name", ["number", "letter", "choice"])
def test_an_explanation_takes_no_answer_back(name):
    grader, reference, right, _ = GRADERS[name]
    other = {"number": "20", "letter": "A"}.get(name, "Rome")
    replies = [form.replace("@", right).replace("Kyiv", other) for form in EXPLAINED]
    assert [reply for reply in replies if not grader(reply, reference).correct] == []


CHOSEN = [
    "The answer is B.\n\nAlternatives:\n- A: Italy\n- C: Switzerland",
    "The answer is B.\n\nNo, the others are elsewhere:\nA. Rome\nC. Bern",
    *("The answer is (B). Perhaps surprisingly, (A) is not it.", "So it is B."),
    *("The answer is B. Oslo. Actually, many people confuse it with A. Rome.", "It is B. I am not sure."),
    "The answer is B, but I'm not sure.",
    *(
        "The answer is B. Or, in other words, Oslo.",
        "Since A is false the answer is B.",
    ),
    *(
        "Because C is wrong the answer is B.",
        "As statement II is false the answer is B.",
    ),
    *(
        "Since the statement is not true the answer is B.",
        "I have no doubt the answer is B.",
    ),
    *(
        "There is no doubt that the answer is B.",
        "It's not difficult to see the answer is B.",
    ),
    *(
        "Since it isn't Italy the correct answer is B.",
        "As x does not change then the answer is B.",
    ),
    *(
        "So your answer is B.",
        "Here is your answer: B",
    ),
    *(
        "Your final answer: B",
        "The answer is Oslo.\n\nActually, Oslo has been the capital since 1814.",
    ),
    *(
        "The only option is B.",
        "Best choice: B",
    ),
    *("The most likely option is B.",),
]
NOT_CHOSEN = [
    *("I doubt that B. Oslo is the answer.", "Nobody thinks B. Oslo is correct."),
    *(
        "The answer is B. On reflection, C.",
        "Answer: B. But it could be C.",
    ),
    *(
        "The answer is B. Let me reconsider: C.",
        "Die Antwort ist B oder A.",
    ),
    *(
        "La réponse est B ou A.",
        "La respuesta es B o A.",
    ),
    *(
        "Ответ: B или A",
        "정답은 B 또는 A",
    ),
    *(
        "Die Antwort ist B. Oder A.",
        "Die Antwort ist B. Nein, A.",
    ),
    *(
        "La respuesta es B. O tal vez A.",
        "答えはB. Osloではありません。",
    ),
    *(
        "정답은 (B)이 아닙니다.",
        "\\boxed{!B}",
    ),
    *(
        "\\boxed{B'}",
        "\\boxed{B*}",
    ),
    *(
        "!B",
        "One option is B.",
    ),
    *(
        "I don't think the answer is B.",
        "I am not certain the answer is B.",
    ),
    *(
        "The answer is B.\n\nWait, it's in Italy, so A is right.",
        "The answer is B. Actually, Rome is the answer.",
    ),
    *(
        "The answer is B. Or A.",
        "The answer is B. Maybe A.",
    ),
]
COUNTED = [
    "The answer is 18. Let me recheck: 16 - 3 - 4 = 9 eggs.",
    *(
        "The cheaper option is 5 dollars. The difference is 18.",
        "One option is 20; the cheaper is 18.",
    ),
    *(
        "Option: 3 packs\nCost: 18",
        "The answer is 18. One option is 20 but that fails.",
    ),
    *(
        "The answer is 18. The remaining choice: 20.",
        "The price without tax is $18.",
    ),
    *(
        "The number of students who are not boys is 18.",
        "The number of eggs not sold is 18.",
    ),
    *(
        "The number of days it doesn't rain is 18.",
        "The number of students who didn't pass is 18.",
    ),
    *(
        "The cost except tax is 18",
        "The total of all but Tom is 18.",
    ),
    *(
        "He did not use 18 of them.",
        "Le prix sans taxe est 18.",
    ),
    *(
        "El precio sin impuestos es 18.",
        "Il n'y a pas 20 mais 18.",
    ),
    *(
        "18 is not sold.",
        "\\boxed{\\text{Price without tax is } 18}",
    ),
    *(
        "First, the answer to part 1 is 9. Next, 9*2 = 18.",
        "The answer to the first step is 9.\nThen 9*2=18 dollars.",
    ),
    *(
        "The answer is 9. But we need dollars, so 9*2 = 18.",
        "The answer is 9 times 2, which is 18.",
    ),
    *(
        "The answer is 9 x 2, or 18.",
        "Answer: 5 apples and 13 oranges. In total 18.",
    ),
    *(
        "**Answer**\n\n25% of the apples are red, so he has 40 left. 36 / 2 = 18",
        "24 correct answers * 2 points/answer = 48 points. 48 - 30 = 18. Total: 18",
    ),
    *("The answer is 18. But she has 5 left.",),
]
NOT_COUNTED = [
    *(
        "The cheaper option is 18. The difference is 5.",
        "option: 18\nCost 20",
    ),
    *(
        "First, the answer to part 1 is 18. Next, 9*2 = 9.",
        "Some say the answer is 18. I say 20.",
    ),
    *(
        "The answer is 18. Another possible answer is 20.",
        "I doubt that eighteen is the answer.",
    ),
    *(
        "Nobody thinks eighteen is correct.",
        "It is false that eighteen is correct.",
    ),
    *(
        "It's 19, but not 18",
        "It cannot be 18.",
    ),
    *(
        "The answer isn't 18.",
        "18 is not correct.",
    ),
    *(
        "Die Antwort ist nicht 18.",
        "答えは18ではありません。",
    ),
    *(
        "\\boxed{not 18}",
        "The answer is 18. Actually, 20.",
    ),
]
NAMED = [
    "The answer is Oslo. Oslo became the capital again in 1814.",
    "The answer is Oslo. Oslo lies at the northern end of the Oslofjord.",
    *(
        "The answer is Oslo. It is in the north.",
        "The answer is Oslo. However, it was once small.",
    ),
]
NOT_NAMED = [
    *(
        "One option is Oslo. I pick Bergen.",
        "One choice is Oslo.\nBut Bergen it is.",
    ),
    *(
        "Answer: Oslo\nAnother: Bergen",
        "The answer is Oslo; Bergen.",
    ),
    *(
        "The answer is Oslo. Bergen.",
        "Answer: Oslo. Alternative: Bergen.",
    ),
    *(
        "The answer is Oslo. If not, Bergen.",
        "Answer: Oslo\nAlternative answers: Bergen, Rome",
    ),
    *(
        "Some say the answer is Oslo. I say Bergen.",
        "The answer is Oslo — Bergen",
    ),
    *(
        "### Answer\n- Oslo\n- Rome and Bern and Kyiv and Paris",
        "Oslo — Bergen",
    ),
    *(
        "The answer is Oslo? Or Bergen?",
        "The answer is Oslo! Bergen!",
    ),
]


@pytest.mark.parametrize(
    ("name", "rights", "wrongs"),
    [("letter", CHOSEN, NOT_CHOSEN), ("number", COUNTED, NOT_COUNTED), ("text", NAMED, NOT_NAMED)],
)
def test_words_around_an_answer_are_read_as_a_human_reads_them(name, rights, wrongs):
    grader, reference, *_ = GRADERS[name]
    assert [reply for reply in rights if not grader(reply, reference).correct] == []
    assert [reply for reply in wrongs if grader(reply, reference).correct] == []


@pytest.mark.parametrize(
    ("gold", "reply"),
    [
        *(("J", "The answer is J. K. Rowling."), ("St", "The answer is St. Louis.")),
        *(
            ("Alien", "The answer is Alien. Resurrection"),
            ("Star Wars", "Star Wars — The Empire Strikes Back"),
        ),
    ],
)
def test_the_beginning_of_a_name_is_not_the_name(gold, reply):
    assert not TextGrader()(reply, gold).correct


@pytest.mark.parametrize("text", ['{"answer": 5}', "{'answer': 'x'}", "abc</s>", "Assistant: hi"])
def test_a_reply_that_is_the_reference_is_right(text):
    assert TextGrader()(text, [text]).correct


@pytest.mark.parametrize(
    "form",
    [
        "The answer is:\n@\nKyiv",
        "Answer: @\n\nThe Cure, Iron Maiden and Kiss of Kyiv",
        "Answer: @\n\n- Kyiv\n- Bern",
        "Answer: @. But it could be Kyiv.",
    ],
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
