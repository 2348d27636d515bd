"""tau2-bench's domains with a customer, against the package's own evaluator."""

import gc
import json
import pickle
import shutil

import pytest

import gem
from gem import worlds
from gem.agents import ScriptedAgent, SolverAgent
from gem.content import ToolCall, text_of
from gem.envs.bridges.specs import TAU2_DISPUTED, TAU2_DOMAINS
from gem.envs.kit.workspace import write_call
from gem.errors import NoVerdict
from gem.graders.base import Score
from gem.record import Reply
from gem.registry import FAMILIES
from gem.rollout import Job, rollout

if not FAMILIES["tau2"].is_here():
    pytest.skip("needs a world: gem-gym worlds --fetch tau2", allow_module_level=True)

UNUSED = ("litellm", "litellm.caching", "litellm.caching.caching", "litellm.main", "pandas")
"""What the package's evaluator imports for models and tables."""

BYE = "Goodbye. ###STOP###"


@pytest.fixture(scope="module")
def airline():
    return gem.make("tau2:airline")


def index_of(env, wanted):
    """Return the first task for which `wanted` holds."""
    return next(index for index, task in enumerate(env.tasks) if wanted(task.evaluation_criteria))


def play(env, index, actions):
    """Play pairs of a seat and an action; return the steps."""
    env.reset(env.seed_of(index))
    steps = []
    for seat, action in actions:
        assert env.acting == (seat,)
        steps.append(env.step({seat: action}))
    return steps


def solve(env, index):
    """Let oracle and script play; return the pairs of a seat and an action, and the last step."""
    env.reset(env.seed_of(index))
    actions = []
    while True:
        ((seat, action),) = env.solve().items()
        actions.append((seat, action))
        step = env.step({seat: action})
        if step.done:
            return actions, step


def ended(steps):
    return steps[-1].rewards["agent"], steps[-1].infos["agent"].get("rewards", {})


# -- equality with the package


class Evaluator:
    """The package's evaluator; its databases are read once, and copied."""

    def __init__(self, monkeypatch):
        with worlds._hollow_modules(UNUSED):
            from tau2.data_model import message, simulation
            from tau2.evaluator import evaluator
        from tau2.environment.db import DB

        self.messages, self.simulation, self.evaluator = message, simulation, evaluator
        read, load = {}, DB.load.__func__

        def load_once(cls, path):
            if path not in read:
                read[path] = pickle.dumps(load(cls, path))
            gc.disable()  # it would look through a hundred thousand new objects again and again
            try:
                return pickle.loads(read[path])
            finally:
                gc.enable()

        monkeypatch.setattr(DB, "load", classmethod(load_once))

    def __call__(self, env, actions, steps):
        """Return the reward and its parts for the same play."""
        from gem.tools.calls import find

        told = []
        for (seat, action), step in zip(actions, steps, strict=True):
            user = seat == "user"
            make = self.messages.UserMessage if user else self.messages.AssistantMessage
            role = "user" if user else "assistant"
            if not (found := find(action, ())):
                told.append(make(role=role, content=action))
                continue
            read, rest = [], text_of(step.obs[seat])
            for number, (each, about) in enumerate(zip(found, step.infos[seat]["tool_results"], strict=True)):
                call = self.messages.ToolCall(
                    id=str(number), name=each.call.name, arguments=dict(each.call.arguments), requestor=role
                )
                text, rest = rest[: about["shown"]], rest[about["shown"] + 1 :]
                read.append((call, text, about["error"]))
            told.append(make(role=role, tool_calls=[call for call, _, _ in read]))
            told += [
                self.messages.ToolMessage(id=call.id, role="tool", content=text, requestor=role, error=error)
                for call, text, error in read
            ]
        run = self.simulation.SimulationRun(
            id="0",
            task_id=env.task.id,
            start_time="",
            end_time="",
            duration=0,
            termination_reason=self.simulation.TerminationReason.USER_STOP,
            messages=told,
        )
        theirs = self.evaluator.evaluate_simulation(
            run, env.task, self.evaluator.EvaluationType.ALL, solo_mode=False, domain=env.name
        )
        return theirs.reward, {part.value: value for part, value in theirs.reward_breakdown.items()}


def four_plays(env, index):
    """Return the reference's play, wrong calls and words, a play without the last call, and silence."""
    gold, _ = solve(env, index)
    talk = [pair for pair in gold if pair[0] == "user"][:1]
    called = [at for at, (seat, action) in enumerate(gold) if seat == "agent" and "<tool_call>" in action]
    wrong = {
        "airline": [
            ("send_certificate", {"user_id": "mia_li_3668", "amount": 100}),
            ("get_user_details", {}),
        ],
        "retail": [("cancel_pending_order", {"order_id": "#W5918442", "reason": "no longer needed"})],
        "telecom": [("enable_roaming", {"customer_id": "C1001", "line_id": "L1002"})],
    }[env.name]
    calls = [("agent", write_call(*call)) for call in (*wrong, ("transfer_to_human_agents", {"x": 1}))]
    last = called[-1] if called else None
    partial = [pair for at, pair in enumerate(gold) if at != last]
    return gold, [*talk, *calls, ("agent", "It is 7 or 1,000."), ("user", BYE)], partial, [("user", BYE)]


@pytest.mark.slow
@pytest.mark.parametrize("domain", TAU2_DOMAINS)
def test_the_rewards_are_those_of_the_package_in_every_task(domain, monkeypatch):
    env, evaluate = gem.make(f"tau2:{domain}"), Evaluator(monkeypatch)
    before = env.unwrapped._data.database.get_hash()
    paid = []
    for index in range(len(env.tasks)):
        for actions in four_plays(env, index):
            steps = play(env, index, actions)
            assert ended(steps) == evaluate(env, actions, steps), env.task.id
            paid.append(ended(steps)[0])
    assert paid[::4] == [1.0] * len(env.tasks)
    assert sum(paid[1::4]) < sum(paid[3::4]) == len(TAU2_DISPUTED.get(domain, ())) or domain == "telecom"
    assert env.unwrapped._data.database.get_hash() == before


@pytest.mark.system
@pytest.mark.parametrize("domain", TAU2_DOMAINS)
def test_a_task_that_pays_for_nothing_is_disputed(domain):
    env = gem.make(f"tau2:{domain}")
    paid = [env.task.id for index in range(len(env.tasks)) if ended(play(env, index, [("user", BYE)]))[0]]
    assert tuple(paid) == TAU2_DISPUTED.get(domain, ())
    left = gem.make(f"tau2:{domain}-scripted", exclude="disputed").tasks
    assert len(left) == len(env.tasks) - len(paid)
    assert not {task.id for task in left} & set(paid)


# -- the rules


def test_what_is_said_and_the_database_are_paid_together(airline):
    index = index_of(airline, lambda criteria: criteria.communicate_info)
    actions, last = solve(airline, index)
    assert (last.rewards, last.infos["agent"]["rewards"]) == (
        {"agent": 1.0, "user": 1.0},
        {"DB": 1.0, "COMMUNICATE": 1.0},
    )
    fact = airline.task.evaluation_criteria.communicate_info[0]
    silent = [(seat, action.replace(fact, "some")) for seat, action in actions if seat == "agent"]
    reward, parts = ended(play(airline, index, [actions[0], *silent, ("user", BYE)]))
    assert (reward, parts) == (0.0, {"DB": 1.0, "COMMUNICATE": 0.0})


def test_a_wrong_change_of_the_database_is_not_paid_and_reaches_no_other_play(airline):
    index = index_of(airline, lambda criteria: len(criteria.actions) > 2)
    user = next(iter(airline.unwrapped._data.database.users))
    give = write_call("send_certificate", {"user_id": user, "amount": 50})
    actions, _ = solve(airline, index)
    steps = play(airline, index, [actions[0], ("agent", give), *actions[1:]])
    assert ended(steps)[1]["DB"] == 0.0
    assert solve(airline, index)[1].rewards["agent"] == 1.0


def test_a_fork_goes_its_own_way(airline):
    index = index_of(airline, lambda criteria: len(criteria.actions) > 2)
    actions, _ = solve(airline, index)
    play(airline, index, actions[:-2])
    twin = airline.fork()
    user = next(iter(airline.unwrapped._data.database.users))
    twin.step({"agent": write_call("send_certificate", {"user_id": user, "amount": 50})})
    for env, paid in ((twin, 0.0), (airline, 1.0)):
        for seat, action in actions[-2:]:
            step = env.step({seat: action})
        assert (step.done, step.rewards["agent"]) == (True, paid)


def test_a_world_can_be_sent_to_another_process(airline):
    actions, _ = solve(airline, 1)
    play(airline, 1, actions[:-1])
    state = pickle.loads(pickle.dumps(airline.get_state()))
    airline.reset(0)
    airline.set_state(state)
    assert airline.step(dict(actions[-1:])).rewards["agent"] == 1.0


def test_failed_calls_and_turns_end_the_talk_without_pay(airline):
    (*_, last) = play(airline, 0, [("user", "Hello."), ("agent", write_call("no_such_tool", {}) * 10)])
    assert last.done
    assert (last.rewards["agent"], last.infos["agent"]["stop"]) == (0.0, "failed")
    short = gem.make("tau2:airline", max_turns=2)
    *_, last = play(short, 0, [("user", "Hello."), ("agent", "Good day.")])
    assert (last.done, last.infos["user"]["stop"], last.rewards["user"]) == (True, "turn_budget", 0.0)


def test_who_says_nothing_keeps_the_turn(airline):
    *_, step = play(airline, 0, [("user", "Hello."), ("agent", "<think>What now?</think>")])
    assert airline.acting == ("agent",)
    assert "You said nothing" in step.obs["agent"]
    assert step.infos["agent"]["legal"] is False


def test_no_thinking_is_said(airline):
    for thinking in ("<thinking>My secret.</thinking>", "<think>My secret.</think>", "My secret.</think>"):
        *_, step = play(airline, 0, [("user", "Hello."), ("agent", f"{thinking}Good day.<think>My secret")])
        assert step.obs["user"].endswith("The agent says: Good day.")


def test_each_seat_has_its_own_tools_and_reads_its_own_results():
    env = gem.make("tau2:telecom")
    look = write_call("check_status_bar", {})
    first, second, third = play(env, 0, [("user", look), ("user", "I looked."), ("agent", look)])
    assert "Status Bar" in first.obs["user"]
    assert first.infos["user"]["tool_results"][0]["error"] is False
    assert "Status Bar" not in second.obs["agent"].partition("The customer says: I looked.")[2]
    assert third.infos["agent"]["tool_results"][0]["error"] is True
    assert {spec.name for spec in env.seat_tools["agent"]}.isdisjoint(
        spec.name for spec in env.seat_tools["user"]
    )
    assert "user" not in gem.make("tau2:retail").seat_tools


def test_the_script_uses_what_the_agent_names_and_ends_the_talk():
    env = gem.make("tau2:telecom-scripted")
    obs, _ = env.reset(0)
    assert "The customer says: Hello. This is my case" in obs
    told = env.step("Please look: check status bar, and then run_speed_test.").obs
    assert "check_status_bar: " in told
    assert "run_speed_test: " in told
    assert "Yes, please." in env.step("Is it better?").obs
    step = env.step("You will be transferred to a colleague.")
    assert (step.done, step.reward) == (True, 0.0)


def test_arithmetic_is_the_packages_and_is_not_pythons():
    from tau2.domains.airline.tools import AirlineTools
    from tau2.domains.retail.tools import RetailTools

    for kit in (AirlineTools, RetailTools):
        theirs, ours = kit.calculate.__wrapped__, kit.calculate
        for text in (
            *("2 + 2", "-3*4", "2 - -3 * 4", "(1.5 + .5) * 3.", "7 / 2 - 7 // 2", "2 ** 3 ** 2", "-2 ** 2"),
            *("2 ** -1", "10 * (3 - (4 + 5)) / 7", "1234.567", "-(-(5))", "007.5", "0", "8 // 3 * 2"),
            *("100 - 50 - 25", "64 / 4 / 2", "3 * -2 + +1", " 1 + 1 ", "0.1 + 0.2", "5 - 3 ** 2 * 2"),
        ):
            assert ours(None, text) == theirs(None, text), text
        for text in (
            "",
            "1 +",
            "(2",
            "2)",
            "1 2",
            "2(3)",
            "()",
            "* 2",
            "1..2",
            "07",
            "1e5",
            "abs(1)",
            "٣",
            "1 / 0",
        ):
            for calculate in (ours, theirs):
                with pytest.raises((ValueError, SyntaxError, TypeError, ZeroDivisionError)):
                    calculate(None, text) if text != "2(3)" or calculate is ours else float("x")
        for text in (
            "9 ** 9 ** 9",
            "9" * 101,
            "(" * 60 + "1" + ")" * 60,
            "-" * 60 + "1",
            "(-8) ** .5",
            "1" * 2000,
        ):
            with pytest.raises(ValueError, match=r"too large|Too many|at most"):
                ours(None, text)


def test_assertions_in_words_need_a_judge(tmp_path, monkeypatch, airline):
    from tau2.utils.utils import DATA_DIR

    place = tmp_path / "tau2/domains/retail"
    shutil.copytree(DATA_DIR / "tau2/domains/retail", place)
    shutil.copytree(DATA_DIR / "tau2/user_simulator", tmp_path / "tau2/user_simulator")
    tasks = json.loads((place / "tasks.json").read_text())[:1]
    tasks[0]["evaluation_criteria"] |= {
        "reward_basis": ["NL_ASSERTION"],
        "nl_assertions": ["The agent is polite.", "The agent says goodbye."],
    }
    (place / "tasks.json").write_text(json.dumps(tasks))
    monkeypatch.setenv("TAU2_DATA_DIR", str(tmp_path))
    talk = [("user", "Hello."), ("agent", "Goodbye."), ("user", BYE)]
    with pytest.raises(NoVerdict, match="NL_ASSERTION with a judge"):
        play(gem.make("tau2:retail"), 0, talk)

    def says_goodbye(answer, reference, question):
        said = "agent: Goodbye." in answer and question in ("The agent is polite.", "The agent says goodbye.")
        return Score(float(said), said)

    assert ended(play(gem.make("tau2:retail", judge=says_goodbye), 0, talk)) == (1.0, {"NL_ASSERTION": 1.0})
    assert play(airline, 0, talk)[0].infos["agent"] is not None


def test_hostile_values_do_no_harm(capfd, recwarn, airline):
    database = airline.unwrapped._data.database
    booking, card = next(
        (booking, card.id)
        for booking in database.reservations.values()
        for card in database.users[booking.user_id].payment_methods.values()
        if card.source == "credit_card"
    )
    same = {"reservation_id": booking.reservation_id, "payment_id": card, "nonfree_baggages": 0}
    deep = json.loads("[" * 300 + "]" * 300)
    wrong = [
        ("update_reservation_baggages", {**same, "total_baggages": "3"}),
        ("update_reservation_baggages", {**same, "total_baggages": deep}),
        ("get_reservation_details", {"reservation_id": booking.reservation_id}),
        ("get_user_details", {"user_id": ["a"]}),
        ("get_user_details", {"requestor": "user", "tool_name": "calculate", "self": 1}),
        ("calculate", {"expression": "().__class__"}),
        ("__init__", {}),
    ]
    steps = play(airline, 0, [("user", "Hello."), *(("agent", write_call(*call)) for call in wrong)])
    assert all(not step.done for step in steps)
    twin = airline.fork()
    for env in (airline, twin):
        env.step({"agent": "Goodbye."})
        last = env.step({"user": BYE})
        assert (last.rewards["agent"], last.infos["agent"]["rewards"]["DB"]) == (0.0, 0.0)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_a_model_can_be_the_customer_and_call_its_tools_natively():
    asks = []

    def answer(ask):
        asks.append(ask)
        if ask.turn == 1:
            return Reply("", tool_calls=(ToolCall("1", "check_status_bar", "{}"),))
        return Reply("My phone is broken." if ask.turn == 0 else BYE)

    agents = {
        "agent": ScriptedAgent(lambda ask: "What does the status bar show?"),
        "user": ScriptedAgent(answer),
    }
    (episode,) = rollout([Job("tau2:telecom", 0)], agents)
    assert {"check_status_bar", "run_speed_test"} <= {tool.name for tool in asks[0].tools}
    assert "###STOP###" in text_of(asks[0].messages[0].content)
    assert "Status Bar" in text_of(asks[2].messages[-1].content)
    assert episode.ends["user"].stop == "failed"


@pytest.mark.system
def test_transcripts_are_equal_on_all_hosts():
    jobs = [Job(f"tau2:{domain}", seed) for domain in TAU2_DOMAINS for seed in (0, 1)]
    played = [
        [episode.transcript_hash() for episode in rollout(jobs, SolverAgent(), host=host, concurrency=4)]
        for host in ("serial", "thread", "process")
    ]
    assert played[0] == played[1] == played[2]
