// Runs @name@ in two threads at once, each with a model of its own: main WEIGHTS [INPUT ...]. Each INPUT is a file of
// raw elements, left out zeros. Prints latency and whether both gave the same; the outputs go to output_0.bin ...
#include "@name@.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using Bytes = std::vector<char>;

class Model {
 public:
  explicit Model(const std::string& weights, int threads = 0) {
    @name@_model* made = nullptr;
    if (@name@_create(&made, weights.c_str(), threads)) throw std::runtime_error(@name@_error());
    model_.reset(made);
  }

  std::vector<Bytes> run(const std::vector<Bytes>& inputs) {
    std::vector<Bytes> outputs;
    std::vector<const void*> from;
    std::vector<void*> to;
    for (int i = 0; i < @NAME@_OUTPUTS; ++i) outputs.emplace_back(@name@_outputs[i].bytes + 1);
    for (const Bytes& input : inputs) from.push_back(input.data());
    for (Bytes& output : outputs) to.push_back(output.data());
    if (@name@_run(model_.get(), from.data(), to.data())) throw std::runtime_error(@name@_error());
    return outputs;
  }

 private:
  struct Destroy {
    void operator()(@name@_model* model) const { @name@_destroy(model); }
  };
  std::unique_ptr<@name@_model, Destroy> model_;
};

int main(int count, char** arguments) try {
  if (count != 2 && count != 2 + @NAME@_INPUTS) throw std::runtime_error("usage: main WEIGHTS [INPUT ...]");
  std::vector<Bytes> inputs;
  for (int i = 0; i < @NAME@_INPUTS; ++i) {
    inputs.emplace_back(@name@_inputs[i].bytes + 1);
    if (count == 2) continue;
    std::ifstream file(arguments[2 + i], std::ios::binary);
    if (!file.read(inputs.back().data(), static_cast<std::streamsize>(@name@_inputs[i].bytes)))
      throw std::runtime_error(std::string(arguments[2 + i]) + ": too few bytes");
  }
  Model first(arguments[1]), second(arguments[1]);
  std::vector<Bytes> one, two;
  std::string wrong;
  std::thread other([&] {
    try {
      for (int i = 0; i < 10; ++i) two = second.run(inputs);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
  });
  try {
    for (int i = 0; i < 10; ++i) one = first.run(inputs);
  } catch (const std::exception&) {
    other.join();
    throw;
  }
  other.join();
  if (!wrong.empty()) throw std::runtime_error(wrong);
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    auto start = std::chrono::steady_clock::now();
    one = first.run(inputs);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::cout << "both threads gave " << (one == two ? "the same" : "other outputs") << ", " << best * 1e3 << " ms\n";
  for (int i = 0; i < @NAME@_OUTPUTS; ++i)
    std::ofstream("output_" + std::to_string(i) + ".bin", std::ios::binary)
        .write(one[i].data(), static_cast<std::streamsize>(@name@_outputs[i].bytes));
  return one == two ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
