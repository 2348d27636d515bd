"""Print a script that completes the command line in a shell."""

from __future__ import annotations

import re
from typing import Literal

from tyro.conf import Positional

from gem import cli, models
from gem.agent_names import AGENTS
from gem.cli.export import FORMATS
from gem.estimators import ALGORITHMS
from gem.evals.suite import known_suites
from gem.graders import MADE
from gem.registry import ENV_REGISTRY

TAKES_IDS = ("play", "check", "audit", "demos", "eval", "serve", "mcp")
"""Commands whose first values are ids of environments; --env takes them everywhere."""

NAMES = {
    r"*\ --agent|*\ --others|*\ --opponent": [
        *(form[: form.find(":") + 1] or form for form, *_ in AGENTS.values()),  # what follows is the user's
        *models.KNOWN,
    ],
    r"train\ --model": ["tiny", *models.KNOWN],
    r"*\ --model": list(models.KNOWN),
    r"*\ --algorithm": list(ALGORITHMS),
    r"*\ --grader": list(MADE),
    r"*\ --format": list(FORMATS),
}
"""Names that flags take, by a shell pattern of command and flag; the flags take other values too."""

SCRIPT = r"""# Completion of gem-gym, by `gem-gym completion`; make it again after an update.
_gem_gym() {
  local line=${COMP_LINE:0:$COMP_POINT} word before rest name words ids
  ids='@IDS@'
  word=${line##* } before=${line% *} rest=${line#* }
  before=${before##* } name=${rest%% *}
  case $rest in
    *' '*) ;;
    *) name= ;;
  esac
  case "$name $before" in
    ' '*|help\ *) words='@COMMANDS@' ;;
@VALUES@
    completion\ completion) words='bash zsh' ;;
    *\ --env) words=$ids ;;
@NAMES@
    *) case "$name $word" in
@FLAGS@
      eval\ *) words="$ids @SUITES@" ;;
      @TAKES_IDS@) words=$ids ;;
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  case $BASH_VERSION$word in
    [0-9]*:*) before=${word%"${word##*:}"}  # bash completes what follows the last colon
      COMPREPLY=("${COMPREPLY[@]#"$before"}") ;;
  esac
  case $COMPREPLY in
    *:) compopt -o nospace 2>/dev/null ;;  # more must follow
  esac
}
@BEGIN@complete -o default -F _gem_gym gem-gym
"""


def completion(shell: Positional[Literal["bash", "zsh"]]) -> None:
    """Print a script that completes commands, flags, their values and ids of environments.

    Write it to a file that the shell reads at its start, or put `eval "$(gem-gym completion bash)"` into
    ~/.bashrc (zsh: ~/.zshrc, after compinit).

    Args:
        shell: the shell that reads the script.
    """
    flags, values = [], []
    for name in cli.COMMANDS:
        spec = cli.read_spec(name)
        options = list(cli.list_options(spec))
        words = " ".join(dict.fromkeys(flag for option in options for flag in option["flags"]))
        flags.append(f"      {name}\\ -*) words='{words}' ;;")
        if parts := spec.get("subcommands"):
            flags.append(f"      {name}\\ *) [ \"$before\" != {name} ] || words='{' '.join(parts)}' ;;")
        for option in options:
            if option.get("choices"):
                asked = "|".join(f"{name}\\ {flag}" for flag in option["flags"])
                values.append(f"    {asked}) words='{' '.join(option['choices'])}' ;;")
    begin = "autoload -Uz +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    parts = {
        "COMMANDS": " ".join([*cli.COMMANDS, "help"]),
        "VALUES": "\n".join(values),
        "NAMES": "\n".join(f"    {asked}) words='{' '.join(names)}' ;;" for asked, names in NAMES.items()),
        "SUITES": " ".join(known_suites()),
        "FLAGS": "\n".join(flags),
        "TAKES_IDS": "|".join(f"{name}\\ *" for name in TAKES_IDS),
        "IDS": " ".join(sorted(ENV_REGISTRY)),
        "BEGIN": begin,
    }
    print(re.sub("@([A-Z_]+)@", lambda part: parts[part[1]], SCRIPT), end="")
