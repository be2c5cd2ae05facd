/* @name@: the execution plan as tables, and the functions of @name@.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "@name@.h"
#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

@tables@
static const tvm_tiling_plan plan = {@arena@, @inputs@, @outputs@, @tensors@, @steps@, @arguments@,
                                     tensors, shapes, steps, arguments, results, sizes, kernels, 0, @parts@};

#define HEADER 64 /* bytes before the weights */
static const uint64_t weights_bytes = @weights_bytes@u;
static const uint32_t weights_checksum = @weights_checksum@u;

struct @name@_model {
  tvm_tiling_instance* instance;
  void* weights;
  size_t mapped;
  int threads;
};

/* launch.c */
int tvm_tiling_start(int threads, int most);
void tvm_tiling_limit(int32_t tasks);

static __thread char message[4096];

const char* @name@_error(void) { return message; }

static @name@_status fail(@name@_status status, const char* what, const char* why) {
  snprintf(message, sizeof message, "%s%s%s", what, *why ? ": " : "", why);
  return status;
}

/* An extension that the kernels may use: on x86-64 a bit of what CPUID tells, with the registers that the system saves for
   it; on AArch64 a bit of an entry of the auxiliary vector. */
typedef struct {
  const char* name;
  uint32_t leaf, subleaf, word, bit, state;
} instructions;

@instructions@

#if defined(__x86_64__)
static uint64_t saved_registers(void) {
  uint32_t words[4], low, high;
  __cpuid(1, words[0], words[1], words[2], words[3]);
  if (!(words[2] >> 27 & 1)) return 0;
  __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static int has(const instructions* wanted) {
  uint32_t words[4];
  if (__get_cpuid_max(wanted->leaf & 0x80000000u, 0) < wanted->leaf) return 0;
  __cpuid_count(wanted->leaf, 0, words[0], words[1], words[2], words[3]);
  if (wanted->subleaf) {
    if (words[0] < wanted->subleaf) return 0;
    __cpuid_count(wanted->leaf, wanted->subleaf, words[0], words[1], words[2], words[3]);
  }
  return words[wanted->word] >> wanted->bit & 1 && (saved_registers() & wanted->state) == wanted->state;
}
#elif defined(__aarch64__)
static int has(const instructions* wanted) { return (int)(getauxval(wanted->leaf) >> wanted->bit & 1); }
#else
static int has(const instructions* wanted) { return !wanted; }
#endif

static @name@_status check_instructions(void) {
  char lacking[1024] = "";
  for (const instructions* each = needed; each->name; ++each) {
    size_t length = strlen(lacking);
    if (!has(each)) snprintf(lacking + length, sizeof lacking - length, "%s%s", length ? ", " : "", each->name);
  }
  if (!*lacking) return @NAME@_OK;
  snprintf(message, sizeof message, "the model was compiled for another CPU: this one lacks %s; compile it for this CPU",
           lacking);
  return @NAME@_CPU;
}

static @name@_status map_weights(@name@_model* model, const char* path) {
  char header[HEADER];
  struct stat status;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return fail(@NAME@_WEIGHTS, path, strerror(errno));
  const char* wrong = 0;
  if (fstat(file, &status)) wrong = strerror(errno);
  else if (!S_ISREG(status.st_mode)) wrong = "it is not a regular file";
  else if ((uint64_t)status.st_size != HEADER + weights_bytes) wrong = "its size is not that of these weights";
  else if (pread(file, header, HEADER, 0) != HEADER) wrong = "it cannot be read";
  else if (memcmp(header, "TVMTILE1", 8) || memcmp(header + 8, &weights_bytes, 8) ||
           memcmp(header + 16, &weights_checksum, 4))
    wrong = "it holds the weights of another model";
  if (!wrong) {
    model->mapped = (size_t)status.st_size;
    model->weights = mmap(0, model->mapped, PROT_READ, MAP_PRIVATE, file, 0);
    if (model->weights == MAP_FAILED) {
      model->weights = 0;
      wrong = strerror(errno);
    }
  }
  close(file);
  return wrong ? fail(@NAME@_WEIGHTS, path, wrong) : @NAME@_OK;
}

@name@_status @name@_create(@name@_model** model, const char* weights, int threads) {
  if (!model) return fail(@NAME@_ARGUMENT, "model is a null pointer", "");
  *model = 0;
  if (!weights) return fail(@NAME@_ARGUMENT, "weights is a null pointer", "expected the path of @name@.weights");
  if (threads < 0) return fail(@NAME@_ARGUMENT, "threads is negative", "expected 0 or more");
  if (check_instructions()) return @NAME@_CPU;
  @name@_model* made = calloc(1, sizeof *made);
  if (!made) return fail(@NAME@_NO_MEMORY, "no memory for a model", "");
  @name@_status status = map_weights(made, weights);
  if (!status) {
    made->threads = tvm_tiling_start(threads, @cores@);
    made->instance = tvm_tiling_plan_create(&plan, (char*)made->weights + HEADER);
    if (!made->instance) status = fail(@NAME@_NO_MEMORY, tvm_tiling_plan_error(), "");
  }
  if (status) @name@_destroy(made);
  else *model = made;
  return status;
}

@name@_status @name@_run(@name@_model* model, const void* const* inputs, void* const* outputs) {
  if (!model || (!inputs && @NAME@_INPUTS) || (!outputs && @NAME@_OUTPUTS))
    return fail(@NAME@_ARGUMENT, "model, inputs or outputs is a null pointer", "");
  for (int i = 0; i < @NAME@_INPUTS; ++i)
    if (!inputs[i]) return fail(@NAME@_ARGUMENT, @name@_inputs[i].name, "the address of this input is a null pointer");
  for (int i = 0; i < @NAME@_OUTPUTS; ++i)
    if (!outputs[i]) return fail(@NAME@_ARGUMENT, @name@_outputs[i].name, "the address of this output is a null pointer");
  tvm_tiling_limit(model->threads);
  int failed = tvm_tiling_plan_run(model->instance, inputs, outputs, 0);
  tvm_tiling_limit(0);
  if (!failed) return @NAME@_OK;
  return fail(tvm_tiling_plan_refused() ? @NAME@_REFUSED : @NAME@_FAILED, tvm_tiling_plan_error(), "");
}

void @name@_destroy(@name@_model* model) {
  if (!model) return;
  tvm_tiling_plan_destroy(model->instance);
  if (model->weights) munmap(model->weights, model->mapped);
  free(model);
}
