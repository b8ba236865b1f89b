// Libraries that few programs need, and that would make every program start later: libcurl and what it brings
// take 7 ms and more of each process that is linked with it (docs/decisions/0013). They are loaded where they
// are first used.
#pragma once

#include <string>

namespace lockstep {

/// Stays loaded until the process ends: such libraries have threads and exit handlers of their own.
class LoadedLibrary {
 public:
  /// `file` ("libcurl.so.4") is looked for where the system looks. Throws Error{unsupported}: what the loader
  /// said, and `remedy` ("install libcurl4").
  LoadedLibrary(std::string file, const std::string& remedy);

  /// Of type decltype(&name) in the library's header. Throws Error{unsupported} where it has none.
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(symbol(name));
  }
  /// The same into `function`.
  template <class Function>
  void find(Function& function, const char* name) const {
    function = this->function<Function>(name);
  }

 private:
  void* symbol(const char* name) const;

  std::string file_;
  void* handle_;
};

}  // namespace lockstep
