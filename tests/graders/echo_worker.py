"""A program of workers for tests of the pool: does what it is asked, also dying and hanging."""

import os
import threading

hoard = []


def load():
    if os.environ.get("ECHO_MISSING"):
        raise ImportError("told so", name="nothing")


def answer(question):
    do = question["do"]
    if do == "burn":
        while True:
            pass
    elif do == "sleep":
        threading.Event().wait()
    elif do == "die":
        os._exit(3)
    elif do == "exit":
        raise SystemExit
    elif do == "hoard":
        hoard.append(bytearray(200 << 20))
    return {"said": question.get("say"), "pid": os.getpid(), "parent": os.getppid()}
