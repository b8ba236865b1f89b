// A rank that does what its arguments say, one after the other; the tests' and soaks' victim and survivor.
//
//   probe_rank [--rank=N --size=N --address=A --port=N --insecure --arena=BYTES] action...
//
// --other-port=N --cycles=N, --worlds=N: joins so many worlds before; --interrupt-every=N: a signal every N microseconds.
// The action "next_world" leaves the world, "shutdown" does so while its Group is still held; what follows is done in the
// next one.
// An action is a word with arguments after commas; "1:exit,3" is for rank 1 alone, "!1:barrier" for all
// others. Data is checked. A lockstep::Error ends it with exit code 1 and a line on stderr,
//
//   probe rank=0 code=mismatch peer=none text=...
//
// a wrong result with 3; --go-on goes on after an Error. At the end it says "probe rank=0 of 2 done".
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/lockstep.h"
#include "probe_collectives.h"
#include "probe_cycles.h"
#include "probe_loop.h"
#include "probe_messages.h"
#include "probe_named.h"
#include "probe_shapes.h"

namespace probe {
namespace {

using lockstep::Group;
using Words = std::vector<std::string>;

struct EndEarly {
  int exit_code;
};

Words split_words(const std::string& text, char by) {
  Words words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, by);) words.push_back(word);
  return words;
}

std::size_t count(const Words& words, std::size_t index) { return std::stoull(words.at(index)); }
int number(const Words& words, std::size_t index) { return std::stoi(words.at(index)); }
probe::Memory memory(const Words& words, std::size_t index) {
  const bool is_arena = words.size() > index && words[index] == "arena";
  return is_arena ? probe::Memory::arena : probe::Memory::own;
}

void complain(const std::string& rank, const lockstep::Error& error) {
  const std::string peer = error.peer() ? std::to_string(*error.peer()) : "none";
  std::cerr << "probe rank=" + rank + " code=" + std::string(to_string(error.code())) + " peer=" + peer +
                   " text=" + error.what() + "\n";
}

void say(const Group& group, const std::string& text) {
  std::cout << "probe rank=" + std::to_string(group.rank()) + " " + text + "\n" << std::flush;
}

/// "throw,100", or "throw,100,2", after rank 2 has said ("say_and_reduce,100,1") that it is in the call, too.
void throw_in_the_middle(const Group& group, const Words& words) {
  std::vector<float> gradients(count(words, 1));
  auto work = lockstep::all_reduce(group, gradients);
  char is_there = 0;
  if (words.size() > 2) lockstep::recv(group, std::span(&is_there, 1), number(words, 2)).wait();
  throw std::runtime_error("the program's own mistake");
}

void say_and_reduce(const Group& group, const Words& words) {
  std::vector<float> gradients(count(words, 1));
  auto work = lockstep::all_reduce(group, gradients);
  const char is_here = 1;
  lockstep::send(group, std::span(&is_here, 1), number(words, 2)).wait();
  work.wait();
}

/// "all_to_all_v,8-0,8-8": sends 8 bytes to rank 0, none to rank 1, and expects 8 of each.
void all_to_all_of_counts(const Group& group, const Words& words) {
  const auto counts = [&](std::size_t index) {
    std::vector<std::size_t> bytes;
    for (const std::string& count : split_words(words.at(index), '-')) bytes.push_back(std::stoull(count));
    return bytes;
  };
  const auto sent = counts(1), received = counts(2);
  const auto total = [](const auto& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  };
  std::vector<char> input(total(sent)), output(total(received));
  lockstep::all_to_all_v(group, input, sent, output, received).wait();
}

/// What a program that a rank starts finds open, a line for each.
void list_descriptors_of_a_child(const Group&, const Words&) {
  std::cout << std::flush;
  if (std::system("for f in /proc/$$/fd/*; do echo open $(readlink $f); done") != 0)
    throw std::runtime_error("no shell");
}

/// "await_end,1": until rank 1 is gone, which may not send.
void await_end_of(const Group& group, const Words& words) {
  char nothing = 0;
  try {
    lockstep::recv(group, std::span(&nothing, 1), number(words, 1)).wait();
  } catch (const lockstep::Error&) {
    return;
  }
  throw std::runtime_error("rank " + words.at(1) + " sends something");
}

// The child tries to use the group, the parent goes on when it has ended.
void fork_and_use(const Group& group, const Words&) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      (void)group.allocate<int>(1);
      ::_exit(0);
    } catch (const lockstep::Error& error) {
      complain(std::to_string(group.rank()), error);
    }
    try {
      lockstep::barrier(group).wait();
    } catch (const lockstep::Error& error) {
      complain(std::to_string(group.rank()), error);
#ifdef __SANITIZE_ADDRESS__
      ::_exit(1);  // LeakSanitizer would look for the parent's threads
#else
      ::exit(1);  // with everything that the parent had registered for its own end
#endif
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  say(group, "child ended with " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1));
}

// The child lives until stdin ends, and has all that the parent had open.
void fork_and_die(const Group&, const Words&) {
  const pid_t child = ::fork();
  if (child != 0) ::kill(::getpid(), SIGKILL);
  while (std::cin.get() != EOF) {
  }
  ::_exit(0);
}

void init_again(const Group& group, const Words&) {
  const Group again = lockstep::init();
  lockstep::barrier(again).wait();
  say(group,
      again.name() == group.name() && again.size() == group.size() ? "is in the same world" : "is elsewhere");
}

/// A thread of this rank waits in a barrier for others, who do not come, when this one shuts down.
void barrier_while_shut_down(const Group& group, const Words&) {
  std::thread caller([&] {
    try {
      lockstep::barrier(group).wait();
    } catch (const lockstep::Error& error) {
      complain(std::to_string(group.rank()), error);
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  lockstep::shutdown();
  caller.join();
}

/// Leaves this world; rank 0 is in the next one's init(), in which it waits for the others, when another thread shuts down.
void shutdown_during_init(const Group& group, const Words&) {
  const int rank = group.rank();
  lockstep::shutdown();
  std::thread other;
  if (rank == 0) {
    other = std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      lockstep::shutdown();
    });
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const Group next = lockstep::init();
  if (next.name() != "world#2") throw std::runtime_error("in " + next.name());
  if (rank != 0) return;
  other.join();
  if (lockstep::is_initialized()) throw std::runtime_error("it is not shut down");
}

void subgroup_of_itself(const Group& group, const Words&) {
  const int self = group.rank();
  const Group alone = group.subgroup(std::span(&self, 1));
  float value = 3;
  lockstep::all_reduce(alone, std::span(&value, 1)).wait();
  say(group, alone.name() + " of " + std::to_string(alone.size()) + " has " + std::to_string(value));
}

/// Made by "subgroup", used by "within", dropped by "drop": name -> group.
std::optional<lockstep::TimelineRecording> recording;

std::map<std::string, Group>& subgroups() {
  static std::map<std::string, Group> made;
  return made;
}

/// Groups must not outlive main().
struct WithoutSubgroups {
  WithoutSubgroups() = default;
  WithoutSubgroups(const WithoutSubgroups&) = delete;
  WithoutSubgroups& operator=(const WithoutSubgroups&) = delete;
  ~WithoutSubgroups() { subgroups().clear(); }
};

/// "subgroup,0-2": of ranks 0 and 2.
void make_subgroup(const Group& group, const Words& words) {
  std::vector<int> ranks;
  for (const std::string& rank : split_words(words.at(1), '-')) ranks.push_back(std::stoi(rank));
  subgroups().emplace(words.at(1), group.subgroup(ranks));
}

/// What "loop" can be told to call.
void say_collectives(const Group& group, const Words&) {
  std::string names;
  for (const Collective& collective : all_collectives()) names += " " + std::string(collective.name);
  say(group, "knows" + names);
}

template <std::string (*cycle)(const Group&, int)>
void say_cycles(const Group& group, const Words& words) {
  say(group, cycle(group, number(words, 1)));
}

void read_line() {
  std::string line;
  std::getline(std::cin, line);
}

using Action = std::function<void(const Group&, const Words&)>;
const std::map<std::string, Action>& actions();

/// "within,0-2,all_reduce,f32,10": the action that follows, in that subgroup.
void act_within(const Group&, const Words& words) {
  actions().at(words.at(2))(subgroups().at(words.at(1)), Words(words.begin() + 2, words.end()));
}

const std::map<std::string, Action>& actions() {
  static const std::map<std::string, Action> known = {
      {"all_reduce",
       [](auto& group, auto& words) {
         all_reduce(group, dtype_named(words.at(1)), count(words, 2), memory(words, 3));
       }},
      {"all_reduce_max",
       [](auto& group, auto& words) {
         all_reduce(group, dtype_named(words.at(1)), count(words, 2), memory(words, 3),
                    lockstep::ReduceOp::max);
       }},
      {"broadcast",
       [](auto& group, auto& words) {
         broadcast(group, count(words, 1), number(words, 2), memory(words, 3));
       }},
      {"all_gather", [](auto& group, auto& words) { all_gather(group, count(words, 1), memory(words, 2)); }},
      {"all_to_all_v", all_to_all_of_counts},
      {"barrier", [](auto& group, auto&) { lockstep::barrier(group).wait(); }},
      {"send",
       [](auto& group, auto& words) {
         lockstep::send(group, std::vector<char>(count(words, 1)), number(words, 2)).wait();
       }},
      {"recv",
       [](auto& group, auto& words) {
         std::vector<char> buffer(count(words, 1));
         lockstep::recv(group, buffer, number(words, 2)).wait();
       }},
      {"post_recv", [](auto& group, auto& words) { post_recv(group, count(words, 1), number(words, 2)); }},
      {"await_posted", [](auto&, auto&) { await_posted(); }},
      {"send_by_thread",
       [](auto& group, auto& words) { send_by_thread(group, count(words, 1), number(words, 2)); }},
      {"join_thread", [](auto&, auto&) { join_thread(); }},
      {"everything",
       [](auto& group, auto&) { say(group, "checked " + std::to_string(everything(group)) + " calls"); }},
      {"throw", throw_in_the_middle},
      {"say_and_reduce", say_and_reduce},
      {"throw_between", [](auto&, auto&) { throw std::runtime_error("the program's own mistake"); }},
      {"return", [](auto&, auto& words) { throw EndEarly{number(words, 1)}; }},
      {"exit", [](auto&, auto& words) { ::exit(number(words, 1)); }},
      {"_exit", [](auto&, auto& words) { ::_exit(number(words, 1)); }},
      {"raise",
       [](auto&, auto& words) {
         if (number(words, 1) == SIGSEGV) ::signal(SIGSEGV, SIG_DFL);  // a sanitizer would make an exit of it
         ::kill(::getpid(), number(words, 1));
       }},
      {"init_again", init_again},
      {"shut_down_here", [](auto&, auto&) { lockstep::shutdown(); }},
      {"barrier_while_shut_down", barrier_while_shut_down},
      {"shutdown_during_init", shutdown_during_init},
      {"cycle_threads", [](auto& group, auto& words) { say(group, cycle_threads(number(words, 1))); }},
      {"cycle_subgroups", say_cycles<cycle_subgroups>},
      {"cycle_buffers", say_cycles<cycle_buffers>},
      {"cycle_failures", say_cycles<cycle_failures>},
      {"subgroup_of_itself", subgroup_of_itself},
      {"fork", fork_and_use},
      {"list_descriptors", list_descriptors_of_a_child},
      {"fork_and_die", fork_and_die},
      {"subgroup", make_subgroup},
      {"drop", [](auto&, auto& words) { subgroups().erase(words.at(1)); }},
      {"within", act_within},
      {"pause", [](auto&, auto&) { ::pause(); }},
      {"await_end", await_end_of},
      {"overwrite_control_page",
       [](auto&, auto&) {
         const std::vector<char> garbage(300, '\xa5');
         const auto fd = lockstep::env::integer("LOCKSTEP_CONTROL_FD", 0, 1 << 20).value();
         if (::pwrite(static_cast<int>(fd), garbage.data(), garbage.size(), 0) != 300)
           throw std::runtime_error("not written");
       }},
      {"take_folder",  // away, and puts a file in its place
       [](auto&, auto& words) {
         std::filesystem::remove_all(words.at(1));
         std::ofstream(words.at(1)) << "in the way";
       }},
      {"many_barriers",
       [](auto& group, auto& words) {
         for (int i = 0; i < number(words, 1); ++i) lockstep::barrier(group).wait();
       }},
      {"timeline", [](auto& group, auto& words) { recording.emplace(group, words.at(1)); }},
      {"timeline_end",
       [](auto& group, auto&) {
         say(group, "timeline: " + recording->write());
         recording.reset();
       }},
      {"range", [](auto&, auto& words) { const lockstep::TracedRange range(words.at(1)); }},
      {"counter", [](auto&, auto& words) { lockstep::traced_counter(words.at(1), std::stod(words.at(2))); }},
      {"sleep",
       [](auto&, auto& words) { std::this_thread::sleep_for(std::chrono::milliseconds(number(words, 1))); }},
      {"say", [](auto& group, auto& words) { say(group, words.at(1)); }},
      {"read", [](auto&, auto&) { read_line(); }},
      {"loop", [](auto& group,
                  auto& words) { throw EndEarly{loop(group, words.size() > 1 ? words[1] : std::string())}; }},
      {"loop_named", [](auto& group, auto&) { throw EndEarly{loop_named(group)}; }},
      {"named", [](auto& group, auto& words) { named(group, std::span(words).subspan(1)); }},
      {"collectives", say_collectives},
  };
  return known;
}

bool is_for(int rank, std::string& action) {
  const std::size_t colon = action.find(':');
  if (colon == std::string::npos) return true;
  const std::string whom = action.substr(0, colon);
  action = action.substr(colon + 1);
  return whom.starts_with('!') ? std::stoi(whom.substr(1)) != rank : std::stoi(whom) == rank;
}

int act(const Group& group, const Words& words, bool goes_on) {
  int exit_code = 0;
  for (std::string action : words) {
    if (!is_for(group.rank(), action)) continue;
    try {
      const Words parts = split_words(action, ',');
      actions().at(parts.at(0))(group, parts);
    } catch (const lockstep::Error& error) {
      complain(std::to_string(group.rank()), error);
      exit_code = 1;
      if (!goes_on) return exit_code;
    }
  }
  say(group, "of " + std::to_string(group.size()) + " done");
  return exit_code;
}

/// From now on a signal every so many microseconds, with a handler that ends system calls early.
void interrupt_every(int microseconds) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval interval{.it_interval = {0, microseconds}, .it_value = {0, microseconds}};
  ::setitimer(ITIMER_REAL, &interval, nullptr);
}

/// Takes the options off `words`.
lockstep::InitOptions take_options(Words& words, bool& goes_on) {
  lockstep::InitOptions options;
  int other_port = 0;
  while (!words.empty() && words.front().starts_with("--")) {
    const Words parts = split_words(words.front(), '=');
    if (parts[0] == "--rank") options.rank = number(parts, 1);
    if (parts[0] == "--size") options.size = number(parts, 1);
    if (parts[0] == "--address") options.address = parts.at(1);
    if (parts[0] == "--port") options.port = number(parts, 1);
    if (parts[0] == "--insecure") options.insecure = true;
    if (parts[0] == "--arena") options.arena_bytes = count(parts, 1);
    if (parts[0] == "--go-on") goes_on = true;
    if (parts[0] == "--interrupt-every") interrupt_every(number(parts, 1));
    if (parts[0] == "--other-port") other_port = number(parts, 1);
    if (parts[0] == "--cycles") std::cout << cycle_init(options, other_port, number(parts, 1)) << std::endl;
    if (parts[0] == "--worlds") std::cout << cycle_worlds(number(parts, 1)) << std::endl;
    words.erase(words.begin());
  }
  return options;
}

bool ends_a_world(const std::string& action) { return action == "next_world" || action == "shutdown"; }

int run(Words words) {
  // As it was told, until it is a rank.
  std::string rank = lockstep::env::text("RANK").value_or("-1");
  try {
    bool goes_on = false;
    const auto options = take_options(words, goes_on);
    int exit_code = 0;
    std::optional<Group> held;  // of a world that was shut down
    for (auto begin = words.begin(), end = begin; exit_code == 0 || goes_on; begin = end + 1) {
      end = std::find_if(begin, words.end(), ends_a_world);
      const Group world = lockstep::init(options);
      held.reset();
      rank = std::to_string(world.rank());
      const WithoutSubgroups afterwards;
      exit_code = std::max(exit_code, act(world, {begin, end}, goes_on));
      if (end == words.end()) break;
      if (*end != "shutdown") continue;
      lockstep::shutdown();
      held = world;
    }
    return exit_code;
  } catch (const EndEarly& end) {
    return end.exit_code;
  } catch (const lockstep::Error& error) {
    complain(rank, error);
    return 1;
  } catch (const WrongResult& error) {
    std::cerr << "probe rank=" << rank << " wrong: " << error.what() << "\n";
    return 3;
  } catch (const std::exception& error) {
    std::cerr << "probe rank=" << rank << " threw: " << error.what() << "\n";
    return 4;
  }
}

}  // namespace
}  // namespace probe

#ifdef __SANITIZE_ADDRESS__
/// What PMIx's library leaks is not ours to mend; LeakSanitizer asks for this.
extern "C" const char* __lsan_default_suppressions() { return "leak:libpmix.so\n"; }
#endif

int main(int argc, char** argv) { return probe::run({argv + 1, argv + argc}); }
