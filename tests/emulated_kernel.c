/* Calls one kernel: LIBRARY NAME REQUEST. The request, a file of 64-bit numbers, is mapped and its tensors are read and
   written where they lie in it:

     count, then for each argument
       0, value                                                               a whole number
       1, type code, bits of an element, place in the file, rank, extents, steps   a tensor, steps in elements */
#include "plan.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MOST 64

typedef struct {
  int32_t type;
  uint32_t padding;
  int64_t value;
} Value;

typedef struct {
  void* data;
  int32_t device_type, device;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t offset;
} Tensor;

typedef int (*Kernel)(void* self, const Value* arguments, int32_t count, Value* result);

static int failed(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 2;
}

int main(int count, char** words) {
  if (count != 4) return failed(words[0], "expected LIBRARY NAME REQUEST");
  void* library = dlopen(words[1], RTLD_NOW);
  if (!library) return failed(words[1], dlerror());
  Kernel kernel = (Kernel)dlsym(library, words[2]);
  if (!kernel) return failed(words[2], dlerror());
  struct stat status;
  int file = open(words[3], O_RDWR);
  if (file < 0 || fstat(file, &status)) return failed(words[3], "it cannot be opened");
  char* request = mmap(0, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (request == MAP_FAILED) return failed(words[3], "it cannot be mapped");

  /* What the kernel calls is put in its place with the first instance of a plan; this one has no steps. */
  tvm_tiling_instance* (*create)(const tvm_tiling_plan*, const void*) = dlsym(library, "tvm_tiling_plan_create");
  int (*start)(int, int) = dlsym(library, "tvm_tiling_start");
  const char* (*error)(void) = dlsym(library, "tvm_tiling_plan_error");
  static const tvm_tiling_plan nothing;
  if (!create || !start || !error || !create(&nothing, 0)) return failed(words[1], "it cannot run kernels");
  start(2, 2);

  static Value arguments[MOST];
  static Tensor tensors[MOST];
  int64_t* next = (int64_t*)request;
  int32_t given = (int32_t)*next++;
  for (int32_t i = 0; i < given && i < MOST; ++i) {
    if (!*next++) {
      arguments[i] = (Value){1, 0, *next++};
      continue;
    }
    tensors[i] = (Tensor){.code = (uint8_t)next[0], .bits = (uint8_t)next[1], .lanes = 1, .device_type = 1};
    tensors[i].data = request + next[2];
    tensors[i].rank = (int32_t)next[3];
    tensors[i].shape = next + 4;
    tensors[i].strides = next + 4 + next[3];
    next += 4 + 2 * next[3];
    arguments[i] = (Value){7, 0, (int64_t)(intptr_t)&tensors[i]};
  }
  Value result = {0, 0, 0};
  if (!kernel(0, arguments, given, &result)) return 0;
  fprintf(stderr, "%s\n", error());
  return 3;
}
