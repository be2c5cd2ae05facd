"""Call a saved executable from threads: python calling.py MODEL THREADS SECONDS. Each thread verifies every result for
its inputs in turn. Output: runs, resident bytes after a quarter of the time, resident bytes at the end."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import psutil

import tvm_tiling as tt


def main(model: str, count: int, seconds: float) -> None:
    exe = tt.load(model)
    rng = np.random.default_rng(0)
    shape = exe.signature.input_shapes[0]
    inputs = [rng.uniform(-1, 1, shape).astype("float32") for _ in range(4)]
    wanted = [exe.run(x) for x in inputs]
    runs, failures, seen = [0] * count, [], []
    together = threading.Barrier(count + 1)
    process = psutil.Process()

    def call(number: int) -> None:
        try:
            together.wait()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                own = (number + runs[number]) % len(inputs)
                if not np.array_equal(exe.run(inputs[own]), wanted[own]):
                    raise AssertionError(f"run {runs[number]} of thread {number} is wrong")
                runs[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    together.wait()
    time.sleep(seconds / 4)
    seen.append(process.memory_info().rss)
    for thread in threads:
        thread.join()
    seen.append(process.memory_info().rss)
    if failures:
        raise failures[0]
    print(sum(runs), *seen)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
