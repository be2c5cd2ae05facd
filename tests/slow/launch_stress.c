/* launch.c under load: callers in several threads, loops within loops, tasks that fail, a process that is forked off.
 * Every task of every loop has to run once; the sum says so. Compiled with sanitizers by test_launch_sanitized.py. */
#include "launch.c"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLERS 8

void* __TVMBackendParallelLaunch;
typedef int (*Launch)(Task, void*, int);
static int rounds;

typedef struct {
  int32_t sum, expected, fail, deep;
} Work;

static int add(int number, Group* group, void* data) {
  Work* work = data;
  if (number == work->fail) return -1;
  if (work->deep) {
    Work inner = {0, 0, -1, 0};
    if (((Launch)__TVMBackendParallelLaunch)(add, &inner, 3) || inner.sum != 6) return -2;
  }
  __atomic_fetch_add(&work->sum, number + 1, __ATOMIC_RELAXED);
  return group->num_task < 1;
}

static void* call(void* argument) {
  unsigned seed = (unsigned)(intptr_t)argument;
  Value yes = {INTEGER, 0, 1}, no = {INTEGER, 0, 0}, result;
  if (seed % 2) __tvm_ffi_tvm_tiling_among(0, &yes, 1, &result);
  for (int i = 0; i < rounds; ++i) {
    int tasks = 1 + rand_r(&seed) % 9;
    Work work = {0, tasks * (tasks + 1) / 2, -1, rand_r(&seed) % 4 == 0};
    if (i % 16 == 0) work.fail = rand_r(&seed) % tasks;
    int status = ((Launch)__TVMBackendParallelLaunch)(add, &work, tasks);
    if (work.fail >= 0 ? status == 0 : status != 0 || work.sum != work.expected) {
      fprintf(stderr, "round %d: %d tasks, status %d, sum %d of %d\n", i, tasks, status, work.sum, work.expected);
      abort();
    }
    if (i % 512 == 0) usleep(1000); /* so that helpers fall asleep */
  }
  __tvm_ffi_tvm_tiling_among(0, &no, 1, &result);
  return 0;
}

int main(int count, char** arguments) {
  rounds = count > 1 ? atoi(arguments[1]) : 1000;
  Value share[] = {{INTEGER, 0, 0}, {INTEGER, 0, 3}, {INTEGER, 0, 0}, {INTEGER, 0, 1}}, result;
  __tvm_ffi_tvm_tiling_share(0, share, 4, &result);
  pthread_t callers[CALLERS];
  call((void*)(intptr_t)2);
  for (int i = 0; i < CALLERS; ++i)
    if (pthread_create(&callers[i], 0, call, (void*)(intptr_t)(i + 3))) return 2;
  for (int i = 0; i < CALLERS; ++i) pthread_join(callers[i], 0);
  pid_t child = count > 2 ? -1 : fork();
  if (child == 0) {
    call((void*)(intptr_t)99);
    _exit(0);
  }
  int status = 0;
  if (child > 0) waitpid(child, &status, 0);
  printf("%s\n", status ? "the forked process failed" : "right");
  return status != 0;
}
