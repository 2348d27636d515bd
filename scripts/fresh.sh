#!/bin/sh
# Run targets of the Makefile as on a machine that has Python, make and little else.
#
#   scripts/fresh.sh test                              PYTHON=/path/to/python3.12 takes that interpreter
#
# It is a clean clone of HEAD in a path with a space. HOME is an empty folder, the environment holds nothing else,
# and on PATH there is no bubblewrap, container engine, database, browser, Java, uv or compiler. Root runs it as nobody.
#
# Set-up alone is given what tells pip where packages are (its variables and configuration, certificates, proxies,
# wheels/), for a stripped machine has to reach its package index too. The targets themselves run without.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'fresh: %s\n' "$*"; }
fail() {
    printf 'fresh: %s\n' "$@" >&2
    exit 1
}

# Root steps down by means of the interpreter that is to be used, which is sure to be here.
as_user() {
    if [ "$(id -u)" = 0 ]; then
        set -- "$python" -c 'if True:
            import os, pwd, sys
            user = pwd.getpwnam("nobody")
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            os.execvp(sys.argv[1], sys.argv[1:])' "$@"
    fi
    "$@"
}

find_python() {
    tried=
    for name in ${PYTHON:-python3.11 python3.12 python3.13 python3 /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13 /usr/bin/python3}; do
        python=$("$name" -c 'import sys; print(sys.executable)' 2>/dev/null) || continue # of a shim, the real one
        if as_user env -i "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
            >/dev/null 2>&1; then
            return
        fi
        tried="$tried $python"
    done
    fail "found no Python 3.11, 3.12 or 3.13, with the modules venv and ensurepip, that ${1:-this user} may read." \
        "Tried:${tried:- none}. Name another: PYTHON=/usr/bin/python3.11 scripts/fresh.sh test"
}

[ $# -gt 0 ] || fail "name targets of the Makefile, as: scripts/fresh.sh test"
commit=$(git rev-parse --short HEAD 2>/dev/null) || fail "this is no git checkout, so there is nothing to clone."
if [ "$(id -u)" = 0 ]; then user=nobody; else user=$(id -un); fi
find_python "$user"
[ -z "$(git status --porcelain)" ] || say "changes that are not committed are left out: the clone is of $commit"

umask 022
place=$(mktemp -d "${TMPDIR:-/tmp}/gem fresh.XXXXXX")
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$place"
mkdir "$place/bin" "$place/home"
git clone --quiet --no-hardlinks . "$place/gem gym"
[ ! -d wheels ] || cp -R wheels "$place/gem gym/"

"$python" - "$place/bin" "$python" <<'EOF'
import fnmatch
import os
import sys

ABSENT = """
    bwrap *docker* *podman* nerdctl* containerd* runc runsc psql* pg_* postgres* initdb* *chrom* firefox* uv uvx java*
    cc gcc* c89* c99* *-gcc* g++* *-g++* c++* cpp* clang* tcc python* pypy* pip*
""".split()
place, python = sys.argv[1:]
os.symlink(python, f"{place}/python3")
for folder in (*os.environ["PATH"].split(":"), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"):
    if not os.path.isdir(folder) or folder.startswith(os.path.expanduser("~/")):
        continue
    for name in os.listdir(folder):
        if not any(fnmatch.fnmatch(name, absent) for absent in ABSENT) and not os.path.lexists(f"{place}/{name}"):
            os.symlink(os.path.join(os.path.abspath(folder), name), f"{place}/{name}")
EOF

# pip's own configuration, where its user has one.
keep() {
    [ ! -f "$1" ] || { mkdir -p "$(dirname "$2")" && cp "$1" "$2"; }
}
keep "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$place/home/.config/pip/pip.conf"
keep "$HOME/.pip/pip.conf" "$place/home/.pip/pip.conf"
keep "${PIP_CONFIG_FILE:-}" "$place/pip.conf"
[ "$(id -u)" != 0 ] || chown -R nobody "$place"

stripped() {
    (cd "$place/gem gym" && as_user env -i HOME="$place/home" PATH="$place/bin" "$@")
}

say "$* on Python $("$python" -c 'import platform; print(platform.python_version())') ($python) at $commit, as $user, in '$place/gem gym'"
# Each on a line of its own: no such variable holds a line feed.
env | grep -E '^(PIP_|SSL_CERT_|REQUESTS_CA_BUNDLE=|((https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY)=)' |
    sed "s|^PIP_CONFIG_FILE=.*|PIP_CONFIG_FILE=$place/pip.conf|" >"$place/variables" || :
set -f
IFS='
'
# shellcheck disable=SC2046 # a word for each line
stripped $(cat "$place/variables") make setup
unset IFS
set +f
rm -rf "$place/home"/.[a-z]*
stripped make "$@"
