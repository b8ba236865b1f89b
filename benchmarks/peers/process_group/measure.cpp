// The measuring loop as a library, for a peer that is called from Python (collectives.py): its operations
// come as functions, and everything else, the buffers too, is what the other programs do
// (collectives/measure.h).
#include <cstdio>
#include <exception>

#include "collectives/measure.h"

extern "C" {

// Each returns 0, or something else after a failure that it has reported.
struct Functions {
  int (*barrier)();
  /// What call() is to do from now on. `output` is `input` where the result is to be there.
  int (*prepare)(const char* op, const char* dtype, std::size_t elements, void* input, void* output);
  int (*call)();
};
}

namespace {

using bench::Case;

void demand(int result) {
  if (result != 0) throw std::runtime_error("the library failed");
}

class Called final : public bench::Contestant {
 public:
  Called(const Functions& functions, std::size_t bytes)
      : functions_(functions), input_(bytes), output_(bytes) {}
  std::byte* input() override { return input_.span().data(); }
  std::byte* output(const Case& what) override {
    // torch.distributed.reduce, too, works in place
    const bool same = in_place(what.op) || what.op == bench::Operation::reduce;
    return (same ? input_ : output_).span().data();
  }
  void barrier() override { demand(functions_.barrier()); }
  std::function<void()> prepare(const Case& what) override {
    demand(functions_.prepare(name_of(what.op), what.dtype.c_str(), what.elements, input(), output(what)));
    return [this] { demand(functions_.call()); };
  }

 private:
  Functions functions_;
  bench::Memory input_;
  bench::Memory output_;
};

}  // namespace

extern "C" {

int bench_pin(int argc, char** argv, int rank) {
  try {
    bench::pin(bench::parse(argc, argv), rank);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "process_group: %s\n", error.what());
    return 1;
  }
  return 0;
}

int bench_run(int argc, char** argv, int rank, const Functions* functions) {
  try {
    const bench::Options options = bench::parse(argc, argv);
    bench::Session session(options.session, rank, options.ranks, options.crowded(),
                           2 * options.second_buffer());
    Called called(*functions, options.most_bytes());
    bench::for_each_case(
        options, rank, [&](const Case& what) { bench::measure(options, session, called, what, "private"); });
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "process_group: %s\n", error.what());
    return 1;
  }
  return 0;
}
}
