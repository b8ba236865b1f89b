// The parsers of what comes from outside: other ranks, strangers on the network, files, the user. Each target
// feeds one of them with an input, and holds what it makes of it against what its header promises. An input
// is borne if run_one returns; a lockstep::Error inside is most often the right answer, and is caught there.
// Any other exception, a sanitizer's finding and a broken promise (Broken) are findings.
//
// A new target is a file TARGET.cpp, its name here, in replay_test.cpp and in CMakeLists.txt, seeds in
// make_seeds, and `script/fuzz TARGET --keep`.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

namespace lockstep::fuzz {

using Input = std::span<const std::byte>;

/// A promise that the code under test did not keep.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool holds, const char* promise) {
  if (!holds) throw Broken(promise);
}

/// What another rank sends in collectives: execute/link.h.
namespace link {
int run_one(Input input);
}
/// What other ranks send in messages between two: execute/mailbox.h.
namespace mailbox {
int run_one(Input input);
}
/// What clients send to the store, before and after the proof: rendezvous/store_connection.h,
/// store_service.h.
namespace store_requests {
int run_one(Input input);
}
/// What a store answers to a client: rendezvous/store_replies.h.
namespace store_replies {
int run_one(Input input);
}
/// What a stranger says at the door of a rank: base/proof.h, transport/guest.h.
namespace hello {
int run_one(Input input);
}
/// What another rank says beside the data: transport/tcp/notice.h.
namespace notices {
int run_one(Input input);
}
/// The calibration file: schedule/tuning.h.
namespace tuning {
int run_one(Input input);
}
/// What a simulated cluster is made of: schedule/simulate/topology.h.
namespace topology {
int run_one(Input input);
}
/// Texts in the environment: base/env.h, endpoints, the environment of ranks.
namespace settings {
int run_one(Input input);
}
/// Hosts, and who this process is: launch/hosts/, group/tf_config.h, rendezvous/pmi1.h.
namespace hosts {
int run_one(Input input);
}
/// What launcher and agents say to each other: launch/agents/wire.h, message_pipe.h.
namespace agents {
int run_one(Input input);
}
/// Data sets: data/idx.h, cifar10.h, tokens.h.
namespace idx {
int run_one(Input input);
}
namespace cifar10 {
int run_one(Input input);
}
namespace tokens {
int run_one(Input input);
}
/// Checkpoints: train/checkpoint/: checkpoint_format.h, training_record.h.
namespace checkpoint {
int run_one(Input input);
}
/// Tensors that Python has written: data/pth_file.h, data/pth_pickle.h.
namespace pth {
int run_one(Input input);
}
/// What ranks say about named operations: engine/named_wire.h.
namespace named {
int run_one(Input input);
}
/// What ranks print: launch/output/line_prefixer.h.
namespace output {
int run_one(Input input);
}
/// The flight record's file, and what is said of it: trace/flight_record.h, view/explain/explain.h.
namespace flight_record {
int run_one(Input input);
}

/// What a rank of an MPI program has written of its calls: mpitrace/event_file.h, merge.h.
namespace mpi_events {
int run_one(Input input);
}

/// A timeline's file, and the report of it: view/report/timeline_file.h, report_page.h.
namespace timeline {
int run_one(Input input);
}

}  // namespace lockstep::fuzz
