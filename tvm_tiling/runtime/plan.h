/* An execution plan as tables, and what runs it (plan.c). All numbers are 64-bit: Python fills in the same structures. */
#ifndef TVM_TILING_PLAN_H
#define TVM_TILING_PLAN_H

#include <stdint.h>

enum { TVM_TILING_ARENA, TVM_TILING_INPUT, TVM_TILING_OUTPUT, TVM_TILING_CONSTANT };

typedef struct {
  int64_t place;  /* one of the above */
  int64_t offset; /* bytes from the start of the arena or of the constants; or the number of the input or output */
  int64_t type;   /* DLPack's code of the type, and from bit 8 on the bits of an element */
  int64_t rank;
  int64_t shape; /* where its extents begin in the table of shapes */
} tvm_tiling_tensor;

typedef struct {
  int64_t arena; /* bytes */
  int64_t inputs, outputs, tensors, steps, arguments; /* how many */
  const tvm_tiling_tensor* tensor;
  const int64_t* shape;
  const int64_t* step;        /* where each step's arguments begin, and behind the last one's end */
  const int64_t* argument;    /* numbers of tensors; -1 and below are scalars, the first one -1 */
  const int64_t* output;      /* for each output the tensor that has it; one in another place is copied */
  const int64_t* bytes;       /* of each input, then of each output */
  void (*const* kernel)(void); /* of each step, by TVM's calling convention */
  const int64_t* scalar;      /* whole numbers that kernels take; 0 in plans of fixed shapes */
} tvm_tiling_plan;

typedef struct tvm_tiling_instance tvm_tiling_instance;

/* An instance of a plan on constants that stand as long as it does; 0 where there is no memory. */
tvm_tiling_instance* tvm_tiling_plan_create(const tvm_tiling_plan* plan, const void* constants);

/* Run the model; `seconds` takes each step's time unless it is 0. Not 0 where a kernel fails. */
int tvm_tiling_plan_run(tvm_tiling_instance* instance, const void* const* inputs, void* const* outputs, double* seconds);

/* Run the model, and call `sample` before and behind each step, with a place for `wide` numbers in `samples`. */
int tvm_tiling_plan_profile(tvm_tiling_instance* instance, const void* const* inputs, void* const* outputs,
                            void (*sample)(int64_t* into), int64_t wide, int64_t* samples);

/* Make an instance one of another plan of the same tensors and steps, for other sizes, on the same constants. The plan
   stands until the next call or the instance's end. Not 0 where there is no memory, and then the instance is as it was. */
int tvm_tiling_plan_resize(tvm_tiling_instance* instance, const tvm_tiling_plan* plan);

void tvm_tiling_plan_destroy(tvm_tiling_instance* instance);

/* Of this thread's latest call that failed: why, and whether a kernel refused a value that an input held. */
const char* tvm_tiling_plan_error(void);
int tvm_tiling_plan_refused(void);

#endif
