"""The template, when a child of it can signal it."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from gem.sandbox import template


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no template")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_child_cannot_end_its_template_before_the_server_has_its_number(number):
    def slow_down():  # in the template, which then is far from answering when its child begins
        real = template.sibling

        def sibling(namespaces, address):
            if pid := real(namespaces, address):
                time.sleep(0.1)
            return pid

        template.sibling = sibling

    def end_it(packet, fds):
        os.kill(int(packet), number)
        os._exit(7)

    own = template.Template(end_it, first=slow_down, reachable=True)
    pid = own.make(str(own.pid).encode())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    os.kill(own.pid, signal.SIGKILL)
    os.waitpid(own.pid, 0)
    own._end.close()
