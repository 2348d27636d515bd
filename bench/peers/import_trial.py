"""Import the module named on the command line once and print what it took, as JSON."""

import sys
import time

before = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
__import__(sys.argv[1])
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
modules = len(set(sys.modules) - before)

print(f'\n{{"wall_s": {wall}, "cpu_s": {cpu}, "modules": {modules}}}')
