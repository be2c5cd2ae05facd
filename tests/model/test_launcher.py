"""launch.c, which distributes the tasks of parallel loops among threads: every task runs once, whoever calls."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from networks import Network, conv_bn_relu
from tvm.support import cc

import tvm_tiling as tt
from tvm_tiling.model import native_objects
from tvm_tiling.model.cache_folder import CacheFolder
from tvm_tiling.model.kernel_cache import KernelCache
from tvm_tiling.runtime.launcher import SOURCE
from tvm_tiling.runtime.threads import usable_processors

pytestmark = pytest.mark.skipif(
    cc.get_cc() is None or not sys.platform.startswith("linux"), reason="needs a C compiler and Linux"
)

# Callers in several threads, jobs with different numbers of tasks, some nested; each task of a job must run once.
STRESS = r"""
#include "launch.c"
#include <stdio.h>
#include <stdlib.h>

enum { CALLERS = 4, JOBS = 20000, MOST = 37 };
typedef struct { int32_t runs[MOST]; int tasks, nested; } Job;

static int count(int number, Group* group, void* data) {
  Job* job = (Job*)data;
  if (group->num_task != job->tasks) return 1;
  __atomic_fetch_add(&job->runs[number], 1, __ATOMIC_RELAXED);
  if (job->nested && number == 1) {
    Job inner = {{0}, 3, 0};
    if (tvm_tiling_launch(count, &inner, inner.tasks)) return 1;
    for (int i = 0; i < inner.tasks; ++i) if (inner.runs[i] != 1) return 1;
  }
  return 0;
}

static void* caller(void* seed) {
  unsigned state = (unsigned)(intptr_t)seed;
  for (int number = 0; number < JOBS; ++number) {
    Job job = {{0}, 1 + rand_r(&state) % MOST, number % 5 == 0};
    if (tvm_tiling_launch(count, &job, job.tasks)) return (void*)1;
    for (int i = 0; i < MOST; ++i)
      if (job.runs[i] != (i < job.tasks)) {
        printf("task %d of %d ran %d times\n", i, job.tasks, job.runs[i]);
        return (void*)1;
      }
  }
  return 0;
}

static int fails(int number, Group* group, void* data) { (void)group; (void)data; return number == 1 ? -7 : 0; }

int main(void) {
  Value arguments[] = {{INTEGER, 0, {0}}, {INTEGER, 0, {3}}}, result;
  __tvm_ffi_tvm_tiling_share(0, arguments, 2, &result);
  if (result.value != (int64_t)(intptr_t)tvm_tiling_launch) return 2;
  pthread_t threads[CALLERS];
  void* wrong = 0;
  for (long i = 0; i < CALLERS; ++i) pthread_create(&threads[i], 0, caller, (void*)(i + 1));
  for (int i = 0; i < CALLERS; ++i) { void* one; pthread_join(threads[i], &one); if (one) wrong = one; }
  if (wrong) return 3;
  return tvm_tiling_launch(fails, 0, 4) == -7 ? 0 : 4;
}
"""


# The helper starts with the caller's core alone, then gets two: it must move to the other one.
LEAVING = r"""
#include "launch.c"
#include <stdlib.h>
#include <unistd.h>

static int callers, elsewhere;
static int look(int number, Group* group, void* data) {
  (void)number; (void)group; (void)data;
  if (sched_getcpu() != callers) __atomic_store_n(&elsewhere, 1, __ATOMIC_RELAXED);
  usleep(100);
  return 0;
}

int main(int count, char** names) {
  (void)count;
  callers = atoi(names[1]);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(callers, &one);
  sched_setaffinity(0, sizeof one, &one);
  Value arguments[] = {{INTEGER, 0, {0}}, {INTEGER, 0, {1}}, {INTEGER, 0, {callers}}, {INTEGER, 0, {atoi(names[2])}}};
  Value result;
  __tvm_ffi_tvm_tiling_share(0, arguments, 3, &result);
  tvm_tiling_launch(look, 0, 2);
  usleep(10000);
  __tvm_ffi_tvm_tiling_share(0, arguments, 4, &result);
  for (int i = 0; i < 20000 && !elsewhere; ++i) tvm_tiling_launch(look, 0, 2);
  return !elsewhere;
}
"""


# A process is forked while another thread holds the pool's lock, before any helper has started: the child shares, runs.
FORKED = r"""
#include "launch.c"
#include <sys/wait.h>
#include <unistd.h>

static int locked;
static void* hold(void* unused) {
  (void)unused;
  pthread_mutex_lock(&pool.lock);
  __atomic_store_n(&locked, 1, __ATOMIC_SEQ_CST);
  pause();
  return 0;
}

static int count(int number, Group* group, void* data) {
  (void)number; (void)group;
  __atomic_fetch_add((int*)data, 1, __ATOMIC_RELAXED);
  return 0;
}

int main(void) {
  Value arguments[] = {{INTEGER, 0, {0}}, {INTEGER, 0, {3}}}, result;
  __tvm_ffi_tvm_tiling_share(0, arguments, 2, &result);
  pthread_t thread;
  pthread_create(&thread, 0, hold, 0);
  while (!__atomic_load_n(&locked, __ATOMIC_SEQ_CST)) sched_yield();
  pid_t child = fork();
  if (!child) {
    int done = 0;
    alarm(10);
    __tvm_ffi_tvm_tiling_share(0, arguments, 2, &result);
    tvm_tiling_launch(count, &done, 8);
    _exit(done != 8);
  }
  int status;
  return waitpid(child, &status, 0) != child || status != 0;
}
"""


def run_program(folder, text, *arguments):
    source, program = folder / "program.c", folder / "program"
    source.write_text(text)
    options = ["-x", "c", "-O2", "-pthread", "-I", str(SOURCE.parent)]
    subprocess.run([cc.get_cc(), *options, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_task_runs_once(tmp_path):
    run_program(tmp_path, STRESS)


def test_a_child_shares_whose_parent_held_the_lock(tmp_path):
    run_program(tmp_path, FORKED)


@pytest.mark.skipif(len(usable_processors()) < 2, reason="one core")
def test_a_helper_leaves_its_callers_core(tmp_path):
    run_program(tmp_path, LEAVING, *map(str, usable_processors()[:2]))


def small_network():
    return Network((1, 8, 20, 20)).module(lambda net, x: conv_bn_relu(net, x, 8, 16))


def test_models_share_the_launcher_of_the_first():
    first, second = (tt.compile(small_network(), cache=False) for _ in range(2))
    x = np.random.default_rng(0).standard_normal(first.signature.input_shapes[0]).astype("float32")
    assert first.variants[0].launched and second.variants[0].launched
    want = first.run(x)
    del first
    np.testing.assert_array_equal(second.run(x), want)


def test_a_forked_process_runs_models():
    executable = tt.compile(small_network(), cache=False)
    x = np.random.default_rng(0).standard_normal(executable.signature.input_shapes[0]).astype("float32")
    want = executable.run(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(executable.run(x), want) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_compiler_that_fails_is_reported(tmp_path, monkeypatch):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'launch.c:1: error: no such thing' >&2\nexit 1\n")
    compiler.chmod(0o700)
    monkeypatch.setattr(cc, "get_cc", lambda: str(compiler))
    native_objects._made.clear()
    try:
        with pytest.warns(RuntimeWarning, match="models run in TVM's thread pool: launch.c:1: error: no such thing"):
            assert native_objects.launch_object(tmp_path, None) == []
    finally:
        native_objects._made.clear()


def test_what_runs_plans_is_compiled_once_for_all_processes(tmp_path, monkeypatch):
    cache = KernelCache(CacheFolder(tmp_path / "cache", 1 << 30))
    monkeypatch.setattr(native_objects, "_made", {})
    native_objects.make_ahead(cache)
    made = dict(native_objects._made)
    assert len(made) == 2
    assert all(made.values())
    monkeypatch.setattr(native_objects, "_made", {})
    monkeypatch.setattr(native_objects, "_compiled", lambda *_: pytest.fail("compiled again"))
    native_objects.make_ahead(cache)
    assert native_objects._made == made


def test_without_a_compiler_models_run_in_the_pool_of_tvm(monkeypatch):
    monkeypatch.setattr(cc, "get_cc", lambda: None)
    executable = tt.compile(small_network(), cache=False)
    x = np.random.default_rng(0).standard_normal(executable.signature.input_shapes[0]).astype("float32")
    assert not executable.variants[0].launched
    monkeypatch.undo()
    other = tt.compile(small_network(), cache=False).run(x)  # whose weights were packed with other rounding
    np.testing.assert_allclose(executable.run(x), other, rtol=1e-5, atol=2e-6)
