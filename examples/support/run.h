// What is the same in every example: its flags are read, and what goes wrong is one line on stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>

namespace examples {

/// Reads the flags into what `app` knows, then calls `body`. Returns the exit code of main(): 1 if something
/// failed, 2 if the flags are wrong.
inline int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  try {
    app.parse(argc, argv);
    body();
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const auto trace = text.find("\nException raised from ");  // libtorch's errors end in a stack trace
    std::cerr << std::filesystem::path(argv[0]).filename().string() + ": " + text.substr(0, trace)
              << std::endl;
    return 1;
  }
}

}  // namespace examples
