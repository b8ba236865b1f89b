// What MPI does for a group whose ranks are on several hosts: collectives among all of them, and among those that own one
// slice. Each group has communicators of its own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/mpi/mpi_library.h"
#include "lockstep/execute/exchange.h"
#include "lockstep/transport/members.h"

namespace lockstep {

class MpiExchange final : public Exchange {
 public:
  /// Collective over the group's ranks. Throws Error as MpiLibrary::make_comm() does.
  MpiExchange(std::shared_ptr<MpiLibrary> library, const Members& members, const std::string& group,
              Deadline deadline);
  ~MpiExchange() override;

  std::uint64_t start(const ExchangeCall& call) override;
  bool is_over(std::uint64_t number) override;
  void give_up() noexcept override;
  bool is_under_way() const override { return !under_way_.empty(); }

 private:
  struct UnderWay {
    void* request = nullptr;
    Signature signature, others_signature = {};  // of the call
    std::uint64_t number = 0;
    int other = 0;  // whose it is, where there are two: in the world
    Operation operation = Operation::barrier;
    // Of what MPI cannot do in place where only some ranks do: another buffer, and where it belongs.
    std::vector<std::byte> memory = {};
    std::byte* result = nullptr;
  };
  struct Comm {
    void* handle = nullptr;
    int rank = 0, ranks = 0;
    int other = 0;  // of two ranks, in the world
  };
  void require_same_call(const UnderWay& mine) const;
  void check(int error, Operation operation) const;

  std::shared_ptr<MpiLibrary> library_;
  const int world_;  // this rank there
  Comm all_, slice_;
  std::map<std::uint64_t, UnderWay> under_way_;
  std::uint64_t started_ = 0;
};

}  // namespace lockstep
