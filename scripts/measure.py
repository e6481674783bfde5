"""What the benchmarks share: programs run by turns, and a home with a policy to run them under."""

import os
import statistics
import sys
import tempfile
import time

NULL = os.open("/dev/null", os.O_RDWR)
# The same for all, wherever the benchmark itself was started from.
QUIET = [(os.POSIX_SPAWN_DUP2, NULL, stream) for stream in range(3)]


def spawn(argv, env):
    """Seconds that a program takes from start to end, with nothing of Python's in between."""
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=QUIET)
    _, status = os.waitpid(pid, 0)
    taken = time.perf_counter() - start
    if status != 0:
        sys.exit(f"{argv} ended with {status}")
    return taken


def by_turns(commands, env, runs, between=lambda: None):
    """Times of several programs, run by turns so that what disturbs one disturbs all."""
    times = [[] for _ in commands]
    for number in range(runs + runs // 20 + 1):
        for at, argv in enumerate(commands):
            taken = spawn(argv, env)
            # The first ones warm the caches.
            if number > runs // 20:
                times[at].append(taken)
            between()
    return times


def ratio(ours, theirs):
    """Two lists of times as a ratio of medians, and of minima, which a busy machine spoils less."""
    median = statistics.median(ours) / statistics.median(theirs)
    return f"{median:.2f} (minima {min(ours) / min(theirs):.2f})"


def row(name, value):
    """One row of the table; what is promised of it stands in scripts/promises.toml."""
    print(f"{name} | {value}", flush=True)


def policy(rules):
    """A policy with so many rules that name no tool which is run here."""
    lines = ["id: bench", "name: Bench", "mode: observe", "commands:", "  denied:"]
    lines += [f'    - "tool{n} --flag{n} *"' for n in range(rules)]
    return "\n".join(lines) + "\n"


class Home(tempfile.TemporaryDirectory):
    """A home with one policy, gone at the end."""

    def __init__(self, text):
        super().__init__(ignore_cleanup_errors=True)
        os.chmod(self.name, 0o700)
        os.makedirs(os.path.join(self.name, "policies"))
        self.write("policies/bench.yaml", text)
        self.write("active", "bench\n")

    def write(self, name, text):
        with open(os.path.join(self.name, name), "w") as file:
            file.write(text)


def environment(home):
    """A small environment in which that home is the one."""
    return {"PATH": os.environ["PATH"], "HOME": home, "SUBSTRATE_HOME": home, "LANG": "C.UTF-8"}
