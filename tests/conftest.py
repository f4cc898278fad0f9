"""What all tests share: how hypothesis searches here and in CI, and Ctrl-C."""

import os
import signal

from hypothesis import settings

# No deadlines: on a busy machine they measure the neighbours. CI repeats the same
# examples, so that it judges the change and not its luck; everybody else explores.
settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev")
)

# A shell without job control lets what it starts with `&` ignore Ctrl-C, and that is
# inherited: the processes that tests interrupt would never hear of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
