"""Memory that cannot hide: what is counted, refused and granted, and the control groups around it."""

import contextlib
import json
import mmap
import os
import re
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from errno import EOPNOTSUPP
from pathlib import Path

import pytest
from waiting import until

from gem.graders.code import CodeGrader
from gem.graders.code_tests import CodeTests
from gem.sandbox import cgroups, memory, seccomp
from gem.sandbox.base import Budget, Case, Status
from gem.sandbox.choice import open_sandbox
from gem.sandbox.client import ZygoteSandbox
from gem.sandbox.judging import Judging
from gem.sandbox.program import list_descendants
from gem.sandbox.selftest import self_test

if not sys.platform.startswith("linux"):
    pytest.skip("these are about Linux", allow_module_level=True)

HERE = Path(__file__).parent / "abuse"
ROOT = str(HERE.parents[2])
sys.path.insert(0, str(HERE))
try:
    from memory_ways import BUDGET, PACED, PRELUDE, WAYS, begin_paced
finally:
    sys.path.remove(str(HERE))

REFUSED = list(WAYS)[list(WAYS).index("memory files") :]
SMALL = Budget(memory_mb=128, cpu_s=10, wall_s=20)


@pytest.fixture(scope="module", params=["userns", "bwrap-slots", "landlock"])
def watched(request):
    """A sandbox whose memory the watch alone holds."""
    if not self_test(request.param).passed:
        pytest.skip(f"not checked on {request.param}: {self_test(request.param).why_not}")
    with open_sandbox(request.param, begin=("bare",), control_groups=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def grouped():
    """A sandbox of the default backend with control groups."""
    if cgroups.find() is None:
        pytest.skip("no control group that holds memory can be made here")
    if not self_test("userns").passed:
        pytest.skip(f"not checked: {self_test('userns').why_not}")
    with open_sandbox("userns", begin=("bare",)) as opened:
        yield opened


# ------------------------------------------------------------------------------------- shared memory

HIDING = {
    "let go of": "at and libc.madvise(at, 16 * MB, 4)",
    "all but a page unmapped": "at and libc.munmap(at + 4096, 16 * MB - 4096)",
    "shrunk": "at and libc.mremap(at, 16 * MB, 4096, 1, None)",
}


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:programs run on the backend")
@pytest.mark.parametrize("way", HIDING)
def test_shared_memory_cannot_hide(watched, way):
    code = f"""
n = 0
while n < 40:
    at = map(16 * MB, 0x21)
    if at is None: break
    libc.memset(at, 1, 16 * MB)
    {HIDING[way]}
    n += 1
print(n)
"""
    ran = watched.run(PRELUDE + code, budget=SMALL)
    assert ran.status is Status.MLE or 5 <= int(ran.stdout) <= 8, ran


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:programs run on the backend")
def test_shared_memory_can_be_had_again(watched):
    code = """
import mmap, threading, time
def mapped():
    for _ in range(100):
        try: return mmap.mmap(-1, 20 << 20)
        except OSError: time.sleep(0.02)  # on a busy machine nobody could tell in time that it is free
    raise SystemExit("never had again")
def often():
    for _ in range(60):
        with mapped() as own: own[0] = 1
often()
both = [threading.Thread(target=often) for _ in range(3)]
for one in both: one.start()
for one in both: one.join()
print("fine")
"""
    ran = watched.run(code, budget=SMALL)
    assert (ran.stdout, ran.stderr) == ("fine\n", "")


def test_shared_memory_is_shared(sandbox):
    code = """
import mmap, os
page = mmap.mmap(-1, 4096)
if os.fork() == 0:
    page[0] = 42
    os._exit(0)
os.wait()
print(page[0])
"""
    assert sandbox.run(code).stdout == "42\n"


def test_what_forks_share_counts_once(sandbox):
    """A pool of workers over one table is honest: 300 MiB, counted in each, of which there are 50."""
    code = """
import os, time
table = bytearray(b'x') * (50 << 20)
for n in range(5):
    if os.fork() == 0:
        time.sleep(0.4)
        os._exit(table[n] - 120)
print([os.wait()[1] for n in range(5)])
"""
    ran = sandbox.run(code, budget=SMALL)
    assert (ran.status, ran.stdout) == (Status.OK, "[0, 0, 0, 0, 0]\n"), ran


def test_zeros_can_be_read_and_not_mapped(sandbox):
    code = """
import mmap, os
fd = os.open("/dev/zero", os.O_RDWR)
print(os.read(fd, 4))
try: mmap.mmap(fd, 4096)
except OSError as error: print("refused")
"""
    assert sandbox.run(code).stdout == "b'\\x00\\x00\\x00\\x00'\nrefused\n"


def test_an_account_grants_what_it_may(monkeypatch):
    """What is alive was granted once each: it counts as the longest of what was granted."""
    account = memory.Account(100, granted=90)
    account.lengths.update({50: 1, 20: 2})
    monkeypatch.setattr(memory, "LOOK_S", 60.0)
    monkeypatch.setattr(memory, "shared_memory", {1: {b"7"}, 2: {b"7", b"8"}}.get)
    account._take_back([1, 2], lambda: [1, 2])
    assert account.granted == 70
    account._take_back([1], lambda: [1, 3])  # a process was born meanwhile
    assert account.granted == 70
    account._take_back([1, 4], lambda: [1, 4])  # one that hides
    assert account.granted == 70
    account._take_back([1], lambda: [1])
    assert account.granted == 50
    monkeypatch.setattr(memory, "shared_memory", lambda pid: set())
    account._take_back([1], lambda: [1])
    assert (account.granted, account.lengths) == (0, {})


@pytest.fixture
def two(monkeypatch):
    """Two processes whose maps are locked until the event, and what each holds of 100 bytes in all."""
    gate, sizes = threading.Event(), {1: 60, 2: 60}
    monkeypatch.setattr(memory, "measure", sizes.get)
    monkeypatch.setattr(memory, "in_files", lambda *_: 0)
    monkeypatch.setattr(memory, "have_one_memory", lambda *_: False)
    monkeypatch.setattr(memory, "measure_share", lambda *_: gate.wait(60) and 10)
    monkeypatch.setattr(memory, "shared_memory", lambda pid: gate.wait(60) and set())
    yield gate, sizes
    gate.set()


@pytest.mark.parametrize("granted", [0, 50])
def test_a_process_that_keeps_its_maps_locked_holds_nobody_up(two, granted, monkeypatch):
    """A thread without time may hold that lock; the fork server has others' deadlines to keep."""
    account = memory.Account(100, granted=granted)
    threads = threading.active_count()

    def used():
        return account.measure_use([1, 2], lambda: [1, 2], 40)

    for _ in range(5):
        assert used() == 100  # it cannot be told, and is no verdict
    assert threading.active_count() <= threads + 1
    with monkeypatch.context() as patch:
        patch.setattr(memory, "PATIENCE_S", 0.0)
        assert used() == 120 + granted  # no honest one holds it for long
    two[0].set()
    assert until(lambda: (size := used()) != 100 and size) == 20


def test_a_look_that_took_long_says_nothing_once_the_sum_was_within_the_limit(two):
    """What it measured is over, and by now there may be more that is shared."""
    gate, sizes = two
    account = memory.Account(100)
    assert account.measure_use([1, 2], lambda: [1, 2], 0) == 100
    sizes[2] = 30
    assert account.measure_use([1, 2], lambda: [1, 2], 0) == 90
    gate.set()
    until(lambda: not account.parts._done.locked())
    sizes[2] = 70
    account.parts._results[0] = 130, 0  # as those two held then
    assert account.measure_use([1, 2], lambda: [1, 2], 0) == 100
    assert until(lambda: (size := account.measure_use([1, 2], lambda: [1, 2], 0)) != 100 and size) == 20


def test_what_grows_behind_a_lock_is_counted_as_it_looks(two):
    _, sizes = two
    account = memory.Account(100)
    assert account.measure_use([1, 2], lambda: [1, 2], 40) == 100
    sizes[2] += 50
    assert account.measure_use([1, 2], lambda: [1, 2], 90) == 100
    sizes[3] = 60  # a fork, which shares what it holds
    assert account.measure_use([1, 2, 3], lambda: [1, 2, 3], 90) == 100
    sizes[2] += 1
    assert account.measure_use([1, 2, 3], lambda: [1, 2, 3], 90) == 231


def test_parts_that_grew_while_they_were_added_up_are_told_anew(monkeypatch):
    """Where a pool of workers ends, what was shared by four is shared by three, then by two."""
    sizes = {1: 60, 2: 60, 3: 60, 4: 60, 5: 0}  # the last ended before, and nobody waited for it

    def apart(pid, otherwise):
        alive = sum(map(bool, sizes.values()))
        part = sizes[pid] and 72 // alive + 10
        sizes[4] = 0 if pid == 2 else sizes[4]
        sizes[3] = 0 if pid == 3 else sizes[3]
        return part

    monkeypatch.setattr(memory, "measure", sizes.get)
    monkeypatch.setattr(memory, "in_files", lambda *_: 0)
    monkeypatch.setattr(memory, "have_one_memory", lambda *_: False)
    monkeypatch.setattr(memory, "measure_share", apart)
    monkeypatch.setattr(memory, "LOOK_S", 60.0)
    account = memory.Account(85)

    def used():
        return account.measure_use(list(sizes), lambda: list(sizes), 0)

    assert used() == 85  # 28 and 28 and 34: no moment's sum, and no verdict
    sizes.update({1: 60, 2: 60, 3: 60, 4: 60})
    monkeypatch.setattr(memory, "measure_share", lambda *_: 28)
    assert used() == 112


def test_an_old_look_takes_nothing_back_that_was_granted_since(monkeypatch):
    account = memory.Account(100, granted=90)
    account.lengths.update({90: 1})
    gate = threading.Event()
    monkeypatch.setattr(memory, "shared_memory", lambda pid: gate.wait(60) and set())
    assert not account._take_back([1], lambda: [1])
    account.granted, account.grants = 95, account.grants + 1
    account.lengths.update({5: 1})
    gate.set()
    while account.granted == 95 and not account._take_back([1], lambda: [1]):
        assert account.granted == 95  # of the look that began before
    assert account.granted == 0  # of the one that began after


# ------------------------------------------------------------------------------------ other hideouts


def run_cell(sandbox, code):
    with contextlib.closing(sandbox.session(budget=BUDGET)) as session:
        return session.execute(code)


def run_command(sandbox, code):
    with contextlib.closing(sandbox.session(budget=BUDGET)) as session:
        session.write_file("main.py", code.encode())
        return session.shell("python3 main.py")


def judge_one(sandbox, code):
    return sandbox.judge(code, [Case(stdin=b"")], budget=BUDGET)[0]


USES = {
    "run": lambda sandbox, code: sandbox.run(code, budget=BUDGET),
    "cell": run_cell,
    "command": run_command,
    "judged": judge_one,
}


class Outside:
    """The most MiB that all processes below this one held at a time, as their parts of memory say."""

    def __enter__(self):
        self.before, self.peak_mb, self._over = self._look(), 0.0, threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _go_on(self):
        while not self._over.wait(0.005):
            self.peak_mb = max(self.peak_mb, (self._look() - self.before) / 1024)

    def _look(self):
        counted: list[int] = []
        for pid in list_descendants(os.getpid()):
            if not any(memory.have_one_memory(pid, other) for other in counted):
                counted.append(pid)
        return sum(map(self._held, counted))

    def _held(self, pid):
        for task in memory._list_threads(pid):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/task/{task}/smaps_rollup").read_text()
                return sum(map(int, re.findall(r"^(?:Pss_Anon|Pss_Shmem|SwapPss): +(\d+)", text, re.M)))
        return 0


@pytest.mark.filterwarnings("ignore:programs run on the backend")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("way", PACED)
@pytest.mark.system
def test_no_way_takes_half_as_much_again(watched, way, use):
    alone = watched.backend == "landlock"  # which lets no program start another: the kernel holds the one
    if alone and use == "command":
        pytest.skip("no commands without processes")
    for seconds in (1.6, 4):  # on a busy machine one may end before the next look, which may come late
        with Outside() as outside:
            ran = USES[use](watched, begin_paced(seconds) + PACED[way])
        taken = max(outside.peak_mb, 4 * ran.stdout.count("|"))
        within = outside.peak_mb <= 1.25 * BUDGET.memory_mb  # which the watch may allow
        held = ran.status is Status.MLE or "refused" in ran.stdout or within
        if held and taken <= 1.5 * BUDGET.memory_mb:
            break
    assert taken <= 1.5 * BUDGET.memory_mb, ran
    assert held, (ran, outside.peak_mb)
    assert watched.run("print(1)").stdout == "1\n"


@pytest.mark.filterwarnings("ignore:programs run on the backend")
@pytest.mark.parametrize("way", REFUSED)
def test_kinds_that_are_refused(watched, way):
    assert watched.run(PRELUDE + WAYS[way], budget=BUDGET).stdout.startswith("refused")


@pytest.mark.parametrize(
    "way",
    [
        "programs that are started afresh",
        "page tables: a page in every GiB, read only",
        "sockets, a byte at a time",
    ],
)
def test_what_the_size_of_processes_does_not_show_is_counted(sandbox, way):
    ran = sandbox.run(PRELUDE + WAYS[way], budget=replace(BUDGET, memory_mb=96))
    assert ran.status is Status.MLE


def test_what_is_held_is_read_from_proc():
    before = memory.measure(os.getpid())
    # A bytearray may lie where the allocator holds memory already.
    with mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE) as block:
        block.write(b"x" * len(block))
        assert memory.measure(os.getpid()) - before > 30 << 20
        assert memory.measure_share(os.getpid(), 0) > 30 << 20
    assert memory.measure(1 << 22) == 0
    assert memory.measure_share(1 << 22, 5) == 0  # it is gone


VFORKS = """
import ctypes, subprocess, sys
libc, x = ctypes.CDLL(None), bytearray(b"x") * (160 << 20)
for _ in range(30): subprocess.run(["/bin/true"])
stacks = [ctypes.create_string_buffer(1 << 18) for _ in range(2)]
for stack, flags in zip(stacks, (0x100 | 17, 0x4100 | 17)):  # CLONE_VM, and CLONE_VFORK with it
    at = ctypes.c_void_p((ctypes.addressof(stack) + (1 << 17)) & -64)
    assert libc.clone(ctypes.cast(libc.usleep, ctypes.c_void_p), at, flags, ctypes.c_void_p(300_000)) > 0
print("fine")
"""


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:programs run on the backend")
def test_a_memory_that_processes_have_in_common_counts_once(watched):
    """A child has its parent's memory until it starts a program, if it is made as subprocess does."""
    if watched.backend == "landlock":
        pytest.skip("no processes")
    if not memory.have_one_memory(os.getpid(), os.getpid()):
        pytest.skip("this kernel does not say who has one memory")
    for ask in (USES["run"], USES["judged"]):
        ran = ask(watched, VFORKS)
        assert (ran.status, ran.stdout) == (Status.OK, "fine\n"), ran


def test_processes_that_ended_have_no_memory_in_common():
    assert memory.have_one_memory(os.getpid(), os.getpid()) in (True, memory._KCMP is None)
    assert not memory.have_one_memory(os.getpid(), os.getppid())
    ended = [subprocess.Popen([sys.executable, "-c", ""]) for _ in range(2)]
    for process in ended:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not memory.have_one_memory(ended[0].pid, ended[1].pid)
    for process in ended:
        process.wait()


ROTATING = """
import ctypes, os, threading, time
libc, kept = ctypes.CDLL(None), []
def turn(left):
    kept.append(bytearray(b"x") * (1 << 20))
    if left: threading.Thread(target=turn, args=(left - 1,)).start()
    else: print("full", flush=True); rest()
def rest():
    time.sleep(0.0002)
    threading.Thread(target=rest).start()
threading.Thread(target=turn, args=(64,)).start()
libc.syscall(ctypes.c_long({exit}), 0)
"""


def test_what_is_held_is_read_through_threads_that_come_and_go():
    """Each thread starts the next one and ends, so whoever looks at one of them may come too late."""
    code = ROTATING.format(exit=60 if os.uname().machine == "x86_64" else 93)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "full\n"
            assert memory.measure(process.pid) == 0
            for _ in range(200):
                thread, size = memory.measure_by_threads(process.pid) or (0, 1 << 40)
                assert thread != process.pid
                assert size > 64 << 20
        finally:
            process.kill()
    assert memory.measure_by_threads(process.pid) == (process.pid, 0)


def test_who_hides_behind_new_threads_is_over_the_limit(monkeypatch):
    tasks = iter(range(10, 10**6))
    monkeypatch.setattr(memory, "measure", lambda pid: 0)
    monkeypatch.setattr(memory, "_list_threads", lambda pid: [pid, next(tasks)])
    monkeypatch.setattr(memory, "_read", lambda path: b"Name:\tx\nThreads:\t3\n")
    assert memory.measure_by_threads(1) is None
    assert memory.Account(100).measure_use([1], lambda: [1], 0) == 101
    monkeypatch.setattr(memory, "_list_threads", lambda pid: [1, 2, 3])  # all of them are ending
    assert memory.measure_by_threads(1) == (1, 0)


def test_a_first_thread_that_has_ended_hides_no_shared_memory(sandbox):
    code = """
import ctypes, mmap, os, threading
kept = []
def keep():
    for _ in range(40):
        try: kept.append(mmap.mmap(-1, 20 << 20))
        except OSError: break
    os.write(1, str(len(kept)).encode())
    os._exit(0)
pid = os.fork()
if pid == 0:
    threading.Thread(target=keep).start()
    ctypes.CDLL(None).syscall(ctypes.c_long(60 if os.uname().machine == "x86_64" else 93), 0)
os.waitpid(pid, 0)
"""
    assert int(sandbox.run(code, budget=SMALL).stdout) <= 6


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_memory(machine):
    from tests.sandbox.test_seccomp import verdict

    audit, column = seccomp.MACHINES[machine]
    program = seccomp.memory_program(machine=machine)
    mapping, option, read = ((9, 222), (54, 208), (0, 63))

    def of(call, *args):
        return verdict(program, audit, call[column], (*args, *[0] * (6 - len(args))))

    allow, pretend, refuse, ask = 0x7FFF0000, 0x00050000, 0x00050001, 0x7FC00000
    for flags, wanted in (
        (0x22, allow),  # private, anonymous
        (0x01, allow),  # shared, of a file
        (0x21, ask),
        (0x23, ask),
        (0x28021, ask),
        (0x40022, refuse),  # huge pages
        (0x40021, refuse),
        (1 << 32 | 0x22, allow),
    ):
        assert of(mapping, 0, 4096, 3, flags) == wanted, hex(flags)
    assert of(option, 3, 1, 7) == of(option, 3, 1, 8) == pretend
    assert of(option, 3, 1, 2) == of(option, 3, 6, 7) == allow
    assert of(read, 3) == of((188, 5)) == allow
    slots = seccomp.memory_program(attributes=False, machine=machine)
    assert verdict(slots, audit, (188, 5)[column], [0] * 6) == 0x00050000 | EOPNOTSUPP
    assert verdict(slots, audit, mapping[column], [0, 0, 0, 0x21, 0, 0]) == ask
    threads, clone = seccomp.memory_program(threads=False, machine=machine), (56, 220)[column]
    for flags, wanted in ((0x3D0F00, ask), (17, allow), (0x8011, allow)):
        assert verdict(threads, audit, clone, [flags, 0, 0, 0, 0, 0]) == wanted, hex(flags)
        assert verdict(program, audit, clone, [flags, 0, 0, 0, 0, 0]) == allow
    other = 0x40000003
    assert (
        verdict(program, other, mapping[column], [0, 0, 0, 0x21, 0, 0]) == allow
    )  # ended by the other filter


# ------------------------------------------------------------------------------------ control groups


def test_a_control_group_ends_a_burst(grouped):
    assert "control group" in grouped.report()["memory"]
    ran = grouped.run(PRELUDE + WAYS["anonymous, in 12 processes"], budget=BUDGET)
    assert ran.status is Status.MLE
    assert grouped.run("print(1)").stdout == "1\n"


BURST = """
import os
n, ends = int(input()), os.pipe()
pid = os.fork()
x = bytearray(b"x") * (n << 20)
os.close(ends[1])
pid and os.wait() or os.read(ends[0], 1)  # until both hold theirs
"""


def test_a_case_that_bursts_its_group_is_told_so(grouped):
    cases = [Case(stdin=b"1\n"), Case(stdin=b"100\n"), Case(stdin=b"2\n")]
    budget = replace(BUDGET, memory_mb=128, disk_mb=1)
    statuses = [result.status for result in grouped.judge(BURST, cases, budget=budget)]
    assert statuses == [Status.OK, Status.MLE, Status.OK]


def test_a_case_pays_for_no_memory_of_the_case_before(sandbox, monkeypatch):
    """The fork server may end a judge for what it looked at while the case before still ran."""
    hear, ends = Judging._hear, []

    def ended_late(judging, child, wire, patience_s):
        if judging.done and not ends:
            ends.append(
                {"status": 9, "why": "memory", "why_at": 1.0, "cpu_s": 0.0, "wall_s": 0.0, "memory": 1}
            )
            return None, [], ends[0]
        return hear(judging, child, wire, patience_s)

    monkeypatch.setattr(Judging, "_hear", ended_late)
    results = sandbox.judge("print(input())", [Case(stdin=b"1"), Case(stdin=b"2")])
    assert [(result.status, result.stdout) for result in results] == [("OK", "1\n"), ("OK", "2\n")]
    assert ends


AT_ITS_LIMIT = """
import time
kept, size = [], 64 << 20
while size >= 4096:  # until not one more page can be had
    try:
        kept.append(bytearray(size))
        kept[-1][::4096] = b"x" * len(kept[-1][::4096])
    except MemoryError:
        size //= 2
time.sleep(0.3)  # through several looks of the watch
kept.clear()
print("goes on")
"""


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:programs run on the backend")
@pytest.mark.parametrize("memory_mb", [32, 256])
def test_a_program_that_goes_on_at_its_limit_is_within_it(watched, memory_mb):
    budget, files = Budget(memory_mb=memory_mb, cpu_s=20, wall_s=60), {"data": bytes(8 << 20)}
    called = "def f():\n" + textwrap.indent(AT_ITS_LIMIT, "    ") + "    return 1\n"
    for code, case in ((AT_ITS_LIMIT, Case(stdin=b"")), (called, Case(call="f", args=()))):
        results = watched.judge(code, [case] * 3, budget=budget, files=files)
        assert [result.status for result in results] == [Status.OK] * 3, results
    tests = CodeTests("asserts", inputs=["assert f() == 1"] * 3, name="f")
    graded = CodeGrader(watched, budget=budget)(f"```python\n{called}```", tests)
    assert graded.correct, graded.info
    assert watched.run(AT_ITS_LIMIT, budget=budget, files=files).stdout == "goes on\n"


@pytest.fixture
def own_place(monkeypatch):
    """A folder for the groups of this test alone, itself a group."""
    place = cgroups.find()
    if place is None:
        pytest.skip("no control group that holds memory can be made here")
    folder = Path(place.folder, f"measure-{os.getpid()}")
    folder.mkdir()
    own = replace(place, folder=str(folder))
    monkeypatch.setattr(cgroups, "find", lambda: own)
    if place.version == 2:
        (folder / "cgroup.subtree_control").write_text("+memory")
    yield folder
    folder.rmdir()


def test_groups_are_used_again_and_removed(own_place):
    def there():
        return [path.name for path in own_place.iterdir() if path.is_dir()]

    if not self_test("userns").passed:
        pytest.skip(f"not checked: {self_test('userns').why_not}")
    with ZygoteSandbox(begin=("bare",)) as sandbox:
        for _ in range(5):
            assert sandbox.run("print(1)").ok
        assert len(there()) == 1
        session = sandbox.session()
        session.execute("x = 1")
        sandbox.run("print(1)")
        assert len(there()) == 2
    assert there() == []


def test_groups_of_a_killed_host_are_removed_by_the_next(own_place, monkeypatch):
    monkeypatch.setattr(cgroups, "YOUNG_S", 0.0)  # in a folder where nobody else makes a group just now
    place, groups = cgroups.find(), cgroups.Groups()
    mine = groups.take(1 << 20)
    code = (
        "import os, signal\n"
        "from gem.sandbox import cgroups\n"
        f"cgroups.find = lambda: cgroups.{place}\n"
        "group = cgroups.Groups().take(1 << 20)\n"
        "print(group.path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": ROOT}
    left = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    path = left.stdout.strip()
    assert os.path.isdir(path)
    assert cgroups._works(place)
    assert not os.path.exists(path)
    assert os.path.isdir(mine.path)
    groups.give(mine)
    groups.close()


def test_a_group_that_cannot_be_entered_is_done_without(grouped):
    with ZygoteSandbox(begin=("bare",)) as sandbox:
        groups = sandbox.pool.control_groups()
        taken = groups.take(1 << 20)
        os.close(taken.procs)
        taken.procs = os.open(os.devnull, os.O_RDONLY)
        groups._idle.append(taken)
        assert sandbox.run("print(1)").stdout == "1\n"
        assert sandbox.report()["memory"] == "a watch every 0.1 s"


@pytest.mark.parametrize(
    ("mounts", "own", "folders"),
    [
        (["/ /cg/memory - cgroup c rw,memory"], ["4:memory:/a/b", "0::/"], [("/cg/memory/a/b", 1, True)]),
        (["/a /cg/memory - cgroup c rw,memory"], ["4:memory:/a/b"], [("/cg/memory/b", 1, True)]),
        (["/ /cg/cpu - cgroup c rw,cpu"], ["4:memory:/a", "3:cpu:/a"], []),
        (["/ /cg - cgroup2 c rw"], ["0::/u/x.scope"], [("/cg/u/x.scope", 2, True), ("/cg/u", 2, False)]),
        (["/ /cg - cgroup2 c rw"], ["0::/"], [("/cg", 2, True)]),
        (["/other /cg - cgroup2 c rw"], ["0::/u"], []),
    ],
)
def test_where_groups_may_be_made(tmp_path, mounts, own, folders):
    rows = [f"30 20 0:1 {row.replace(' - ', ' rw shared:1 - ')}" for row in mounts]
    (tmp_path / "mountinfo").write_text("\n".join(rows))
    (tmp_path / "cgroup").write_text("\n".join(own))
    found = [(place.folder, place.version, place.own) for place in cgroups._places(str(tmp_path))]
    assert found == folders


def test_a_folder_without_control_groups_is_no_place(tmp_path):
    assert not cgroups._works(cgroups.Place(str(tmp_path), 1))
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    assert not cgroups._works(cgroups.Place(str(tmp_path), 2, own=False))
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.subtree_control"]


# --------------------------------------------------------------------------------------- all of them


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:programs run on the backend")
@pytest.mark.parametrize("groups", [1, 0])
@pytest.mark.parametrize("backend", ["userns", "bwrap-slots", "landlock"])
def test_every_way(backend, groups):
    """With control groups none takes 1.5 times the budget. Without, a burst lives until the next look."""
    if not self_test(backend).passed:
        pytest.skip(f"not checked on {backend}: {self_test(backend).why_not}")
    if groups and cgroups.find() is None:
        pytest.skip("no control group that holds memory can be made here")
    command = [
        sys.executable,
        str(HERE / "memory.py"),
        "--backends",
        backend,
        "--groups",
        str(groups),
        "--json",
    ]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True, text=True)
    (found,) = json.loads(done.stdout).values()
    assert set(found) == set(WAYS)
    bound = BUDGET.memory_mb * (1.5 if groups else 4)
    assert {way: seen for way, seen in found.items() if seen["mb"] > bound} == {}
    assert all(found[way]["said"].startswith("refused") for way in REFUSED)


def test_there_are_forty_ways():
    assert len(WAYS) >= 40
    for name, code in WAYS.items():
        compile(PRELUDE + code, name, "exec")
