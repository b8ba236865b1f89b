// TF_CONFIG: how programs of TensorFlow's MultiWorkerMirroredStrategy and ParameterServerStrategy learn who they are. The same
// text starts a Lockstep program on the same hosts:
//   {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}, "task": {"type": "worker", "index": 0}}
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct TfConfig {
  int size = 1;            ///< parameter servers, the chief, if there is one, and the workers
  int rank = 0;            ///< in this order; an evaluator is a world of its own
  std::string host = {};   ///< of rank 0
  std::uint16_t port = 0;  ///< of rank 0, on its host
  /// "ps", "chief" or "worker" where the cluster has parameter servers; "default" else, where all do the same.
  std::string role = "default";
};

/// Throws Error{invalid_argument} beginning with "TF_CONFIG" that says what is wrong and where: no JSON (at which byte), something
/// missing or of another type, two chiefs, an index outside, an address without a port.
TfConfig parse_tf_config(const std::string& text);

}  // namespace lockstep
