import json

import pytest

from gem.agents import ScriptedAgent, SolverAgent
from gem.envs.kit.templates import read_toml
from gem.envs.seats.service_desk import HANG_UP, ServiceDesk
from gem.envs.seats.service_desk_world import SCENARIOS, TOOLS
from gem.errors import BadArgument
from gem.rollout import Job, rollout


def begun(scenario, seed=0):
    env = ServiceDesk(scenario=scenario)
    env.reset(seed=seed)
    env.step(env.solve())
    return env


def clerk(env, text):
    """The clerk acts; what it reads next, the customer's script having answered."""
    step = env.step({"agent": text})
    if env.acting == ("customer",):
        step = env.step(env.solve())
    return step


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def play(scenario, spoil=lambda text: text, seed=0):
    """The oracle serves, but for what `spoil` makes of its answers."""
    env = begun(scenario, seed)
    while True:
        step = clerk(env, spoil(env.expert_action("agent")))
        if step.done:
            return step


def test_there_are_at_least_twenty_kinds_of_cases_and_several_are_forbidden():
    assert len(SCENARIOS) >= 20
    rules = {begun(name).case.rule for name in SCENARIOS}
    assert {1, 2, 3, 4, 5, 6, 7, 8} <= rules
    texts = read_toml("gem.envs.seats", "service_desk.toml")
    assert texts.keys() == SCENARIOS.keys()
    assert {key for text in texts.values() for key in text} == {"request", "rule"}


@pytest.mark.parametrize("seed", range(5))
def test_who_tells_another_customers_booking_has_not_refused(seed):
    env = begun("others_booking", seed)
    other = env.desk.database["bookings"][env.case.other]

    def rewards(told):
        step = play("others_booking", lambda text: f"{told} {text}" if "rule 1" in text else text, seed)
        return step.rewards["agent"], step.infos["agent"]["refused"]

    assert rewards(f"It begins on day {other['first_day']} and costs {other['price']} euros.") == (0.0, False)
    assert rewards(f"I shall be here until day {other['first_day']}.") == (1.0, True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_oracle_serves_every_kind_of_case_and_half_a_service_does_not(scenario):
    for seed in range(5):
        step = play(scenario, seed=seed)
        assert step.rewards == {"agent": 1.0, "customer": 1.0}, seed
    assert step.infos["agent"] | {"stop": "solved"} == {
        "database": True,
        "told": True,
        "refused": True,
        "success": True,
        "stop": "solved",
    }
    skipped = play(scenario, lambda text: "One moment. Goodbye." if "tool_call" in text else text)
    assert skipped.rewards["agent"] == 0.0
    assert skipped.infos["agent"]["database"] is False


def test_a_figure_must_be_told_and_a_list_of_figures_tells_nothing():
    silent = play("cancel_early", lambda text: "That is done. Goodbye." if "figures" in text else text)
    assert (silent.infos["agent"]["told"], silent.infos["agent"]["database"]) == (False, True)
    every = "Goodbye: " + " ".join(map(str, range(300)))
    assert play("cancel_early", lambda t: every if "figures" in t else t).infos["agent"]["told"] is False


@pytest.mark.parametrize("scenario", ["price", "book", "move"])
def test_guesses_in_several_messages_tell_nothing(scenario):
    env = begun(scenario)
    while "figures" not in (text := env.expert_action("agent")):
        clerk(env, text)
    for first in range(1, 226, 25):
        step = clerk(env, f"Is it {', '.join(map(str, range(first, first + 25)))}?")
    step = step if step.done else clerk(env, "Goodbye.")
    assert (step.done, step.infos["agent"]["told"]) == (True, False)


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        *(
            (scenario, said)
            for scenario in ("cancel_early", "book", "insure", "faulty")
            for said in (
                "€{}.00",
                "{}.00 euros",
                "{},00 €",
                "{}EUR",
                "EUR{}",
                "{} Euro",
                "**€{}.00**",
                "€{},-",
            )
        ),
        *(("damage", said) for said in ("ticket {}", "#{}", "({})", "ticket **{}**")),
        ("cancel_today", "€{}.00"),
        ("cancel_today", "there is no refund"),
        ("cancel_today", "it won't be refunded"),
        ("cancel_today", "you get nothing back"),
        ("cancel_today", "the booking is non-refundable now"),
        ("cancel_today", "the refund is zero"),
    ],
)
def test_a_figure_may_have_cents_a_unit_or_no_digits(scenario, said):
    def say(text):
        return f"Done: {said.format(env.case.figures[0])}. Goodbye." if "figures" in text else text

    env = begun(scenario)
    assert play(scenario, say).infos["agent"]["told"]


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        *(
            ("cancel_early", said)
            for said in ("€{}.50", "{},50 €", "{}0", "1{}", "0.{}", "0,{}", "{}.005", "no refund", "{}th")
        ),
        ("cancel_today", "the full price is not lost, you get half of it"),
        ("cancel_today", "you do not get the full refund, only 50 percent"),
        ("cancel_today", "is there nothing else"),
        ("cancel_today", "0.5 euros"),
    ],
)
def test_another_figure_tells_nothing(scenario, said):
    def say(text):
        return f"Done: {said.format(env.case.figures[0])}. Goodbye." if "figures" in text else text

    env = begun(scenario)
    assert not play(scenario, say).infos["agent"]["told"]


def test_a_complete_account_tells_its_figures():
    def say(text):
        if "figures" not in text:
            return text
        (_, cancel, book), database = env.case.calls, env.case.database
        row, wish = database["bookings"][cancel[1]["booking_id"]], book[1]
        days, rate = wish["last_day"] - wish["first_day"] + 1, database["bikes"][wish["bike_id"]]["rate"]
        return (
            f"Booking {env.case.booking} of bicycle {row['bike']}, day {row['first_day']} to day "
            f"{row['last_day']}, is cancelled. Today is day 100: its first day is {row['first_day'] - 100} "
            f"days away, 100 percent of {row['price']} euros, €{row['price']}.00, is refunded. Booking B38 "
            f"of {wish['bike_id']}, day {wish['first_day']} to day {wish['last_day']}, {days} days at {rate} "
            f"euros a day, is {days} x {rate} = {days * rate} euros. Goodbye."
        )

    for seed in range(5):
        env = begun("cancel_and_book", seed)
        assert play("cancel_and_book", say, seed).rewards["agent"] == 1.0, seed


@pytest.mark.parametrize(
    "rule", ["rule #{}", "Rule **{}**", "rule ({})", "**Rule {}**", "rule no. {}", "RULE-{}"]
)
def test_a_rule_may_be_named_in_any_usual_form(rule):
    step = play("swap_kind", lambda t: f"Sorry, {rule.format(4)} forbids it." if "rule" in t else t)
    assert step.infos["agent"]["refused"]
    step = play("swap_kind", lambda t: f"Sorry, rule 4 and {rule.format(5)}." if "rule" in t else t)
    assert not step.infos["agent"]["refused"]


def test_a_refusal_names_the_rule_and_no_other():
    all_rules = "Not possible: rule 1, rule 2, rule 3, rule 4, rule 5, rule 6, rule 7, rule 8. Goodbye."
    step = play("weather", lambda text: all_rules if "rule" in text else text)
    assert (step.rewards["agent"], step.infos["agent"]["refused"]) == (0.0, False)


def test_thinking_is_neither_said_nor_graded():
    thinking = "<think>Which of rule 1, rule 2 and rule 3 applies? {}</think>"
    for scenario in SCENARIOS:
        step = play(scenario, lambda text: thinking.format("Hm. " * 500) + text)
        assert step.infos["agent"]["success"], scenario
    env = ServiceDesk()
    env.reset(seed=0)
    step = env.step({"customer": f"<think>At the end I write {HANG_UP}.</think>Hello."})
    assert step.obs["agent"].endswith('The customer says: "Hello."')
    assert env.step({"agent": "<thinking>My secret"}).obs["customer"].endswith('The clerk says: ""')


def test_the_policy_is_the_clerks_to_keep():
    def generous(text):
        return text.replace('"refund_percent": 50', '"refund_percent": 100')

    assert play("cancel_late", generous).infos["agent"]["database"] is False


def test_the_customer_pushes_once_after_a_refusal():
    env = begun("weather")
    step = clerk(env, "I am sorry, rule 6 does not allow that.")
    assert "exception" in step.obs["agent"]
    assert clerk(env, "It stays that way, sorry.").done


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>" + "[" * 3000 + "</tool_call>",
        "<tool_call>" + "1" * 100_000 + "</tool_call>",
        call("drop_tables"),
        call("verify_customer"),
        call("verify_customer", email=1, postcode=2),
        call("__init__", database={}),
        '<tool_call>{"name": ["get_booking"], "arguments": null}</tool_call>',
        call("verify_customer", email="x" * 200, postcode="1"),
        call("list_bookings"),
    ],
)
def test_a_bad_call_is_an_error_that_the_clerk_reads(text):
    env = begun("price")
    before = json.dumps(env.desk.database)
    step = env.step({"agent": text})
    assert '{"error": ' in step.obs["agent"]
    assert json.dumps(env.desk.database) == before


def test_numbers_are_bounded_and_true_is_none():
    env = begun("price")
    env.step({"agent": call("verify_customer", email=env.case.me["email"], postcode=env.case.postcode)})
    for percent in (-1, 101, 10**9, True, "50", 1.5):
        text = call("cancel_booking", booking_id=env.case.booking, refund_percent=percent)
        assert '{"error": ' in env.step({"agent": text}).obs["agent"]
    assert env.desk.database["bookings"] == env.goal["bookings"]


def test_the_clerk_cannot_hang_up_and_the_customer_can_be_any_agent():
    customer = ScriptedAgent(lambda ask: "Cancel my booking." if ask.turn == 0 else f"Bye. {HANG_UP}")
    desk = ScriptedAgent(lambda ask: f"Goodbye. {HANG_UP}")
    (episode,) = rollout([Job("multi:ServiceDesk-v0", 0)], {"agent": desk, "customer": customer})
    assert [turn.seat for turn in episode.turns] == ["customer", "agent", "customer"]
    assert HANG_UP not in episode.turns[2].observation
    assert episode.reward() == 0.0


def test_time_runs_out():
    mute = ScriptedAgent(lambda ask: "Hm.")
    (episode,) = rollout([Job("multi:ServiceDesk-v0", 0)], {"agent": mute, "customer": mute})
    assert episode.stop == "turn_budget"
    assert len(episode.turns) == 30


def test_the_scripted_id_is_won_by_its_oracle_and_unknown_scenarios_are_refused():
    episodes = rollout([Job("multi:ServiceDesk-v0-scripted", seed) for seed in range(60)], SolverAgent())
    assert all(episode.success for episode in episodes)
    with pytest.raises(BadArgument, match="weather"):
        ServiceDesk(scenario="wether")
    assert len(TOOLS) == 14


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("There is no refund.", True),
        ("You will not receive any refund.", True),
        ("I can't offer a refund.", True),
        ("Refund amount: zero.", True),
        ("It is cancelled. Please do not hesitate to call back.", False),
        ("There is no problem with your refund of 64 euros.", False),
        ("We cannot refund the full price, only 40 euros.", False),
        ("It is not refundable in full, but half of it is: 40 euros.", False),
    ],
)
def test_only_that_nothing_is_refunded_tells_nothing(said, told):
    step = play(
        "cancel_today", lambda text: text if text.startswith("<") or "?" in text else f"{said} Goodbye."
    )
    assert step.infos["agent"]["told"] is told
