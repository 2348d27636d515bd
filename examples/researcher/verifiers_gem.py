r"""Use gem's environments in verifiers and prime-rl: this module is the taskset that they load.

    PYTHONPATH=examples vf-eval verifiers-gem --env.taskset.env game:GuessTheNumber-v0-easy \
        --env.taskset.n 20 --model openai/gpt-4o-mini

Needs: pip install 'gem-gym[verifiers]', with uv, which starts verifiers' harness. prime-rl takes the same id.

Verified: tier B, with verifiers 0.4.0: its taskset, environment, interaction and null harness play episodes
against a local server with the OpenAI API. prime-rl was not run.
"""

from gem.adapters.verifiers import GemEnv, GemTaskset

__all__ = ["GemEnv", "GemTaskset"]
