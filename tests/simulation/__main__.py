"""Run simulations: `--seed 17` one of them again with its story, `--seeds 1000:3000` many, `--jobs` at once."""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TextIO

from tests.simulation.simulation import Broken, simulate

CHUNK = 25
WIDTH = 30


def run_chunk(seeds: range) -> list[tuple[int, str, str]]:
    """Those that broke: seed, invariant, report."""
    broken = []
    for seed in seeds:
        try:
            simulate(seed)
        except Broken as exc:
            broken.append((seed, exc.invariant, str(exc)))
    return broken


def many(seeds: range, jobs: int, out: TextIO) -> int:
    began, done, broken = time.monotonic(), 0, list[tuple[int, str, str]]()
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for chunk, found in zip(chunks, pool.map(run_chunk, chunks), strict=True):
            done, broken = done + len(chunk), broken + found
            if out.isatty() or done == len(seeds):
                bar = "#" * (WIDTH * done // len(seeds))
                seconds = time.monotonic() - began
                out.write(f"\r[{bar:<{WIDTH}}] {done}/{len(seeds)} seeds, {len(broken)} broken, {seconds:.0f} s")
                out.flush()
    out.write("\n")
    out.writelines(f"seed {seed}: {invariant}\n" for seed, invariant, _ in broken)
    if broken:
        out.write(f"\n{broken[0][2]}\n")
    return 1 if broken else 0


def one(seed: int, faults: Sequence[str], out: TextIO) -> int:
    try:
        outcome = simulate(seed, keep=None, faults=faults)
    except Broken as exc:
        out.write(f"{exc}\n")
        return 1
    out.write("\n".join(outcome.lines))
    out.write(
        f"\nseed {seed} holds: {outcome.runs} runs, {outcome.virtual_seconds - 1000:.1f} virtual seconds,"
        f" {outcome.steps} steps, digest {outcome.digest}\n"
    )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one and tell its story")
    parser.add_argument("--seeds", default="0:2000", help="from:to, or how many (default 0:2000)")
    parser.add_argument("--faults", default="", help="with --seed: ten faults of these kinds (a,b,c) and no others")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    asked = parser.parse_args()
    if asked.seed is not None:
        return one(asked.seed, [kind for kind in asked.faults.split(",") if kind], sys.stdout)
    first, _, last = asked.seeds.rpartition(":")
    return many(range(int(first or 0), int(last)), asked.jobs, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
