/* launch.c under load: callers in several threads, loops within loops, tasks that fail, models beside each other, a
 * process that is forked off. Every task of every loop and every run of a model has to run once; sums say so. Compiled with sanitizers by test_launch_sanitized.py. */
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
  return 0;
}

/* In the place of TVM: a model is the number of its function; its runs count up what they are given, with a loop, and
 * every 16th fails. The function with which results are gathered adds them up. */
#define MODELS 3
static Function functions[MODELS + 1];

static int called(void* function, const Value* arguments, int32_t count, Value* result) {
  integer(result, 0);
  if (function == functions) {
    for (int32_t i = 0; i < count; ++i) result->value += arguments[i].value;
    return 0;
  }
  int32_t* done = arguments[0].object;
  Work work = {0, 0, -1, 0};
  if (((Launch)__TVMBackendParallelLaunch)(add, &work, 4) || work.sum != 10) abort();
  if (__atomic_fetch_add(done, 1, __ATOMIC_RELAXED)) abort();
  integer(result, (Function*)function - functions);
  return arguments[1].value % 16 == 0;
}

static int release(void* object) {
  (void)object;
  abort(); /* results here are numbers */
}

static void beside_each_other(int times) {
  enum { MOST = 40 };
  unsigned seed = 7;
  for (int i = 0; i <= MODELS; ++i) functions[i].call = called;
  for (int i = 0; i < times; ++i) {
    int threads = 1 + rand_r(&seed) % 4, runs = 1 + rand_r(&seed) % MOST;
    int32_t done[MOST] = {0};
    int64_t sum = 0;
    Value begin[3 + 4 * MODELS] = {{INTEGER, 0, {threads}}, {INTEGER, 0, {runs}}, {INTEGER, 0, {MODELS}}}, result;
    for (int n = 0; n < MODELS * threads; ++n) begin[3 + n] = (Value){OBJECTS, 0, {.object = functions + 1 + n / threads}};
    do __tvm_ffi_tvm_tiling_beside_begin(0, begin, 3 + MODELS * threads, &result);
    while (!result.value); /* another caller starts the threads */
    for (int n = 0; n < runs; ++n) {
      int model = rand_r(&seed) % MODELS;
      Value run[] = {{INTEGER, 0, {model}}, {OBJECTS, 0, {.object = &done[n]}}, {INTEGER, 0, {n}}};
      __tvm_ffi_tvm_tiling_beside_add(0, run, 3, &result);
      if (!result.value) abort();
      if (n % 16) sum += model + 1;
    }
    Value gather[] = {{OBJECTS, 0, {.object = functions}}, {INTEGER, 0, {(int64_t)(intptr_t)release}}};
    __tvm_ffi_tvm_tiling_beside_end(0, gather, 2, &result);
    for (int n = 0; n < runs; ++n) if (done[n] != 1) abort();
    if (result.value != sum) abort();
    if (i % 64 == 0) usleep(1000);
  }
}

int main(int count, char** arguments) {
  rounds = count > 1 ? atoi(arguments[1]) : 1000;
  Value share[] = {{INTEGER, 0, {0}}, {INTEGER, 0, {3}}, {INTEGER, 0, {0}}, {INTEGER, 0, {1}}}, result;
  __tvm_ffi_tvm_tiling_share(0, share, 4, &result);
  pthread_t callers[CALLERS];
  call((void*)(intptr_t)2);
  for (int i = 0; i < CALLERS; ++i)
    if (pthread_create(&callers[i], 0, call, (void*)(intptr_t)(i + 3))) return 2;
  beside_each_other(rounds / 10);
  for (int i = 0; i < CALLERS; ++i) pthread_join(callers[i], 0);
  pid_t child = count > 2 ? -1 : fork();
  if (child == 0) {
    call((void*)(intptr_t)99);
    beside_each_other(rounds / 100);
    _exit(0);
  }
  int status = 0;
  if (child > 0) waitpid(child, &status, 0);
  printf("%s\n", status ? "the forked process failed" : "right");
  return status != 0;
}
