/* Parallel loops of a model's kernels: threads that help, and a caller that never waits for one to start.

TVM gives each task to a thread of its own, bound to a core, and waits for all. Where another library's threads spin on
that core (those of OpenBLAS, MKL and onnxruntime do, for milliseconds after their work), every loop waits for the
kernel's next time slice: SqueezeNet behind each run of onnxruntime took 42 ms instead of 3.3. Here whoever is free takes
the next task. The caller starts with the first one, thread i with the i-th, so that an undisturbed run has every task
on the core that had it before; a task that nobody has begun when the caller is through with its own is the caller's.
A second caller, or one inside a task, does all its tasks itself; so does a thread among several that run models of
their own, while these are as many as there are cores.

Jobs are numbered, and the count of their tasks is part of the number. A task is claimed by writing the job's number to
its place, from a smaller one: a thread that comes late with an old job finds every place of that job taken. While one
is not, the job is not over, and its function and data stand.
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>

#define TASK_BITS 12 /* of a job's number */
#define MOST_TASKS ((1 << TASK_BITS) - 1)
#define MOST_CORES 1024
#define SPINS 20000       /* of an idle thread before it sleeps, some 200 microseconds; with a tenth SqueezeNet took 5 ms, not 3 */
#define PATIENT_SPINS 400 /* of a caller that waits for the last task, before it lets others have the core */

typedef struct {
  void* sync_handle;
  int32_t num_task;
} Group;
typedef int (*Task)(int number, Group* group, void* data);

static struct {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  int busy, threads, started, sleeping, among; /* among: threads that run models of their own */
  int32_t done, failed;
  Task task;
  void* data;
  uint64_t job;
  uint64_t claimed[MOST_TASKS + 1];
  int cores[MOST_CORES];
  int core_count;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void rest(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

static void take_tasks(uint64_t job, int first) {
  int32_t tasks = (int32_t)(job & MOST_TASKS);
  Group group = {0, tasks};
  for (int32_t i = 0; i < tasks; ++i) {
    int32_t number = (first + i) % tasks;
    uint64_t seen = __atomic_load_n(&pool.claimed[number], __ATOMIC_RELAXED);
    if (seen >= job ||
        !__atomic_compare_exchange_n(&pool.claimed[number], &seen, job, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      continue;
    if (pool.task(number, &group, pool.data)) __atomic_store_n(&pool.failed, number + 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&pool.done, 1, __ATOMIC_ACQ_REL);
  }
}

static void* help(void* argument) {
  int number = (int)(intptr_t)argument;
  uint64_t last = 0;
#ifdef __linux__
  /* Threads begin with the cores of whoever made them, which may be bound to one. */
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int i = 0; i < pool.core_count; ++i) CPU_SET(pool.cores[i], &cores);
  if (pool.core_count) pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
#endif
  for (;;) {
    uint64_t job;
    for (int spin = 0; (job = __atomic_load_n(&pool.job, __ATOMIC_ACQUIRE)) == last && spin < SPINS; ++spin) rest();
    if (job == last) {
      pthread_mutex_lock(&pool.lock);
      __atomic_fetch_add(&pool.sleeping, 1, __ATOMIC_SEQ_CST);
      while ((job = __atomic_load_n(&pool.job, __ATOMIC_SEQ_CST)) == last) pthread_cond_wait(&pool.wake, &pool.lock);
      __atomic_fetch_sub(&pool.sleeping, 1, __ATOMIC_SEQ_CST);
      pthread_mutex_unlock(&pool.lock);
    }
    last = job;
    take_tasks(job, number);
  }
  return 0;
}

static void forget_threads(void) { /* in a process that has been forked off they do not run */
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  pool.lock = lock;
  pool.wake = wake;
  pool.busy = pool.started = pool.sleeping = pool.among = 0;
}

static void start_threads(void) {
  static int prepared = 0;
  sigset_t all, before;
  if (!prepared) prepared = !pthread_atfork(0, 0, forget_threads);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
  while (pool.started < pool.threads) {
    pthread_t thread;
    if (pthread_create(&thread, 0, help, (void*)(intptr_t)(pool.started + 1))) {
      pool.threads = pool.started; /* no more to be had */
      break;
    }
    pthread_detach(thread);
    ++pool.started;
  }
  pthread_sigmask(SIG_SETMASK, &before, 0);
}

static __thread int is_among;

/* In the place of TVMBackendParallelLaunch: `count` tasks, 0 for one a core. */
static int tvm_tiling_launch(Task task, void* data, int count) {
  int32_t tasks = count > 0 ? count : pool.threads + 1;
  int idle = 0;
  int alone = is_among && __atomic_load_n(&pool.among, __ATOMIC_RELAXED) > pool.threads;
  if (tasks == 1 || alone || tasks > MOST_TASKS || !pool.threads ||
      !__atomic_compare_exchange_n(&pool.busy, &idle, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
    Group group = {0, tasks};
    for (int32_t i = 0; i < tasks; ++i) {
      int status = task(i, &group, data);
      if (status) return status;
    }
    return 0;
  }
  if (pool.started < pool.threads) start_threads();
  pool.task = task;
  pool.data = data;
  pool.failed = 0;
  __atomic_store_n(&pool.done, 0, __ATOMIC_RELAXED);
  uint64_t job = ((pool.job >> TASK_BITS) + 1) << TASK_BITS | (uint64_t)tasks;
  __atomic_store_n(&pool.job, job, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&pool.sleeping, __ATOMIC_SEQ_CST)) {
    pthread_mutex_lock(&pool.lock);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
  }
  take_tasks(job, 0);
  for (int spin = 0; __atomic_load_n(&pool.done, __ATOMIC_ACQUIRE) < tasks; ++spin) {
    if (spin < PATIENT_SPINS) rest();
    else sched_yield();
  }
  int32_t failed = pool.failed;
  __atomic_store_n(&pool.busy, 0, __ATOMIC_RELEASE);
  if (!failed) return 0;
  Group group = {0, tasks}; /* again, for the error belongs to the thread that made it */
  return task(failed - 1, &group, data);
}

/* TVM's calling convention for what Python may call: an integer, or another value of no interest here. */
typedef struct {
  int32_t type;
  uint32_t padding;
  int64_t value;
} Value;
#define INTEGER 1

/* What this library calls for a parallel loop; it is there if it has one. */
extern void* __TVMBackendParallelLaunch __attribute__((weak));

/* tvm_tiling_share(address, threads, core, core, ...): parallel loops of this library call `address`, 0 for the launch
 * above, which has `threads` besides the caller, on those cores. Gives the address of the launch above. */
int __tvm_ffi_tvm_tiling_share(void* self, const Value* arguments, int32_t count, Value* result) {
  (void)self;
  int64_t address = count > 0 ? arguments[0].value : 0;
  pthread_mutex_lock(&pool.lock);
  if (count > 1 && arguments[1].value > pool.threads) pool.threads = (int)arguments[1].value;
  pool.core_count = 0;
  for (int32_t i = 2; i < count && pool.core_count < MOST_CORES; ++i)
    if (arguments[i].value >= 0 && arguments[i].value < MOST_CORES) pool.cores[pool.core_count++] = (int)arguments[i].value;
  pthread_mutex_unlock(&pool.lock);
  if (&__TVMBackendParallelLaunch)
    __TVMBackendParallelLaunch = address ? (void*)(intptr_t)address : (void*)tvm_tiling_launch;
  result->type = INTEGER;
  result->padding = 0;
  result->value = (int64_t)(intptr_t)tvm_tiling_launch;
  return 0;
}

/* tvm_tiling_among(yes): the calling thread runs models beside others that do, or no longer. */
int __tvm_ffi_tvm_tiling_among(void* self, const Value* arguments, int32_t count, Value* result) {
  (void)self;
  int yes = count > 0 && arguments[0].value;
  if (yes != is_among) __atomic_fetch_add(&pool.among, yes ? 1 : -1, __ATOMIC_ACQ_REL);
  is_among = yes;
  result->type = INTEGER;
  result->padding = 0;
  result->value = yes;
  return 0;
}
