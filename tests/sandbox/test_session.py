"""Sessions: cells, bash, files, images, and what ends them."""

from __future__ import annotations

import io
import select
import tarfile

import pytest

from gem.errors import BadArgument, CannotFork, EnvClosed, ToolError
from gem.sandbox.base import Budget, Status


@pytest.fixture
def session(sandbox):
    with sandbox.session() as opened:
        yield opened


def test_a_cell_shows_its_last_expression_and_keeps_its_names(session):
    assert session.execute("x = 2\nx + 1").value == "3"
    assert session.execute("print(x)").stdout == "2\n"
    assert session.execute("x + 1;").value is None
    assert session.execute("None").value is None
    assert session.execute("_ = 5; __name__").value == "'__main__'"


def test_an_error_keeps_the_session_and_shows_the_cells_alone(session):
    session.execute("def f(text):\n    import json\n    return json.loads(text)")
    result = session.execute("f('{')")
    assert (result.status, result.exit_code) == (Status.RE, 1)
    assert "<cell 1>" in result.stderr
    assert "return json.loads(text)" in result.stderr
    assert result.stderr.count("File ") == 3  # two cells, and where it was raised
    assert session.execute("f('[]')").value == "[]"
    assert session.execute("x = (").status is Status.CE
    assert session.execute("import sys; sys.exit(3)").exit_code == 3
    assert session.restarts == 0


def test_a_spent_wall_budget_interrupts_a_cell_and_keeps_the_state(session):
    session.execute("x = 1")
    result = session.execute("while True: pass", Budget(wall_s=0.3))
    assert result.status is Status.TLE
    assert session.execute("x").value == "1"


def test_a_cell_that_does_not_listen_ends_the_session_and_the_next_says_so(session):
    session.execute("x = 1")
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    result = session.execute(code, Budget(wall_s=0.3))
    assert (result.status, result.info["ended"]) == (Status.TLE, True)
    after = session.execute("x")
    assert after.info["restarted"]
    assert "NameError" in after.stderr
    assert session.restarts == 1
    assert "restarted" not in session.execute("1").info


@pytest.mark.parametrize(
    "code", ["import os; os._exit(0)", "import os\nos.write(3, b'{}' * 9); os.write(5, b'{}' * 9)"]
)
def test_a_cell_can_end_its_session_and_lie_about_itself_alone(session, code):
    assert session.execute(code).status is Status.RE
    assert session.execute("1").value == "1"


def test_output_beyond_the_budget_is_cut(session):
    result = session.execute("print('x' * 5000)", Budget(output_kb=1))
    assert (result.status, result.cut, len(result.stdout)) == (Status.OK, True, 1024)


def test_bash_keeps_folder_and_exported_variables(session):
    session.shell("mkdir d; cd d; export A='b  c'; B=1")
    result = session.shell('echo "$A|$B|$PWD"')
    assert result.stdout == "b  c||/sandbox/d\n"
    assert session.shell("exit 3").exit_code == 3
    assert session.shell('echo "$A"; read line || echo closed').stdout == "b  c\nclosed\n"


def test_a_home_that_was_closed_can_be_opened_by_the_next_command(session):
    assert session.shell("chmod 000 ~").ok
    assert session.shell("chmod 755 ~; cd; pwd").stdout == session.shell("pwd").stdout == "/sandbox\n"


def test_bash_is_given_any_text_as_it_is(session):
    assert session.shell("echo 'a'; echo \"$(echo b)\" # c\ncat <<X\n$((1+1))\nX\n").stdout == "a\nb\n2\n"
    assert session.shell("if").status is Status.RE
    assert session.shell("# " + "x" * 300_000 + "\necho done").stdout == "done\n"


def test_a_full_disk_is_emptied_by_a_command(sandbox):
    with sandbox.session(budget=Budget(disk_mb=2, inodes=64)) as session:
        full = session.shell("export KEPT=1; cat /dev/zero > big; i=0; while : > f$i; do i=$((i+1)); done")
        assert "No space left" in full.stderr
        assert session.shell("cd /tmp; echo x > x").status is Status.RE  # it is full indeed
        assert (
            session.shell("echo $KEPT $PWD; rm -r /sandbox/*; echo again > x; cat x").stdout
            == "1 /tmp\nagain\n"
        )


def test_the_environment_may_be_longer_than_a_pipe_holds(session):
    session.shell("export LONG=$(printf '%0100000d' 7) WORDS=$'\\xff ü \\'\\n'")
    assert session.shell('echo ${#LONG} "$WORDS"').stdout == "100000 \ufffd ü '\n\n"


def test_a_command_that_ends_early_or_closes_its_descriptors_holds_up_nobody(session):
    assert session.shell("exec 9>&-; exit 4").exit_code == 4
    assert session.shell("exec echo other").stdout == "other\n"
    assert session.shell("echo $#; kill -9 $$\n" + "# " + "x" * 200_000).signal == 9
    assert session.shell("").status is Status.OK


def test_a_spent_wall_budget_ends_the_command_alone(session):
    session.execute("x = 1")
    session.shell("export A=1")
    assert session.shell("sleep 60", Budget(wall_s=0.3)).status is Status.TLE
    assert session.shell("echo $A").stdout == "1\n"
    assert session.execute("x").value == "1"


def test_background_jobs_hold_up_nobody_and_a_clean_shell_ends_them(session):
    result = session.shell("sleep 600 & export PATH=/nowhere; cd /tmp; echo started")
    assert result.stdout == "started\n"
    count = "n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; echo $n $PWD"
    assert session.shell(count).stdout == "3 /tmp\n"
    assert session.shell(count, clean=True).stdout == "2 /sandbox\n"


def test_bash_cannot_reach_into_the_process_that_answers_for_it(session):
    reach = "for fd in /proc/1/fd/*; do readlink $fd; cat $fd; done; kill -9 1; echo x >/proc/1/mem"
    assert session.shell(f"cat /proc/1/environ; {reach}").stdout == ""
    assert session.shell("echo still here").stdout == "still here\n"


def test_files_go_in_and_out(session):
    data = bytes(range(256)) * 40_000
    session.write_file("a/b", data)
    assert session.read_file("a/b") == data
    session.write_file("run", b"#!/bin/sh\necho ran", mode=0o755)
    assert session.shell("./run").stdout == "ran\n"


def test_a_link_or_a_pipe_is_neither_read_nor_written(session):
    session.shell("ln -s /etc/passwd link; ln -s /tmp folder; mkfifo pipe; mkdir real")
    for path in ("link", "folder/x", "pipe", "real", "../x", "/etc/passwd", "nothing"):
        with pytest.raises(ToolError):
            session.read_file(path)
    for path in ("link", "folder/x", "pipe", "real", "../x", "/etc/x"):
        with pytest.raises(ToolError):
            session.write_file(path, b"x")


def test_a_snapshot_is_an_image_for_another_session(sandbox, session):
    session.shell("mkdir d; echo a > d/f; chmod 700 d/f; ln -s f d/l")
    with sandbox.session(image=session.snapshot()) as other:
        assert other.shell("cat d/l; stat -c %a d/f").stdout == "a\n700\n"
        other.shell("echo b > d/f")
    assert session.read_file("d/f") == b"a\n"


def test_an_image_is_a_folder_a_tar_or_a_mistake(sandbox, tmp_path):
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "f").write_text("x")
    with sandbox.session(image=tmp_path / "image", files={"g": b"y"}) as session:
        assert session.shell("cat f g").stdout == "xy"
    with pytest.raises(BadArgument, match="neither a folder nor a tar"):
        sandbox.session(image=tmp_path / "absent")
    with sandbox.session(image=b"no tar") as session, pytest.raises(BadArgument, match="cannot be laid out"):
        session.execute("1")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    with (
        sandbox.session(image=buffer.getvalue()) as session,
        pytest.raises(BadArgument, match="below the working"),
    ):
        session.execute("1")


def test_loopback_is_the_sessions_own_network_and_there_is_no_other(sandbox):
    code = (
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 8000))\n"
        "client = socket.create_connection(('127.0.0.1', 8000)); client.sendall(b'hi')\n"
        "server.accept()[0].recv(2)"
    )
    with sandbox.session(loopback=True) as session, sandbox.session(loopback=True) as other:
        assert session.execute(code).value == "b'hi'"
        assert (
            "ConnectionRefused"
            in other.execute("import socket\nsocket.create_connection(('127.0.0.1', 8000))").stderr
        )
        assert session.execute("socket.create_connection(('1.1.1.1', 80), 5)").status is Status.RE


def test_a_twin_has_the_same_state_and_goes_its_own_way(session):
    session.execute("import random\nx = [random.random()]")
    session.write_file("f", b"1")
    session.shell("echo 2 >> f; export A=3")
    with session.fork() as twin:
        assert twin.execute("x").value == session.execute("x").value
        twin.execute("x.append(1)")
        twin.shell("echo 4 >> f")
        assert twin.shell("echo $A; cat f").stdout == "3\n12\n4\n"
    assert session.execute("len(x)").value == "1"
    assert session.read_file("f") == b"12\n"


def test_what_depends_on_the_clock_cannot_be_forked(session):
    session.execute("import time; print(time.time())")
    with pytest.raises(CannotFork, match="another result"):
        session.fork()


def test_trusted_code_can_hold_a_database_and_be_fed_hostile_text(session):
    session.execute("import sqlite3; db = sqlite3.connect('data.db'); db.execute('create table t(x)')")
    session.write_file("query.sql", b"select '\"; import os; os._exit(1) #'")
    assert session.execute("db.execute(open('query.sql').read()).fetchall()").ok
    assert session.execute("db.commit()").ok
    assert session.read_file("data.db").startswith(b"SQLite format 3")


def test_a_closed_session_is_refused(sandbox):
    session = sandbox.session()
    session.execute("1")
    session.close()
    session.close()
    with pytest.raises(EnvClosed):
        session.execute("1")


def test_what_ran_on_is_not_heard_in_a_clean_command(sandbox):
    with sandbox.session() as session:
        session.shell(
            "(trap '' HUP; sleep 0.1; echo forged; echo forged >&2; touch done; sleep 600) & disown"
        )
        while not session.shell("test -e done").ok:
            pass
        session.shell("(while :; do echo forged; done) & disown")
        clean = session.shell("echo true", clean=True)
        assert (clean.stdout, clean.stderr) == ("true\n", "")


ORPHANS = """
import os
import select, subprocess, time
for _ in range(12):
    if (pid := os.fork()) == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
child = subprocess.Popen(["sh", "-c", "exit 3"])
def dead():
    stats = [open(f"/proc/{pid}/stat").read() for pid in os.listdir("/proc") if pid.isdigit()]
    return sum(stat.rpartition(")")[2].split()[0] == "Z" for stat in stats)
while dead() < 13:
    time.sleep(0.01)
"""


def test_orphans_are_collected_and_a_cells_own_child_is_left_to_it(session):
    assert session.execute(ORPHANS).ok
    result = session.execute("dead(), child.wait()")
    assert result.value == "(8, 3)"


# What a session leaves running. Its processes may sleep and serve; their CPU time while it idles is held.

SPARING = Budget(cpu_s=0.3, wall_s=10)
BURN = "while :; do (while :; do :; done); done"


def until_told(session):
    """Wait until the fork server has said something of the session's child."""
    assert select.select([session._child.status], [], [], 60)[0]


@pytest.mark.system
def test_processes_that_burn_while_the_session_idles_are_ended(sandbox):
    with sandbox.session(budget=SPARING) as session:
        session.execute("import subprocess\nx = 5")
        session.execute(f"left = subprocess.Popen(['bash', '-c', {BURN!r}])")
        until_told(session)
        told = session.execute("x, left.wait()")
        assert (told.value, told.info["leftovers"]) == ("(5, -9)", "ended: their cpu budget was spent")
        assert "leftovers" not in session.execute("x").info
        assert session.restarts == 0


@pytest.mark.system
def test_so_are_the_background_jobs_of_a_command(sandbox):
    with sandbox.session(budget=SPARING) as session:
        session.shell(f"export X=5; ({BURN}) &")
        until_told(session)
        told = session.shell("echo $X")
        assert (told.stdout, told.info["leftovers"]) == ("5\n", "ended: their cpu budget was spent")


@pytest.mark.system
def test_a_thread_that_burns_while_the_session_idles_ends_it(sandbox):
    with sandbox.session(budget=SPARING) as session:
        burn = "import threading\ndef burn():\n    while True: pass\n"
        session.execute(burn + "threading.Thread(target=burn, daemon=True).start()")
        until_told(session)
        told = session.execute("1")
        assert (told.status, told.info["why"], told.info["ended"]) == (Status.TLE, "idle", True)
        assert session.execute("2").value == "2"


@pytest.mark.system
def test_a_server_that_sleeps_and_many_short_cells_are_left_alone(sandbox):
    with sandbox.session(budget=SPARING) as session:
        session.execute("import subprocess\nserver = subprocess.Popen(['sleep', '600'])")
        spent = 0.0
        while spent < 0.8:  # of no cell's own budget, and not while it idles
            spent += session.execute("sum(range(300_000))").cpu_s
        assert not select.select([session._child.status], [], [], 1.5)[0]
        told = session.execute("server.poll()")
        assert (told.value, "leftovers" in told.info) == (None, False)
