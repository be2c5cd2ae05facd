/* Executes an execution plan: a sequence of kernels on tensors in one memory block.

A model of static shapes needs nothing of TVM except the functions that its kernels call: parallel loops (launch.c),
memory for packed panels, errors. They are defined here. Kernels take DLTensors in TVM's calling convention.

An instance has the memory of one run at a time. Instances of one plan share the constants, which are read-only.
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALIGNMENT 64 /* bytes, of allocated memory */
#ifndef TVM_TILING_BORROWED_ALIGNMENT
#define TVM_TILING_BORROWED_ALIGNMENT 1 /* bytes, of the caller's inputs and outputs, beside that of their elements */
#endif
#define LONGEST 2048 /* bytes of a message */

typedef struct {
  int32_t type;
  uint32_t padding;
  union {
    int64_t integer;
    void* pointer;
    const char* text;
  } as;
} Value;
enum { NOTHING = 0, INTEGER = 1, TRUTH = 2, TENSOR = 7, TEXT = 8, FUNCTION = 68 };

typedef int (*Call)(void* self, const Value* arguments, int32_t count, Value* result);

typedef struct { /* DLPack's */
  void* data;
  int32_t device_type, device;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t offset;
} Tensor;

/* A TVM function in C: launch.c calls one for each concurrent run. */
typedef struct {
  uint64_t references;
  int32_t type;
  uint32_t padding;
  void* deleter;
  Call call;
  void* without_catching;
} Function;

struct tvm_tiling_instance {
  Function function; /* the first field, because launch.c uses the instance's address as that of its function */
  const tvm_tiling_plan* plan;
  const void* constants;
  char* arena;
  int64_t room; /* bytes of the arena */
  Tensor* tensors;
  Value* arguments;
  void** staged; /* memory for inputs, then outputs, that are not aligned enough; allocated on first use */
  int64_t slots; /* number of these */
  int running;
};

/* ---- functions called by kernels --------------------------------------------------------------------------------- */

static __thread char message[LONGEST];
static __thread int refused; /* by a kernel, because of an input value */

static void say(const char* text) {
  refused = 0;
  snprintf(message, sizeof message, "%s", text);
}

const char* tvm_tiling_plan_error(void) { return message; }

int tvm_tiling_plan_refused(void) { return refused; }

/* Hidden: TVM has functions of these names, which kernels of a plan must not bind to. */
__attribute__((visibility("hidden"))) void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts,
                                                                              int32_t count) {
  size_t length = 0;
  (void)kind;
  say("");
  for (int32_t i = 0; i < count && length + 1 < sizeof message; ++i) {
    if (!parts[i]) continue;
    snprintf(message + length, sizeof message - length, "%s", parts[i]);
    length += strlen(message + length);
  }
}

__attribute__((visibility("hidden"))) void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* text) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &text, 1);
}

static const char* text_of(const Value* value) { return value->type == TEXT && value->as.text ? value->as.text : "?"; }

/* Append " at [1, 2]" to the message; nothing for a scalar. */
static void add_place(const Value* place, int32_t count) {
  size_t length = strlen(message);
  for (int32_t i = 0; i < count && length + 1 < sizeof message; ++i) {
    snprintf(message + length, sizeof message - length, "%s%lld%s", i ? ", " : " at [", (long long)place[i].as.integer,
             i + 1 == count ? "]" : "");
    length += strlen(message + length);
  }
}

static void add(const char* text) {
  size_t length = strlen(message);
  snprintf(message + length, sizeof message - length, "%s", text);
}

/* The messages of refusal.py. */
static int refuse_index(const Value* a, int32_t count) {
  if (count < 5) return -1;
  snprintf(message, sizeof message, "%s: %s %lld", text_of(a), text_of(a + 1), (long long)a[2].as.integer);
  add_place(a + 5, count - 5);
  size_t length = strlen(message);
  if (a[3].as.integer <= a[4].as.integer)
    snprintf(message + length, sizeof message - length, " is out of range; expected %lld to %lld",
             (long long)a[3].as.integer, (long long)a[4].as.integer);
  else
    add(" is out of range; expected none, as the axis has no elements");
  return -1;
}

static int refuse_zero(const Value* a, int32_t count) {
  if (count < 1) return -1;
  snprintf(message, sizeof message, "%s: integer division by zero", text_of(a));
  add_place(a + 1, count - 1);
  add("; expected divisors other than 0");
  return -1;
}

static int refuse_size(const Value* a, int32_t count) {
  if (count < 1) return -1;
  snprintf(message, sizeof message,
           "%s: it is computed at run time and too large; expected tensors that fit in memory", text_of(a));
  return -1;
}

typedef struct {
  const char* name;
  int (*refuse)(const Value* arguments, int32_t count);
} Refusal;

static const Refusal refusals[] = {{"tvm_tiling.refuse_index", refuse_index},
                                   {"tvm_tiling.refuse_zero", refuse_zero},
                                   {"tvm_tiling.refuse_size", refuse_size}};

static int look_up(void* library, const char* name, void** found) {
  (void)library;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; ++i)
    if (!strcmp(name, refusals[i].name)) {
      *found = (void*)&refusals[i];
      return 0;
    }
  say("");
  snprintf(message, sizeof message, "a kernel calls %s, which is a function of TVM", name);
  return -1;
}

static int call_function(void* function, const Value* arguments, int32_t count, Value* result) {
  result->type = NOTHING;
  refused = 1;
  return ((const Refusal*)function)->refuse(arguments, count);
}

static int init_once(void** handle, int (*initialise)(void** result)) {
  void* found = __atomic_load_n(handle, __ATOMIC_ACQUIRE);
  if (found) return 0;
  int status = initialise(&found);
  if (!status) __atomic_store_n(handle, found, __ATOMIC_RELEASE);
  return status;
}

static void* allocate(uint64_t bytes) {
  void* found = 0;
  if (bytes > SIZE_MAX - ALIGNMENT || posix_memalign(&found, ALIGNMENT, bytes ? bytes : ALIGNMENT)) return 0;
  return found;
}

static void* allocate_workspace(int device_type, int device, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device, (void)code, (void)bits;
  void* found = allocate(bytes);
  if (!found) say("not enough memory for a kernel's workspace");
  return found;
}

static int free_workspace(int device_type, int device, void* memory) {
  (void)device_type, (void)device;
  free(memory);
  return 0;
}

/* Where kernel objects look up the functions above; each is defined only if a kernel calls it. */
extern void* __TVMFFIEnvModLookupFromImports __attribute__((weak));
extern void* __TVMFFIFunctionCall __attribute__((weak));
extern void* __TVMFFIHandleInitOnce __attribute__((weak));
extern void* __TVMFFIErrorSetRaisedFromCStr __attribute__((weak));
extern void* __TVMFFIErrorSetRaisedFromCStrParts __attribute__((weak));
extern void* __TVMBackendAllocWorkspace __attribute__((weak));
extern void* __TVMBackendFreeWorkspace __attribute__((weak));

static void install(void) {
  if (&__TVMFFIEnvModLookupFromImports) __TVMFFIEnvModLookupFromImports = (void*)look_up;
  if (&__TVMFFIFunctionCall) __TVMFFIFunctionCall = (void*)call_function;
  if (&__TVMFFIHandleInitOnce) __TVMFFIHandleInitOnce = (void*)init_once;
  if (&__TVMFFIErrorSetRaisedFromCStr) __TVMFFIErrorSetRaisedFromCStr = (void*)TVMFFIErrorSetRaisedFromCStr;
  if (&__TVMFFIErrorSetRaisedFromCStrParts)
    __TVMFFIErrorSetRaisedFromCStrParts = (void*)TVMFFIErrorSetRaisedFromCStrParts;
  if (&__TVMBackendAllocWorkspace) __TVMBackendAllocWorkspace = (void*)allocate_workspace;
  if (&__TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace = (void*)free_workspace;
}

/* ---- instances --------------------------------------------------------------------------------------------------- */

static int call_instance(void* self, const Value* arguments, int32_t count, Value* result) {
  tvm_tiling_instance* instance = self;
  const tvm_tiling_plan* plan = instance->plan;
  result->type = NOTHING;
  if (count == plan->inputs + plan->outputs + 1) { /* the last argument is the plan for these inputs */
    plan = arguments[--count].as.pointer; /* possibly at the address of a freed one */
    if (tvm_tiling_plan_resize(instance, plan)) return -1;
  }
  if (count != plan->inputs + plan->outputs) return -1;
  void** pointers = malloc((count + 1) * sizeof *pointers);
  if (!pointers) return -1;
  for (int32_t i = 0; i < count; ++i) pointers[i] = arguments[i].as.pointer;
  int status = tvm_tiling_plan_run(instance, (const void* const*)pointers, pointers + plan->inputs, 0);
  free(pointers);
  if (status) return -1;
  result->type = TRUTH;
  result->padding = 0;
  result->as.integer = 1;
  return 0;
}

/* Create tensors and arguments from the plan. */
static void place(tvm_tiling_instance* made) {
  const tvm_tiling_plan* plan = made->plan;
  for (int64_t i = 0; i < plan->tensors; ++i) {
    const tvm_tiling_tensor* known = &plan->tensor[i];
    Tensor* tensor = &made->tensors[i];
    tensor->device_type = 1; /* CPU */
    tensor->rank = (int32_t)known->rank;
    tensor->code = (uint8_t)known->type;
    tensor->bits = (uint8_t)(known->type >> 8);
    tensor->lanes = 1;
    tensor->shape = (int64_t*)plan->shape + known->shape;
    if (known->place == TVM_TILING_ARENA) tensor->data = made->arena + known->offset;
    if (known->place == TVM_TILING_CONSTANT) tensor->data = (char*)made->constants + known->offset;
  }
  for (int64_t i = 0; i < plan->arguments; ++i) {
    int64_t number = plan->argument[i];
    Value* argument = &made->arguments[i];
    argument->type = number < 0 ? INTEGER : TENSOR;
    if (number < 0)
      argument->as.integer = plan->scalar[-1 - number];
    else
      argument->as.pointer = &made->tensors[number];
  }
}

tvm_tiling_instance* tvm_tiling_plan_create(const tvm_tiling_plan* plan, const void* constants) {
  install();
  tvm_tiling_instance* made = calloc(1, sizeof *made);
  if (!made) goto full;
  made->function.references = ((uint64_t)1 << 32) | 1;
  made->function.type = FUNCTION;
  made->function.call = call_instance;
  made->plan = plan;
  made->constants = constants;
  made->room = plan->arena;
  made->slots = plan->inputs + plan->outputs;
  made->arena = allocate(plan->arena);
  made->tensors = calloc(plan->tensors + 1, sizeof *made->tensors);
  made->arguments = calloc(plan->arguments + 1, sizeof *made->arguments);
  made->staged = calloc(plan->inputs + plan->outputs + 1, sizeof *made->staged);
  if (!made->arena || !made->tensors || !made->arguments || !made->staged) goto full;
  place(made);
  return made;
full:
  tvm_tiling_plan_destroy(made);
  say("no memory for the model's activations");
  return 0;
}

int tvm_tiling_plan_resize(tvm_tiling_instance* instance, const tvm_tiling_plan* plan) {
  if (plan->arena > instance->room) {
    char* larger = allocate(plan->arena);
    if (!larger) {
      say("no memory for the model's activations");
      return -1;
    }
    free(instance->arena);
    instance->arena = larger;
    instance->room = plan->arena;
  }
  for (int64_t i = 0; i < instance->slots; ++i) {
    free(instance->staged[i]);
    instance->staged[i] = 0;
  }
  instance->plan = plan;
  place(instance);
  return 0;
}

void tvm_tiling_plan_destroy(tvm_tiling_instance* instance) {
  if (!instance) return;
  if (instance->staged)
    for (int64_t i = 0; i < instance->slots; ++i) free(instance->staged[i]);
  free(instance->staged);
  free(instance->arena);
  free(instance->tensors);
  free(instance->arguments);
  free(instance);
}

/* Aligned memory in place of the caller's; 0 if there is not enough. */
static void* staged(tvm_tiling_instance* instance, int64_t number, int64_t bytes) {
  if (!instance->staged[number]) instance->staged[number] = allocate(bytes);
  if (!instance->staged[number]) say("no memory for an input or output that is not aligned");
  return instance->staged[number];
}

typedef struct { /* what is noted around each step: numbers of `wide`, before it and behind it */
  void (*sample)(int64_t* into);
  int64_t wide;
  int64_t* samples;
} Watch;

/* Whether kernels can use memory in place of a tensor of this type. */
static int is_aligned(const void* data, int64_t type) {
  uintptr_t bytes = (uintptr_t)(type >> 8) / 8;
  return !((uintptr_t)data % TVM_TILING_BORROWED_ALIGNMENT) && (bytes < 2 || !((uintptr_t)data % bytes));
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Bytes of an input or output in each part of a run. */
static int64_t piece(const tvm_tiling_plan* plan, int64_t place) { return plan->bytes[place] / plan->parts; }

/* Place the tensors of the caller's memory for one part. */
static int take_part(tvm_tiling_instance* instance, const void* const* inputs, void* const* outputs, int64_t part) {
  const tvm_tiling_plan* plan = instance->plan;
  for (int64_t i = 0; i < plan->tensors; ++i) {
    const tvm_tiling_tensor* known = &plan->tensor[i];
    if (known->place != TVM_TILING_INPUT && known->place != TVM_TILING_OUTPUT) continue;
    int64_t number = known->offset, is_output = known->place == TVM_TILING_OUTPUT;
    int64_t place = is_output ? plan->inputs + number : number, bytes = piece(plan, place);
    char* data = is_output ? outputs[number] : (void*)inputs[number];
    if (!data) {
      say(is_output ? "an output is a null pointer" : "an input is a null pointer");
      return -1;
    }
    data += part * bytes;
    if (!is_aligned(data, known->type)) {
      const void* given = data;
      if (!(data = staged(instance, place, bytes))) return -1;
      if (!is_output) memcpy(data, given, bytes);
    }
    instance->tensors[i].data = data;
  }
  return 0;
}

static int run(tvm_tiling_instance* instance, const void* const* inputs, void* const* outputs, double* seconds,
               const Watch* watch) {
  const tvm_tiling_plan* plan = instance->plan;
  for (int64_t part = 0; part < plan->parts; ++part) {
    if (take_part(instance, inputs, outputs, part)) return -1;
    double before = seconds ? now() : 0;
    int64_t* sample = watch ? watch->samples + 2 * part * plan->steps * watch->wide : 0;
    for (int64_t i = 0; i < plan->steps; ++i) {
      int64_t first = plan->step[i];
      Value result = {NOTHING, 0, {0}};
      if (watch) watch->sample(sample + 2 * i * watch->wide);
      int status = ((Call)plan->kernel[i])(0, instance->arguments + first, (int32_t)(plan->step[i + 1] - first), &result);
      if (status) return status;
      if (watch) watch->sample(sample + (2 * i + 1) * watch->wide);
      if (seconds) {
        double after = now();
        seconds[i] = after - before + (part ? seconds[i] : 0);
        before = after;
      }
    }
    for (int64_t i = 0; i < plan->outputs; ++i) {
      int64_t bytes = piece(plan, plan->inputs + i);
      const void* found = instance->tensors[plan->output[i]].data;
      char* wanted = (char*)outputs[i] + part * bytes;
      if (found != wanted && bytes) memcpy(wanted, found, bytes);
    }
  }
  return 0;
}

static int run_alone(tvm_tiling_instance* instance, const void* const* inputs, void* const* outputs, double* seconds,
                     const Watch* watch) {
  say("");
  if (__atomic_exchange_n(&instance->running, 1, __ATOMIC_ACQUIRE)) {
    say("the instance is running in another thread; make one for each thread");
    return -1;
  }
  int status = run(instance, inputs, outputs, seconds, watch);
  __atomic_store_n(&instance->running, 0, __ATOMIC_RELEASE);
  if (status && !*message) say("a kernel failed and did not say why");
  return status;
}

int tvm_tiling_plan_run(tvm_tiling_instance* instance, const void* const* inputs, void* const* outputs,
                        double* seconds) {
  return run_alone(instance, inputs, outputs, seconds, 0);
}

int tvm_tiling_plan_profile(tvm_tiling_instance* instance, const void* const* inputs, void* const* outputs,
                            void (*sample)(int64_t* into), int64_t wide, int64_t* samples) {
  Watch watch = {sample, wide, samples};
  return run_alone(instance, inputs, outputs, 0, &watch);
}
