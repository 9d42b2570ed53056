"""The rest of the figures about many devices: bench-shard runs this after
bench/shard.c."""

import os
import shutil
import subprocess
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
BUILT = HOME / "build" / "bench"


def measured(ranks: int) -> dict[str, float]:
    """What shard_mpi says as so many processes of one thread each."""
    command = [str(BUILT / "shard_mpi")]
    if ranks > 1:
        command = [str(HOME / "tools" / "mpirun"), str(ranks), *command]
    done = subprocess.run(
        command,
        env=os.environ | {"NABLA_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it failed"]
        raise RuntimeError(said[-1])
    rows = (line.split() for line in done.stdout.splitlines())
    return {name: float(seconds) for name, seconds in rows}


def processes() -> None:
    gain = "MLP 4096 step, 2 MPI processes over 1"
    reduce = "all-reduce of 64 MiB / memcpy, 2 processes"
    try:
        if not shutil.which("mpirun"):
            raise RuntimeError("there is no mpirun")
        one, two = measured(1), measured(2)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        for name in gain, reduce:
            print(f"{name:41} not yet: {error}")
        return
    ratio = one["step"] / two["step"]
    print(f"{gain:41} {ratio:7.3f}     (at least 1.8)")
    share = 100 * two["memcpy"] / two["all_reduce"]
    print(f"{reduce:41} {share:7.1f} %   (at least 60)")


def main() -> None:
    for name in "shard_bytes", "shard_model":
        subprocess.run([str(BUILT / name)], check=True)
    processes()


if __name__ == "__main__":
    main()
