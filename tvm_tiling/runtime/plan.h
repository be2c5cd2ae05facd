/* An execution plan as tables, and its execution (plan.c). All numbers are 64-bit: Python fills the same structures. */
#ifndef TVM_TILING_PLAN_H
#define TVM_TILING_PLAN_H

#include <stdint.h>

enum { TVM_TILING_ARENA, TVM_TILING_INPUT, TVM_TILING_OUTPUT, TVM_TILING_CONSTANT };

typedef struct {
  int64_t place;  /* one of the above */
  int64_t offset; /* bytes from the start of the arena or of the constants; or the index of the input or output */
  int64_t type;   /* DLPack's type code, with the bits of an element from bit 8 */
  int64_t rank;
  int64_t shape; /* index of its extents in the table of shapes */
} tvm_tiling_tensor;

typedef struct {
  int64_t arena; /* bytes */
  int64_t inputs, outputs, tensors, steps, arguments; /* counts */
  const tvm_tiling_tensor* tensor;
  const int64_t* shape;
  const int64_t* step;        /* index of each step's first argument, and the end of the last one's */
  const int64_t* argument;    /* tensor indices; -1 and below are scalars, the first one -1 */
  const int64_t* output;      /* for each output the tensor with its value; one in other memory is copied */
  const int64_t* bytes;       /* of each input, then of each output */
  void (*const* kernel)(void); /* of each step, in TVM's calling convention */
  const int64_t* scalar;      /* integer arguments of kernels; 0 in plans of static shapes */
  int64_t parts; /* how often a run executes all steps, each time for the next equal part of every input and output */
} tvm_tiling_plan;

typedef struct tvm_tiling_instance tvm_tiling_instance;

/* Create an instance of a plan on constants that outlive it; 0 if there is not enough memory. */
tvm_tiling_instance* tvm_tiling_plan_create(const tvm_tiling_plan* plan, const void* constants);

/* Run the model; `seconds` receives each step's time unless it is 0. Nonzero if a kernel fails. */
int tvm_tiling_plan_run(tvm_tiling_instance* instance, const void* const* inputs, void* const* outputs, double* seconds);

/* Run the model, and call `sample` before and after each step, with a place for `wide` numbers in `samples`. */
int tvm_tiling_plan_profile(tvm_tiling_instance* instance, const void* const* inputs, void* const* outputs,
                            void (*sample)(int64_t* into), int64_t wide, int64_t* samples);

/* Switch an instance to another plan with the same tensors and steps, for other sizes, on the same constants. The plan
   has to live until the next call or the end of the instance. Nonzero, with the instance unchanged, if there is not
   enough memory. */
int tvm_tiling_plan_resize(tvm_tiling_instance* instance, const tvm_tiling_plan* plan);

void tvm_tiling_plan_destroy(tvm_tiling_instance* instance);

/* The error of this thread's latest failed call, and whether a kernel rejected an input value. */
const char* tvm_tiling_plan_error(void);
int tvm_tiling_plan_refused(void);

#endif
