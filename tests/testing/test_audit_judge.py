import json
import math
import re
import threading

import pytest

from gem.cli import main
from gem.errors import AgentUnavailable, BadArgument
from gem.graders.functions import JudgeByName
from gem.graders.rubric import Rubric
from gem.testing.audit_judge import WORDS, Label, audit_judge, read_labels
from gem.testing.stub_server import StubServer, completion

ANSWERS = [
    *[Label("Capital of Norway?", "Oslo", "Oslo", True)] * 5,
    *[Label("Capital of Norway?", "Rome", "Oslo", False)] * 3,
    Label("Capital of Norway?", "Oslo, I think, or perhaps not", "Oslo", True),
    Label("Capital of Norway?", "It could well be Bergen or so", "Oslo", False),
]


def judge_by(rule):
    """Return the answer of a server: the score is the rule of the answer, and whether it stands first."""

    def answer(body):
        if len(body["messages"]) == 1:
            return "yes"  # to the question whether it is there
        system, user = (message["content"] for message in body["messages"][:2])
        tag = system.partition("blocks tagged ")[2].partition(",")[0]
        text = json.loads(re.search(rf"<ANSWER {tag}>\n(.*)\n</ANSWER", user)[1])
        verdict = {"tag": tag, "score": float(rule(text, user.startswith("<ANSWER"))), "why": ""}
        return completion(json.dumps(verdict)) | {"usage": {"prompt_tokens": 100, "completion_tokens": 10}}

    return answer


def audit(rule, grader=lambda judge: judge):
    with StubServer(judge_by(rule)) as server:
        judge = JudgeByName(f"stub@{server.base_url}")
        report = audit_judge(grader(judge), ANSWERS)
        judge.close()
    return report, server


def test_a_judge_is_compared_with_the_labels():
    report, server = audit(lambda text, first: len(text) > 10 or (text == "Oslo" and not first))
    assert (report.agreement.mean, report.agreement.n) == (0.9, 10)
    assert report.kappa.mean == pytest.approx((0.9 - 0.54) / (1 - 0.54))
    assert (report.rate(False).mean, report.rate(True).mean) == (0.25, 0.0)
    assert report.leniency.mean == pytest.approx(0.1)
    assert report.length[0] == pytest.approx(0.5)
    assert report.position.mean == pytest.approx(-0.5)
    assert (report.asks, report.model, len(server.requests)) == (20, "stub", 20)
    for interval in (report.agreement, report.kappa, report.leniency, report.position):
        assert interval.low < interval.mean <= interval.high
    text = report.describe()
    for line in (
        "10 verdicts on 10 labelled answers",
        "agreement                           90.0%",
        "Cohen's kappa                       0.78 (",
        "more with answers above 4 characters  +50.0 points",
        "verdicts that change with the order",
    ):
        assert re.sub(" +", " ", line) in re.sub(" +", " ", text)


def test_answers_are_judged_at_the_same_time():
    together = threading.Barrier(5, timeout=30)

    def rule(text, first):
        together.wait()
        return text.startswith("Oslo")

    report, server = audit(rule)
    assert (report.agreement.mean, report.kappa.mean, len(report.verdicts)) == (1.0, 1.0, 10)
    assert server.most_at_once >= 5


def test_what_has_no_verdict_is_counted_and_in_no_figure():
    report, _ = audit(lambda text, first: 1.0 if text != "Rome" else math.nan)
    assert (len(report.verdicts), len(report.missing)) == (7, 3)
    assert "3 without verdict, as: the judge gave no verdict twice" in report.describe()
    none, _ = audit(lambda text, first: math.nan)
    assert none.describe().startswith("judge:stub@")
    assert not none.verdicts


def test_a_rubric_is_audited_with_its_judges_and_without_an_order_where_it_has_none():
    report, server = audit(
        lambda text, first: text.startswith("Oslo"),
        lambda judge: Rubric({"text": "text", "judge": judge}, {"text": 0}, correct="judge"),
    )
    assert (report.agreement.mean, report.asks, len(server.requests)) == (1.0, 20, 20)
    plain = audit_judge(Rubric({"text": "text"}), ANSWERS)
    assert (plain.position, plain.asks, plain.agreement.mean) == (None, 0, 0.9)
    assert "verdicts that change with the order" in plain.describe()


def test_a_file_of_labels_without_a_column_is_refused_once(tmp_path):
    file = tmp_path / "labels.csv"
    file.write_text("answer,right\na,1\nb,0\n")
    with pytest.raises(BadArgument, match=r"has no column 'label'; .*It has: 'answer', 'right'\.$"):
        read_labels(file)


@pytest.mark.parametrize("name", ["labels.csv", "labels.jsonl"])
def test_labels_are_read_and_all_bad_rows_listed(tmp_path, name):
    file = tmp_path / name
    rows = [("q", "a", "r", "right"), ("q", "b", "r", "0"), ("q", "c", "r", "Yes")]
    if name.endswith("csv"):
        file.write_text("question,answer,reference,label\n" + "\n".join(map(",".join, rows)) + "\n")
    else:
        keys = ("question", "answer", "reference", "label")
        file.write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows))
    assert [label.right for label in read_labels(file)] == [True, False, True]
    assert read_labels(file)[1] == Label("q", "b", "r", False)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"answer": "a", "label": 1}\n{"answer": "a", "label": 0.5}\n{"label": true}\n7\n')
    with pytest.raises(
        BadArgument, match=r"(?s)3 of 4 rows.*line 2: the label is 0.5.*line 3.*no answer.*line 4"
    ):
        read_labels(bad)
    assert {*WORDS.values()} == {True, False}


def test_the_command_prints_the_figures_and_the_cost(tmp_path, capsys, monkeypatch):
    (tmp_path / "l.jsonl").write_text(
        "".join(
            json.dumps({"answer": each.answer, "reference": "Oslo", "label": each.right}) + "\n"
            for each in ANSWERS
        )
    )
    (tmp_path / "prices.toml").write_text('[models."stub"]\ninput = 1000\noutput = 1000\n')
    monkeypatch.chdir(tmp_path)
    with StubServer(judge_by(lambda text, first: text.startswith("Oslo"))) as server:
        command = ["audit", "--labels", "l.jsonl", "--judge", f"stub@{server.base_url}"]
        assert main([*command, "--prices", "prices.toml"]) == 0
        assert len(server.requests) == 21  # one to see whether it is there
        said = capsys.readouterr().out
        assert "agreement" in said
        assert "100.0% (72.2% to 100.0%)" in said
        assert "20 asks, 2,000 prompt tokens, 200 completion tokens: $2.2000" in said
        (tmp_path / "r.toml").write_text(
            f'correct = "j"\nj = {{grader = "judge:stub@{server.base_url}", prompt = "Accept Oslo."}}\n'
        )
        assert main(["audit", "--labels", "l.jsonl", "--judge", "r.toml"]) == 0
        assert server.requests[-1]["messages"][0]["content"].startswith("Accept Oslo.")
    assert main(["audit", "--judge", "m"]) == 2
    assert "--judge MODEL and --labels FILE go together" in capsys.readouterr().err


def test_a_judge_that_is_not_there_is_found_out_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(JudgeByName, "ping", lambda self: (_ for _ in ()).throw(AgentUnavailable("gone")))
    (tmp_path / "l.jsonl").write_text('{"answer": "a", "label": 1}\n')
    assert main(["audit", "--labels", str(tmp_path / "l.jsonl"), "--judge", "m"]) != 0
