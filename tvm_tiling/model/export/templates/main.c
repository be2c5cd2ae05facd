/* Runs @name@ once: main WEIGHTS [INPUT ...]. Each INPUT is a file of raw elements, left out zeros; each output goes to
   a file output_0.bin, output_1.bin ... in the current folder. */
#include "@name@.h"

#include <stdio.h>
#include <stdlib.h>

static int read_input(const char* path, void* data, size_t bytes) {
  FILE* file = fopen(path, "rb");
  size_t got = file ? fread(data, 1, bytes, file) : 0;
  if (file) fclose(file);
  if (got != bytes) fprintf(stderr, "%s: %zu bytes expected, %zu read\n", path, bytes, got);
  return got == bytes;
}

static int write_output(int number, const void* data, size_t bytes) {
  char path[32];
  snprintf(path, sizeof path, "output_%d.bin", number);
  FILE* file = fopen(path, "wb");
  int right = file && fwrite(data, 1, bytes, file) == bytes;
  if (file && fclose(file)) right = 0;
  if (!right) fprintf(stderr, "%s cannot be written\n", path);
  return right;
}

int main(int count, char** arguments) {
  if (count != 2 && count != 2 + @NAME@_INPUTS) {
    fprintf(stderr, "usage: %s WEIGHTS [INPUT ...], of @inputs@ inputs\n", arguments[0]);
    return 2;
  }
  void *inputs[@NAME@_INPUTS + 1] = {0}, *outputs[@NAME@_OUTPUTS + 1] = {0};
  int right = 1;
  for (int i = 0; right && i < @NAME@_INPUTS; ++i) {
    inputs[i] = calloc(@name@_inputs[i].bytes + 1, 1);
    right = inputs[i] && (count == 2 || read_input(arguments[2 + i], inputs[i], @name@_inputs[i].bytes));
  }
  for (int i = 0; right && i < @NAME@_OUTPUTS; ++i) right = (outputs[i] = malloc(@name@_outputs[i].bytes + 1)) != 0;

  @name@_model* model = 0;
  if (right && (@name@_create(&model, arguments[1], 0) || @name@_run(model, (const void* const*)inputs, outputs))) {
    fprintf(stderr, "%s\n", @name@_error());
    right = 0;
  }
  for (int i = 0; right && i < @NAME@_OUTPUTS; ++i) {
    right = write_output(i, outputs[i], @name@_outputs[i].bytes);
    printf("output_%d.bin: %s, %s, %zu bytes\n", i, @name@_outputs[i].name, @name@_outputs[i].type,
           @name@_outputs[i].bytes);
  }
  @name@_destroy(model);
  for (int i = 0; i < @NAME@_INPUTS; ++i) free(inputs[i]);
  for (int i = 0; i < @NAME@_OUTPUTS; ++i) free(outputs[i]);
  return right ? 0 : 1;
}
