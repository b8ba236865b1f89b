#include "lockstep/rendezvous/pmix.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/loaded_library.h"
#include "lockstep/base/process_status.h"
#include "lockstep/base/system_file.h"

namespace lockstep {
namespace {

// Of pmix.h and pmix_common.h, which are not needed to build: https://github.com/pmix/pmix-standard, version 4.
constexpr const char* file_name = "libpmix.so.2";
constexpr int success = 0;
constexpr int not_found = -46, timed_out = -24;
constexpr std::uint8_t for_all = 3;  // PMIX_GLOBAL
constexpr std::uint16_t of_string = 3, of_int = 6;
constexpr std::size_t name_bytes = 256, key_bytes = 512;

struct Process {
  std::array<char, name_bytes> name_space;
  std::uint32_t rank;
};
struct Value {
  std::uint16_t type;
  union {
    char* string;
    int integer;
    std::array<std::byte, 24> room;
  };
};
struct Info {
  std::array<char, key_bytes> key;
  std::uint32_t flags;
  Value value;
};

/// That of the nearest process above this one which has it.
std::string path_of_launchers() {
  constexpr int most_ancestors = 16;
  constexpr std::size_t most_maps = std::size_t{4} << 20;
  pid_t pid = ::getppid();
  for (int i = 0; i < most_ancestors && pid > 1; ++i, pid = base::read_status(pid).parent) {
    std::string path = detail::pmix_among(base::system_text(fmt::format("/proc/{}/maps", pid), most_maps));
    if (!path.empty() && ::access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

std::string path_of_library() {
  if (void* const loaded = ::dlopen(file_name, RTLD_NOW | RTLD_NOLOAD)) {
    (void)::dlclose(loaded);
    return file_name;
  }
  std::string path = path_of_launchers();
  return path.empty() ? file_name : path;
}

[[noreturn]] void fail(ErrorCode code, const std::string& call, const std::string& why) {
  throw Error(code, "PMIx: " + call + ": " + why);
}

/// "pmix.timeout", which launchers that know it keep; others wait for ever, and end the job where a process of it dies.
Info time_limit(Deadline deadline) {
  Info info{};
  (void)std::strncpy(info.key.data(), "pmix.timeout", key_bytes - 1);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(deadline.remaining()).count();
  info.value.type = of_int;
  info.value.integer = static_cast<int>(std::clamp<std::int64_t>(seconds, 1, 1 << 20));
  return info;
}

}  // namespace

namespace detail {

std::string pmix_among(const std::string& maps) {
  const std::size_t at = maps.find("/libpmix.so");
  if (at == std::string::npos) return "";
  const std::size_t line = maps.rfind('\n', at) + 1;  // npos + 1: the first
  const std::size_t begin = maps.find('/', line);
  return maps.substr(begin, maps.find('\n', at) - begin);
}

}  // namespace detail

/// Its functions, and who this process is to it.
class Pmix::Library {
 public:
  Library()
      : library_(
            path_of_library(),
            "it comes with Open MPI and with the package libpmix2, and has to be found by LD_LIBRARY_PATH"),
        finalize_(library_.function<int (*)(const Info*, std::size_t)>("PMIx_Finalize")),
        put_(library_.function<int (*)(std::uint8_t, const char*, Value*)>("PMIx_Put")),
        commit_(library_.function<int (*)()>("PMIx_Commit")),
        fence_(
            library_.function<int (*)(const Process*, std::size_t, const Info*, std::size_t)>("PMIx_Fence")),
        get_(library_.function<int (*)(const Process*, const char*, const Info*, std::size_t, Value**)>(
            "PMIx_Get")),
        error_(library_.function<const char* (*)(int)>("PMIx_Error_string")) {
    require(library_.function<int (*)(Process*, Info*, std::size_t)>("PMIx_Init")(&self_, nullptr, 0),
            "PMIx_Init");
  }
  // A process that has begun and not ended is one that has failed, to its launcher.
  ~Library() { (void)finalize_(nullptr, 0); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::string name_space() const { return self_.name_space.data(); }
  void put(const std::string& key, const std::string& value) const {
    std::string text = value;
    Value wrapped{};
    wrapped.type = of_string;
    wrapped.string = text.data();
    require(put_(for_all, key.c_str(), &wrapped), "PMIx_Put");
    require(commit_(), "PMIx_Commit");
  }
  void fence(Deadline deadline) const {
    const Info limit = time_limit(deadline);
    require(fence_(nullptr, 0, &limit, 1), "PMIx_Fence");
  }
  std::string get(const std::string& key, Deadline deadline) const {
    const Info limit = time_limit(deadline);
    Process rank_0 = self_;
    rank_0.rank = 0;
    Value* found = nullptr;
    require(get_(&rank_0, key.c_str(), &limit, 1, &found), "PMIx_Get");
    const std::unique_ptr<Value, void (*)(void*)> owner(found, std::free);
    if (found == nullptr || found->type != of_string || found->string == nullptr)
      fail(ErrorCode::corrupt_data, "PMIx_Get", "what is there is no text");
    const std::unique_ptr<char, void (*)(void*)> text(found->string, std::free);
    return text.get();
  }

 private:
  void require(int status, const char* call) const {
    if (status == success) return;
    const ErrorCode code = status == timed_out   ? ErrorCode::timeout
                           : status == not_found ? ErrorCode::mismatch
                                                 : ErrorCode::system;
    fail(code, call, error_(status));
  }

  LoadedLibrary library_;
  int (*finalize_)(const Info*, std::size_t);
  int (*put_)(std::uint8_t, const char*, Value*);
  int (*commit_)();
  int (*fence_)(const Process*, std::size_t, const Info*, std::size_t);
  int (*get_)(const Process*, const char*, const Info*, std::size_t, Value**);
  const char* (*error_)(int);
  Process self_{};
};

bool Pmix::is_offered() {
  return env::text("PMIX_NAMESPACE").has_value() && env::text("PMIX_RANK").has_value();
}

Pmix::Pmix() : library_(std::make_unique<Library>()) {}
Pmix::~Pmix() = default;

std::string Pmix::job(Deadline) { return library_->name_space(); }
void Pmix::put(const std::string& key, const std::string& value, Deadline) { library_->put(key, value); }
void Pmix::fence(Deadline deadline) { library_->fence(deadline); }
std::string Pmix::get(const std::string& key, Deadline deadline) { return library_->get(key, deadline); }

}  // namespace lockstep
