"""Time and number of modules of ``import gem``, compared with other packages.

``python -m bench.import_time [--trials N]``. Each import runs in new processes with cached files, the
packages in turn. Python's own start is not included, and figures are medians. The other packages have
separate virtual environments: one for gem-llm, another for the smaller ones.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from bench.common import (
    choose_size,
    left_out_where_missing,
    parse_args,
    peer_python,
    run_peer,
    table,
    write_json,
)

UPSTREAM = "gem-llm==0.1.0"
OTHERS = ("gymnasium==1.4.0", "textarena==0.7.4", "reasoning-gym==0.1.25")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and modules of `import gem`, compared with others.")
    parser.add_argument("--trials", type=int, default=choose_size(11, 1))
    trials = parse_args(parser).trials
    imports = {"gem": (Path(sys.executable), "gem")}
    with left_out_where_missing():
        imports[UPSTREAM] = (peer_python(UPSTREAM), "gem")
    with left_out_where_missing():
        others = peer_python(*OTHERS)
        imports |= {name: (others, name.partition("==")[0].replace("-", "_")) for name in OTHERS}
    runs = [
        {name: run_peer(python, "import_trial.py", module) for name, (python, module) in imports.items()}
        for _ in range(trials + 1)
    ][1:]  # the first warms the files
    results = {
        name: {
            kind: statistics.median(run[name][kind] for run in runs)
            for kind in ("wall_s", "cpu_s", "modules")
        }
        for name in imports
    }
    for figures in results.values():
        figures["times_gem"] = figures["cpu_s"] / results["gem"]["cpu_s"]
    table(
        f"import, medians of {trials} fresh processes",
        ["package", "wall s", "CPU s", "modules", "CPU / gem's"],
        [[name, f["wall_s"], f["cpu_s"], int(f["modules"]), f["times_gem"]] for name, f in results.items()],
    )
    write_json("import_time", {"trials": trials, "packages": results})


if __name__ == "__main__":
    main()
