/* @name@: a compiled model as a C library. Needs libc, libm and threads, nothing else.

   @name@_model* model;
   if (@name@_create(&model, "@name@.weights", 0)) puts(@name@_error());
   if (@name@_run(model, inputs, outputs)) puts(@name@_error());
   @name@_destroy(model);

@signature@
Arrays are dense and in row-major order. One is copied only if it is not aligned to @unit@.

A model runs once at a time; several models, each created with the same weights file, run in several threads at once
and share the pages of that file. All share the threads of their parallel loops.

The machine code was made for @cpu@ with @cores@ cores. */
#ifndef @NAME@_H
#define @NAME@_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { @NAME@_INPUTS = @inputs@, @NAME@_OUTPUTS = @outputs@ };

typedef enum {
  @NAME@_OK = 0,
  @NAME@_REFUSED = 1,   /* an input holds a value that an operator does not take, such as an index out of range */
  @NAME@_FAILED = 2,    /* a kernel failed, or the model is running in another thread */
  @NAME@_NO_MEMORY = 3,
  @NAME@_WEIGHTS = 4,   /* the weights cannot be read, or are of another model */
  @NAME@_ARGUMENT = 5,  /* a null pointer, or a number of threads that is negative */
  @NAME@_CPU = 6        /* this CPU lacks instructions that the kernels need */
} @name@_status;

typedef struct {
  const char* name;
  const char* type;     /* "float32", "int64", "bool" (one byte) ... */
  const int64_t* shape; /* in elements */
  int32_t dimensions;
  size_t bytes;
} @name@_tensor;

typedef struct @name@_model @name@_model;

/* What the model takes and gives, in this order. */
extern const @name@_tensor @name@_inputs[];
extern const @name@_tensor @name@_outputs[];

/* Make a model of the weights in a file, which is mapped. `threads`: how many run it, the caller among them; 0: as many
   as it was made for, or as there are processors for this process. */
@name@_status @name@_create(@name@_model** model, const char* weights, int threads);

/* Run the model: `inputs` and `outputs` are one address for each. */
@name@_status @name@_run(@name@_model* model, const void* const* inputs, void* const* outputs);

/* Let go of the model and its memory; a null pointer is none. The threads of parallel loops stay, asleep. */
void @name@_destroy(@name@_model* model);

/* What the latest call that failed in this thread says, in one sentence. */
const char* @name@_error(void);

#ifdef __cplusplus
}
#endif
#endif
