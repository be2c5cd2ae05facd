/* Two models at once in threads, counts of threads, inputs at odd addresses, errors, models made and let go of. */
#include "model.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WANT(condition) \
  if (!(condition)) {   \
    printf("line %d: %s: %s\n", __LINE__, #condition, model_error()); \
    return 1;           \
  }
static const char* weights;
static float first[3 * 32 * 32 + 16], wanted[10];

static void* runs(void* argument) {
  model_model* model;
  float found[10];
  const void* inputs[] = {first};
  void* outputs[] = {found};
  if (model_create(&model, weights, (int)(size_t)argument)) return "created";
  for (int i = 0; i < 200; ++i) {
    memset(found, 0, sizeof found);
    if (model_run(model, inputs, outputs) || memcmp(found, wanted, sizeof found)) return "ran";
  }
  model_destroy(model);
  return 0;
}

int main(int count, char** arguments) {
  model_model* model = (model_model*)1;
  weights = arguments[1];
  WANT(count == 3 && model_create(&model, "/no/such/file", 0) == MODEL_WEIGHTS && !model);
  WANT(strstr(model_error(), "/no/such/file: No such file"));
  WANT(model_create(&model, "/dev/null", 0) == MODEL_WEIGHTS && strstr(model_error(), "not a regular file"));
  WANT(model_create(&model, arguments[2], 0) == MODEL_WEIGHTS && strstr(model_error(), "another model"));
  WANT(model_create(0, weights, 0) == MODEL_ARGUMENT && model_create(&model, 0, 0) == MODEL_ARGUMENT);
  WANT(model_create(&model, weights, -1) == MODEL_ARGUMENT);
  WANT(MODEL_INPUTS == 1 && MODEL_OUTPUTS == 1 && model_inputs[0].dimensions == 4 && model_inputs[0].shape[3] == 32);
  WANT(!strcmp(model_inputs[0].type, "float32") && model_outputs[0].bytes == sizeof wanted && *model_inputs[0].name);
  WANT(!model_create(&model, weights, 0));
  for (int i = 0; i < 3 * 32 * 32; ++i) first[i] = (float)(i % 17) / 17;
  const void* inputs[] = {first};
  void* outputs[] = {wanted};
  WANT(!model_run(model, inputs, outputs));
  const void* none[] = {0};
  WANT(model_run(model, none, outputs) == MODEL_ARGUMENT && model_run(0, inputs, outputs) == MODEL_ARGUMENT);
  float moved[3 * 32 * 32 + 16], found[13];
  for (int shift = 0; shift < 3; ++shift) {
    memcpy(moved + shift, first, 3 * 32 * 32 * sizeof(float));
    const void* odd[] = {moved + shift};
    void* to[] = {found + shift};
    WANT(!model_run(model, odd, to) && !memcmp(found + shift, wanted, sizeof wanted));
  }
  pthread_t threads[4];
  for (size_t i = 0; i < 4; ++i) pthread_create(&threads[i], 0, runs, (void*)(i % 3));
  for (int i = 0; i < 4; ++i) { void* wrong; pthread_join(threads[i], &wrong); WANT(!wrong); }
  model_destroy(model);
  model_destroy(0);
  return 0;
}
