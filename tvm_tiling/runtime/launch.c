/* Parallel loops of a model's kernels: helper threads, and a caller that never waits for one to start.

TVM assigns each task to a separate thread, bound to a core, and waits for all. If another library's threads spin on
that core (those of OpenBLAS, MKL and onnxruntime do, for milliseconds after their work), every loop waits for the
scheduler's next time slice: SqueezeNet after each run of onnxruntime took 42 ms instead of 3.3. Here any free thread
takes the next task. The caller starts with the first one, thread i with the i-th, so that in an undisturbed run every
task stays on its previous core; a task that has not started when the caller finishes its own is executed by the caller.
A second caller, or one inside a task, executes all its tasks itself.

The same threads run whole models concurrently: each takes one run after the other, and executes its parallel loops
itself as long as every core has a run. No Python object or lock is held meanwhile. A thread continues with the model
whose weights are in its core's cache, and leaves the models of other cores to their threads.

Jobs are numbered, and the number includes the count of their tasks. A task is claimed by atomically replacing a smaller
number in its slot by the job's number: a late thread with an old job finds every slot of that job taken. As long as one
is free, the job is not finished, and its function and data are valid.
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/perf_event.h>)
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>
#define HAS_COUNTERS
#endif
#endif

#define TASK_BITS 12 /* in a job's number */
#define MOST_TASKS ((1 << TASK_BITS) - 1)
#define MOST_CORES 1024
#define SPINS 20000       /* of an idle thread before it sleeps, about 200 microseconds; with a tenth, SqueezeNet took 5 ms, not 3 */
#define GENEROUS_SPINS 256 /* of an idle thread before it yields: 4 processes on 2 cores get 1.3 times the throughput */
#define PATIENT_SPINS 400 /* of a caller waiting for the last task before it yields */

typedef struct {
  void* sync_handle;
  int32_t num_task;
} Group;
typedef int (*Task)(int number, Group* group, void* data);

/* A value in TVM's calling convention: a number, or an object. */
typedef struct {
  int32_t type;
  uint32_t padding;
  union {
    int64_t value;
    void* object;
  };
} Value;
#define INTEGER 1
#define OBJECTS 64 /* types from here on are reference-counted */

static int integer(Value* result, int64_t value) {
  *result = (Value){INTEGER, 0, {value}};
  return 0;
}

typedef struct { /* a TVM function object, or an instance of a plan (plan.c) */
  uint64_t references;
  int32_t type;
  uint32_t padding;
  void* deleter;
  int (*call)(void* self, const Value* arguments, int32_t count, Value* result);
} Function;

static int call_function(void* function, const Value* arguments, int32_t count, Value* result) {
  return ((Function*)function)->call(function, arguments, count, result);
}

typedef struct { /* of a model */
  Value* arguments;
  int32_t count, model, begun, failed;
  Value result;
} Run;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  int busy, threads, started, sleeping;
  int32_t done, failed;
  Task task;
  void* data;
  uint64_t job;
  uint64_t claimed[MOST_TASKS + 1];
  int cores[MOST_CORES];
  int core_count;
  int callers_core; /* core of the caller of the latest job or run */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static struct { /* concurrent model runs; all but the counts is protected by the pool's lock */
  void** functions; /* one per thread for the first model, then for the second ... */
  Run* runs;
  int32_t most, count, threads;
  int32_t left, undone;   /* runs that have not started, that have not finished */
  int32_t under_way;      /* threads with a run */
  int32_t on[MOST_CORES]; /* the model that each thread ran last */
} beside;

static __thread int has_run;
static __thread int32_t thread_number; /* 0: a caller; of the others from 1 */
static __thread int32_t most_tasks; /* of a loop started by this thread; 0: one per thread */

static void rest(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* One iteration of a caller waiting for the last task. */
static void wait_a_bit(int spin) {
  if (spin < PATIENT_SPINS) rest();
  else sched_yield();
}

/* Allow this thread to run on every core of the pool except one; -1: on all. */
static void run_on_cores_but(int one) {
#ifdef __linux__
  cpu_set_t cores;
  CPU_ZERO(&cores);
  pthread_mutex_lock(&pool.lock);
  for (int i = 0; i < pool.core_count; ++i)
    if (pool.cores[i] != one) CPU_SET(pool.cores[i], &cores);
  pthread_mutex_unlock(&pool.lock);
  if (CPU_COUNT(&cores)) pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
#else
  (void)one;
#endif
}

/* If the other cores are busy, the system may schedule a helper on the caller's core and leave it there: then it
 * runs while the caller does not. So a helper that finds itself there moves away. */
static void leave_callers_core(void) {
#ifdef __linux__
  int here = sched_getcpu();
  if (here >= 0 && here == __atomic_load_n(&pool.callers_core, __ATOMIC_RELAXED)) run_on_cores_but(here);
#endif
}

static void tell_callers_core(void) {
#ifdef __linux__
  __atomic_store_n(&pool.callers_core, sched_getcpu(), __ATOMIC_RELAXED);
#endif
}

/* ---- profiles: when each task of a run begins and ends, and what the processor counts meanwhile ------------------- */

#define MOST_COUNTERS 8
#define MOST_FILES 4096
typedef struct {
  int64_t thread, task;
  int64_t begin[1 + MOST_COUNTERS], end[1 + MOST_COUNTERS]; /* nanoseconds, counters */
} Event;

static struct {
  int on, counters;
  int64_t session;    /* changes with every profile, so that a thread knows its counters for old ones */
  int64_t used, room; /* of the events */
  Event* events;
  int64_t type[MOST_COUNTERS], config[MOST_COUNTERS];
  int files[MOST_FILES], file_count; /* of all counters, closed at the end */
  int refused; /* errno of the counters that were not to be had */
} profile;

static __thread int64_t own_session;
static __thread int own_file = -1;

#ifdef HAS_COUNTERS
/* A group of counters of this thread, which are read together; -1 where the system refuses them. */
static int open_counters(void) {
  int group = -1;
  for (int i = 0; i < profile.counters; ++i) {
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = (uint32_t)profile.type[i];
    attr.config = (uint64_t)profile.config[i];
    attr.read_format = PERF_FORMAT_GROUP;
    attr.exclude_kernel = attr.exclude_hv = 1;
    int file = (int)syscall(SYS_perf_event_open, &attr, 0, -1, group, PERF_FLAG_FD_CLOEXEC);
    if (file < 0) {
      __atomic_store_n(&profile.refused, errno, __ATOMIC_RELAXED);
      return -1;
    }
    int place = __atomic_fetch_add(&profile.file_count, 1, __ATOMIC_RELAXED);
    if (place >= MOST_FILES) {
      close(file);
      return -1;
    }
    profile.files[place] = file;
    if (group < 0) group = file;
  }
  return group;
}
#endif

/* Nanoseconds, then this thread's counters: 1 + profile.counters numbers; -1 for counters that are not to be had. */
void tvm_tiling_sample(int64_t* into) {
  for (int i = 0; i < profile.counters; ++i) into[1 + i] = -1;
#ifdef HAS_COUNTERS
  if (profile.counters) {
    if (own_session != profile.session) {
      own_session = profile.session;
      own_file = open_counters();
    }
    uint64_t found[1 + MOST_COUNTERS];
    if (own_file >= 0 && read(own_file, found, sizeof found) == (ssize_t)((1 + profile.counters) * sizeof *found))
      for (int i = 0; i < profile.counters; ++i) into[1 + i] = (int64_t)found[1 + i];
  }
#endif
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  into[0] = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void note_task(Event* event, int32_t task) {
  tvm_tiling_sample(event->end);
  event->thread = thread_number;
  event->task = task;
  int64_t place = __atomic_fetch_add(&profile.used, 1, __ATOMIC_RELAXED);
  if (place < profile.room) profile.events[place] = *event;
}

/* From now on note up to `room` tasks, and `count` counters of perf_event_open by their types and configs, in turn. One
 * caller at a time, while no loop runs. Not 0 where there is no memory. */
int tvm_tiling_profile_begin(int64_t room, int32_t count, const int64_t* counters) {
  if (room < 0 || count < 0 || count > MOST_COUNTERS) return -1;
  profile.events = calloc(room + 1, sizeof(Event));
  if (!profile.events) return -1;
  profile.room = room;
  profile.used = 0;
  profile.refused = 0;
  profile.counters = count;
  for (int i = 0; i < count; ++i) {
    profile.type[i] = counters[2 * i];
    profile.config[i] = counters[2 * i + 1];
  }
  ++profile.session;
  __atomic_store_n(&profile.on, 1, __ATOMIC_RELEASE);
  return 0;
}

/* Note no further tasks. Gives how many there were; as many of them as fit into `room` rows of `into` are written there:
 * thread, task, then the samples at its beginning and at its end. `refused`: errno of counters that the system refused. */
int64_t tvm_tiling_profile_end(int64_t* into, int64_t room, int64_t* refused) {
  __atomic_store_n(&profile.on, 0, __ATOMIC_RELEASE);
  int64_t kept = profile.used < profile.room ? profile.used : profile.room, wide = 1 + profile.counters;
  for (int64_t i = 0; i < kept && i < room; ++i) {
    const Event* event = &profile.events[i];
    int64_t* row = into + i * (2 + 2 * wide);
    row[0] = event->thread;
    row[1] = event->task;
    memcpy(row + 2, event->begin, wide * sizeof *row);
    memcpy(row + 2 + wide, event->end, wide * sizeof *row);
  }
  *refused = profile.refused;
#ifdef HAS_COUNTERS
  for (int i = 0; i < profile.file_count && i < MOST_FILES; ++i) close(profile.files[i]);
#endif
  profile.file_count = profile.counters = 0;
  free(profile.events);
  profile.events = 0;
  return profile.used;
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
    Event event;
    int profiled = __atomic_load_n(&profile.on, __ATOMIC_RELAXED);
    if (profiled) tvm_tiling_sample(event.begin);
    if (pool.task(number, &group, pool.data)) __atomic_store_n(&pool.failed, number + 1, __ATOMIC_RELAXED);
    if (profiled) note_task(&event, number);
    __atomic_fetch_add(&pool.done, 1, __ATOMIC_ACQ_REL);
  }
}

/* The next run for a thread: of its previous model, else of a model that no other thread has, else any. */
static Run* next_run(int thread) {
  Run* found = 0;
  int free = 0;
  pthread_mutex_lock(&pool.lock);
  int32_t count = thread < beside.threads ? beside.count : 0; /* late threads may be from a call with more threads */
  for (int32_t i = 0; beside.left && i < count; ++i) {
    Run* run = &beside.runs[i];
    if (run->begun) continue;
    if (run->model == beside.on[thread]) {
      found = run;
      break;
    }
    if (free) continue;
    free = 1;
    for (int32_t other = 0; other < beside.threads; ++other) free &= beside.on[other] != run->model;
    if (free || !found) found = run;
  }
  if (found) {
    found->begun = 1;
    beside.on[thread] = found->model;
    __atomic_store_n(&beside.left, beside.left - 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&pool.lock);
  return found;
}

static void take_runs(int thread) {
  Run* run = next_run(thread);
  if (!run) return;
  has_run = 1;
  __atomic_fetch_add(&beside.under_way, 1, __ATOMIC_ACQ_REL);
  for (; run; run = next_run(thread)) {
    void* function = beside.functions[run->model * beside.threads + thread];
    run->failed = call_function(function, run->arguments, run->count, &run->result) != 0;
    __atomic_fetch_sub(&beside.undone, 1, __ATOMIC_ACQ_REL);
  }
  __atomic_fetch_sub(&beside.under_way, 1, __ATOMIC_ACQ_REL);
  has_run = 0;
}

static int has_runs_for(int thread) {
  return __atomic_load_n(&beside.left, __ATOMIC_SEQ_CST) > 0 &&
         thread < __atomic_load_n(&beside.threads, __ATOMIC_RELAXED);
}

static void* help(void* argument) {
  int number = (int)(intptr_t)argument;
  uint64_t last = 0;
  thread_number = number;
  run_on_cores_but(-1); /* threads inherit the affinity of their creator, which may be bound to one core */
  for (;;) {
    uint64_t job;
    int spin = 0;
    while ((job = __atomic_load_n(&pool.job, __ATOMIC_ACQUIRE)) == last && !has_runs_for(number) && spin++ < SPINS) {
      if (spin % GENEROUS_SPINS) rest();
      else sched_yield();
    }
    if (job == last && !has_runs_for(number)) {
      pthread_mutex_lock(&pool.lock);
      __atomic_fetch_add(&pool.sleeping, 1, __ATOMIC_SEQ_CST);
      while ((job = __atomic_load_n(&pool.job, __ATOMIC_SEQ_CST)) == last && !has_runs_for(number))
        pthread_cond_wait(&pool.wake, &pool.lock);
      __atomic_fetch_sub(&pool.sleeping, 1, __ATOMIC_SEQ_CST);
      pthread_mutex_unlock(&pool.lock);
    }
    leave_callers_core();
    if (has_runs_for(number)) take_runs(number);
    if (job == last) continue;
    last = job;
    take_tasks(job, number);
  }
  return 0;
}

static void forget_threads(void) { /* they do not exist in a forked process */
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  pool.lock = lock;
  pool.wake = wake;
  pool.busy = pool.started = pool.sleeping = 0;
  beside.left = beside.undone = beside.under_way = 0;
  beside.runs = 0;
  has_run = 0;
}

static void start_threads(void) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* leave signals to the program's own threads */
  while (pool.started < pool.threads) {
    pthread_t thread;
    if (pthread_create(&thread, 0, help, (void*)(intptr_t)(pool.started + 1))) {
      pool.threads = pool.started; /* no more are available */
      break;
    }
    pthread_detach(thread);
    ++pool.started;
  }
  pthread_sigmask(SIG_SETMASK, &before, 0);
}

static void wake(void) {
  if (!__atomic_load_n(&pool.sleeping, __ATOMIC_SEQ_CST)) return;
  pthread_mutex_lock(&pool.lock);
  pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.lock);
}

/* Replaces TVMBackendParallelLaunch: `count` tasks, 0 for one per core. */
static int tvm_tiling_launch(Task task, void* data, int count) {
  int32_t tasks = count > 0 ? count : pool.threads + 1;
  if (count <= 0 && most_tasks && most_tasks < tasks) tasks = most_tasks;
  int idle = 0;
  int alone = has_run && __atomic_load_n(&beside.under_way, __ATOMIC_RELAXED) > pool.threads;
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
  tell_callers_core();
  pool.task = task;
  pool.data = data;
  pool.failed = 0;
  __atomic_store_n(&pool.done, 0, __ATOMIC_RELAXED);
  uint64_t job = ((pool.job >> TASK_BITS) + 1) << TASK_BITS | (uint64_t)tasks;
  __atomic_store_n(&pool.job, job, __ATOMIC_SEQ_CST);
  wake();
  take_tasks(job, 0);
  for (int spin = 0; __atomic_load_n(&pool.done, __ATOMIC_ACQUIRE) < tasks; ++spin) wait_a_bit(spin);
  int32_t failed = pool.failed;
  __atomic_store_n(&pool.busy, 0, __ATOMIC_RELEASE);
  if (!failed) return 0;
  Group group = {0, tasks}; /* again, because the error belongs to the thread that raised it */
  return task(failed - 1, &group, data);
}

/* Set the maximum number of tasks of loops started by this thread; 0: one per thread. */
void tvm_tiling_limit(int32_t tasks) { most_tasks = tasks; }

/* The function that this library calls for a parallel loop; defined only if it has one. */
extern void* __TVMBackendParallelLaunch __attribute__((weak));

/* tvm_tiling_share(address, threads, core, core, ...): parallel loops of this library call `address`, 0 for the launch
 * above, which has `threads` besides the caller, on those cores. Returns the address of the launch above. */
int __tvm_ffi_tvm_tiling_share(void* self, const Value* arguments, int32_t count, Value* result) {
  (void)self;
  static int prepared = 0;
  int64_t address = count > 0 ? arguments[0].value : 0;
  /* Before the lock is first taken; only for the library whose launch is used, because that one stays loaded. */
  if (!address && !prepared) prepared = !pthread_atfork(0, 0, forget_threads);
  pthread_mutex_lock(&pool.lock);
  if (count > 1 && arguments[1].value > pool.threads) pool.threads = (int)arguments[1].value;
  pool.core_count = 0;
  for (int32_t i = 2; i < count && pool.core_count < MOST_CORES; ++i)
    if (arguments[i].value >= 0 && arguments[i].value < MOST_CORES) pool.cores[pool.core_count++] = (int)arguments[i].value;
  pthread_mutex_unlock(&pool.lock);
  if (&__TVMBackendParallelLaunch)
    __TVMBackendParallelLaunch = address ? (void*)(intptr_t)address : (void*)tvm_tiling_launch;
  return integer(result, (int64_t)(intptr_t)tvm_tiling_launch);
}

/* Without Python: run loops by `threads` threads, including the caller; 0: one per core of this process, up to
 * `most`. Returns the number of threads. */
int tvm_tiling_start(int threads, int most) {
  static Value arguments[MOST_CORES + 2];
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  int32_t count = 0;
  pthread_mutex_lock(&lock);
#ifdef __linux__
  cpu_set_t cores;
  if (!sched_getaffinity(0, sizeof cores, &cores))
    for (int i = 0; i < CPU_SETSIZE && count < MOST_CORES; ++i)
      if (CPU_ISSET(i, &cores)) integer(&arguments[2 + count++], i);
#endif
  if (!threads) threads = count && count < most ? count : most;
  if (threads > MOST_CORES) threads = MOST_CORES;
  Value result;
  integer(&arguments[0], 0);
  integer(&arguments[1], threads - 1);
  __tvm_ffi_tvm_tiling_share(0, arguments, 2 + count, &result);
  pthread_mutex_unlock(&lock);
  return threads;
}

/* Concurrent models in three steps, for one caller at a time. Begin: number of threads, including the caller, maximum
 * number of runs, number of models, and for each model one function per thread; returns 0 if not available. */
int __tvm_ffi_tvm_tiling_beside_begin(void* self, const Value* arguments, int32_t count, Value* result) {
  (void)self;
  int64_t threads = count > 2 ? arguments[0].value : 0, most = count > 2 ? arguments[1].value : 0;
  integer(result, 0);
  if (beside.runs || most < 1) return 0;
  if (threads < 1 || threads > pool.threads + 1 || threads > MOST_CORES || (count - 3) != arguments[2].value * threads) return 0;
  Run* runs = calloc(most, sizeof(Run));
  void** functions = calloc(count, sizeof(void*));
  int idle = 0;
  if (!runs || !functions || !__atomic_compare_exchange_n(&pool.busy, &idle, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
    free(runs);
    free(functions);
    return 0;
  }
  if (pool.started < pool.threads) start_threads();
  __atomic_store_n(&pool.busy, 0, __ATOMIC_RELEASE);
  for (int32_t i = 3; i < count; ++i) functions[i - 3] = arguments[i].object;
  pthread_mutex_lock(&pool.lock);
  beside.functions = functions;
  beside.runs = runs;
  beside.most = (int32_t)most;
  beside.count = 0;
  __atomic_store_n(&beside.threads, (int32_t)threads, __ATOMIC_RELAXED);
  for (int32_t i = 0; i < threads; ++i) beside.on[i] = -1;
  pthread_mutex_unlock(&pool.lock);
  return integer(result, 1);
}

/* Add a run: the index of its model, and arguments that are valid until the end. Other threads start at once. */
int __tvm_ffi_tvm_tiling_beside_add(void* self, const Value* arguments, int32_t count, Value* result) {
  (void)self;
  integer(result, 0);
  Value* kept = count > 0 && beside.count < beside.most ? malloc(count * sizeof(Value)) : 0;
  if (!kept) return 0;
  for (int32_t i = 1; i < count; ++i) kept[i - 1] = arguments[i];
  tell_callers_core();
  pthread_mutex_lock(&pool.lock);
  beside.runs[beside.count++] = (Run){.arguments = kept, .count = count - 1, .model = (int32_t)arguments[0].value};
  __atomic_fetch_add(&beside.undone, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&beside.left, beside.left + 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&pool.lock);
  wake();
  return integer(result, 1);
}

/* End(array, release): the caller executes runs as well; returns array(result, ...) of all runs in the order in which
 * they were added, 0 for a failed one. `release` is the address of TVM's function that releases a reference. If the
 * first argument is an address, results are written there as numbers. */
int __tvm_ffi_tvm_tiling_beside_end(void* self, const Value* arguments, int32_t count, Value* result) {
  (void)self;
  uint64_t job = __atomic_load_n(&pool.job, __ATOMIC_ACQUIRE);
  take_runs(0);
  for (int spin = 0; __atomic_load_n(&beside.undone, __ATOMIC_ACQUIRE); ++spin) { /* help the last runs' loops */
    uint64_t now = __atomic_load_n(&pool.job, __ATOMIC_ACQUIRE);
    if (now != job) take_tasks(job = now, 1), spin = 0;
    else wait_a_bit(spin);
  }
  Run* runs = beside.runs;
  int32_t done = beside.count;
  Value* given = calloc(done + 1, sizeof(Value));
  for (int32_t i = 0; i < done; ++i) {
    free(runs[i].arguments);
    if (!given) continue;
    if (runs[i].failed) integer(&given[i], 0);
    else given[i] = runs[i].result;
  }
  int status = -1;
  if (given && count > 0 && arguments[0].type == INTEGER) {
    if (done) memcpy((void*)(intptr_t)arguments[0].value, given, done * sizeof(Value));
    status = integer(result, done);
  } else if (given && count > 1) {
    status = call_function(arguments[0].object, given, done, result);
    int (*release)(void*) = (int (*)(void*))(intptr_t)arguments[1].value;
    for (int32_t i = 0; i < done; ++i)
      if (!runs[i].failed && runs[i].result.type >= OBJECTS) release(runs[i].result.object);
  }
  free(given);
  pthread_mutex_lock(&pool.lock);
  free(beside.functions);
  free(runs);
  beside.functions = 0;
  beside.runs = 0;
  beside.count = 0;
  pthread_mutex_unlock(&pool.lock);
  return status;
}
