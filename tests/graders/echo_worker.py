"""A worker program for tests of the pool: does what it is asked, also dying and hanging."""

import os
import signal
import socket
import threading

from gem.graders._math_worker import receive, send

line = socket.socket(fileno=os.dup(0))
signal.signal(signal.SIGPROF, signal.SIG_DFL)
send(line, {"missing": "nothing", "why": "told so"} if os.environ.get("ECHO_MISSING") else {"ready": True})
hoard = []
while (question := receive(line)) is not None:
    signal.setitimer(signal.ITIMER_PROF, question["cpu_s"])
    do = question["do"]
    if do == "burn":
        while True:
            pass
    elif do == "sleep":
        threading.Event().wait()
    elif do == "die":
        os._exit(3)
    elif do == "hoard":
        hoard.append(bytearray(200 << 20))
    signal.setitimer(signal.ITIMER_PROF, 0)
    send(line, {"said": question.get("say"), "pid": os.getpid()})
