// `lockstep run --metrics`: what Prometheus would read of a job, and what clients that mean no good cannot do to it.
#include <csignal>
#include <map>
#include <regex>
#include <sstream>
#include <vector>

#include "tests/support/http_client.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Strictly as the text exposition format 0.0.4 has it: values by their name and labels.
std::map<std::string, double> parse_exposition(const std::string& text) {
  static const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) [^\n]+");
  static const std::regex type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge)");
  static const std::string label = R"re([a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\\\|\\"|\\n)*")re";
  static const std::regex sample("([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{" + label + "(," + label +
                                 ")*\\})? (NaN|[+-]Inf|-?[0-9.]+(e[+-][0-9]+)?)");
  std::map<std::string, double> values;
  std::map<std::string, std::string> types;
  std::string helped, typed;
  std::istringstream lines(text);
  EXPECT_TRUE(text.ends_with('\n'));
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, help)) {
      helped = found[1];
    } else if (std::regex_match(line, found, type)) {
      typed = found[1];
      EXPECT_EQ(typed, helped);
      EXPECT_TRUE(types.emplace(typed, found[2]).second) << typed << " has two parts";
      EXPECT_EQ(typed.ends_with("_total"), found[2] == "counter") << typed;
    } else if (std::regex_match(line, found, sample)) {
      EXPECT_EQ(found[1], typed) << line;
      const std::string key = found[1].str() + found[2].str();
      EXPECT_TRUE(values.emplace(key, std::stod(found[found.size() - 2])).second) << key << " is there twice";
    } else {
      ADD_FAILURE() << "no line of the format: " << line;
    }
  }
  return values;
}

class MetricsOf : public JobTest {
 protected:
  /// At port().
  Process job(const std::vector<std::string>& actions) const {
    std::vector<std::string> words = {program("lockstep"),   "run", "-np", "2", "--metrics",
                                      std::to_string(port())};
    words.push_back(program("probe_rank"));
    words.insert(words.end(), actions.begin(), actions.end());
    Process job = start(words);
    job.await_err("lockstep run: metrics are at http://127.0.0.1:" + std::to_string(port()) + "/metrics\n");
    return job;
  }
  std::string ask(const std::string& line) const { return http::ask(port(), line); }
  std::map<std::string, double> values() const {
    const std::string answer = ask("GET /metrics HTTP/1.1");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; "));
    return parse_exposition(answer.substr(answer.find("\r\n\r\n") + 4));
  }
  /// Asks until a value is there and at least so much; counters must not go back meanwhile.
  std::map<std::string, double> await_value(const std::string& name, double least) const {
    std::map<std::string, double> last;
    for (const Deadline limit = http::patience(); !limit.expired();) {
      auto now = values();
      for (const auto& [key, value] : last) {
        if (key.find("_total") != std::string::npos) {
          EXPECT_GE(now[key], value) << key;
        }
      }
      last = std::move(now);
      if (last.contains(name) && last[name] >= least) return last;
    }
    ADD_FAILURE() << name << " never is " << least;
    return last;
  }
  static void end(Process& job) {
    job.send(SIGTERM);
    (void)job.finish();
  }
};

TEST_F(MetricsOf, AJobAreWhatItsRanksHaveDone) {
  Process job = this->job(
      {"all_reduce,f32,1000", "all_reduce,f32,1000", "barrier", "counter,my \"count\",2.5", "pause"});
  for (const std::string rank : {"0", "1"}) {
    (void)await_value("lockstep_counter{name=\"my \\\"count\\\"\",rank=\"" + rank + "\"}", 2.5);
    (void)await_value("lockstep_calls_total{rank=\"" + rank + "\",operation=\"barrier\"}", 1);
  }
  auto seen = values();
  const auto arrivals = [&] {
    return seen["lockstep_last_arrivals_total{rank=\"0\"}"] +
           seen["lockstep_last_arrivals_total{rank=\"1\"}"];
  };
  for (const Deadline limit = http::patience(); arrivals() < 3 && !limit.expired();) seen = values();
  EXPECT_EQ(seen["lockstep_up"], 1);
  EXPECT_EQ(seen["lockstep_ranks"], 2);
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(seen["lockstep_calls_total{rank=\"" + rank + "\",operation=\"all_reduce\"}"], 2);
    EXPECT_EQ(seen["lockstep_call_bytes_total{rank=\"" + rank + "\",operation=\"all_reduce\"}"], 8000);
    EXPECT_GT(seen["lockstep_call_seconds_total{rank=\"" + rank + "\",operation=\"all_reduce\"}"], 0);
    EXPECT_GT(seen["lockstep_resident_bytes{rank=\"" + rank + "\"}"], 100'000);
    EXPECT_TRUE(seen.contains("lockstep_cpu_seconds_total{rank=\"" + rank + "\",mode=\"user\"}"));
    EXPECT_TRUE(seen.contains("lockstep_training_steps_total{rank=\"" + rank + "\"}"));
  }
  EXPECT_EQ(arrivals(), 3);
  end(job);
}

TEST_F(MetricsOf, AJobThatStartsAgainGoOn) {
  Process job = start({program("lockstep"), "run", "-np", "2", "--metrics", std::to_string(port()),
                       "--max-restarts", "1", "/bin/sh", "-c",
                       "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec " + program("probe_rank") +
                           " barrier barrier 0:read barrier 1:raise,9 pause; else exec " +
                           program("probe_rank") + " barrier pause; fi"});
  (void)await_value("lockstep_calls_total{rank=\"0\",operation=\"barrier\"}", 2);
  job.type("\n");
  const auto seen = await_value("lockstep_restarts", 1);
  EXPECT_GE(seen.at("lockstep_calls_total{rank=\"0\",operation=\"barrier\"}"), 2);
  (void)await_value("lockstep_calls_total{rank=\"0\",operation=\"barrier\"}", 3);
  end(job);
}

TEST_F(MetricsOf, ARankThatHasEndedStay) {
  Process job = this->job({"barrier", "1:return,0", "pause"});
  const auto seen = await_value("lockstep_calls_total{rank=\"1\",operation=\"barrier\"}", 1);
  EXPECT_TRUE(seen.contains("lockstep_cpu_seconds_total{rank=\"1\",mode=\"system\"}"));
  end(job);
}

TEST_F(MetricsOf, AJobAreAtOnePath) {
  Process job = this->job({"pause"});
  EXPECT_THAT(ask("GET /metrics?name[]=x HTTP/1.0"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(ask("GET / HTTP/1.1"), HasSubstr("\r\n\r\nThis job's numbers are at /metrics.\n"));
  for (const std::string request :
       {"GET /metrics/ HTTP/1.1", "GET /../etc/passwd HTTP/1.1", "POST /metrics HTTP/1.1", "GET HTTP/1.1",
        "GET/metrics HTTP/1.1", " ", "\x16\x03\x01"})
    EXPECT_THAT(ask(request), StartsWith("HTTP/1.1 404 Not Found\r\n")) << request;
  end(job);
}

TEST_F(MetricsOf, AJobAreServedWhileOthersSayNothingOrReadNothingOrTooMuch) {
  Process job = this->job({"0:read"});
  std::vector<Socket> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(http::connect(port()));
    if (i % 2 == 0) http::say(silent.back(), "GET /metrics HTTP/1.1\r\n");
  }
  Socket reads_nothing = http::connect(port());
  http::say(reads_nothing, "GET /metrics HTTP/1.1\r\n\r\n");
  Socket says_too_much = http::connect(port());
  http::say(says_too_much, "GET /metrics HTTP/1.1\r\nX: " + std::string(8192, 'x'));
  EXPECT_THAT(http::read_all(says_too_much), StartsWith("HTTP/1.1 431 "));
  EXPECT_EQ(values()["lockstep_up"], 1);
  EXPECT_EQ(http::read_all(silent.front()), "");  // it had to make room
  EXPECT_EQ(http::read_all(silent.back()), "");   // its time is over
  Socket last = http::connect(port());
  job.type("\n");
  EXPECT_EQ(job.finish().exit_code, 0);
}

TEST_F(MetricsOf, AJobWhosePortIsTakenAreAnErrorBeforeAnythingStarts) {
  take_port();
  const Ending ending =
      start({program("lockstep"), "run", "-np", "2", "--metrics", std::to_string(port()), "echo", "started"})
          .finish();
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_EQ(ending.out, "");
  EXPECT_THAT(lines_with(ending.err, "lockstep run: --metrics: port " + std::to_string(port()) +
                                         " on 127.0.0.1 is already in use; pass another --metrics"),
              ::testing::SizeIs(1))
      << ending.err;
}

TEST_F(MetricsOf, AJobAtPort0AreWhereTheLauncherSays) {
  const Ending ending = start({program("lockstep"), "run", "-np", "1", "--metrics", "0", "true"}).finish();
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_THAT(ending.err,
              ContainsRegex("lockstep run: metrics are at http://127\\.0\\.0\\.1:[1-9][0-9]+/metrics\n"));
}

TEST_F(MetricsOf, AnAddressThatIsNoneAreRefused) {
  for (const std::string address : {"x", "70000", ":9100", "-1"}) {
    const Ending ending =
        start({program("lockstep"), "run", "-np", "1", "true"}, {{"LOCKSTEP_METRICS", address}}).finish();
    EXPECT_EQ(ending.exit_code, 2) << address;
    EXPECT_THAT(ending.err, HasSubstr("LOCKSTEP_METRICS"));
  }
}

TEST_F(MetricsOf, SeveralHostsAreOfAllTheirRanks) {
  const std::string secret = secret_file("0123456789abcdef"), meeting = std::to_string(another_port());
  const auto launch = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {program("lockstep"), "run", "--nnodes",        "2",
                                      "--nproc-per-node",  "2",   "--rdzv-endpoint", "localhost:" + meeting};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {program("probe_rank"), "barrier", "counter,rate,7", "pause"});
    return start(words, {{"LOCKSTEP_SECRET_FILE", secret}});
  };
  Process leader = launch({"--node-rank", "0", "--metrics", std::to_string(port())}),
          follower = launch({"--node-rank", "1"});
  leader.await_err("metrics are at ");
  for (const std::string rank : {"0", "1", "2", "3"}) {
    (void)await_value("lockstep_counter{name=\"rate\",rank=\"" + rank + "\"}", 7);
    (void)await_value("lockstep_calls_total{rank=\"" + rank + "\",operation=\"barrier\"}", 1);
  }
  auto seen = values();
  EXPECT_EQ(seen["lockstep_ranks"], 4);
  for (const std::string rank : {"0", "1", "2", "3"})
    EXPECT_EQ(seen["lockstep_calls_total{rank=\"" + rank + "\",operation=\"barrier\"}"], 1) << rank;
  end(leader);
  (void)follower.finish();
}

}  // namespace
}  // namespace lockstep::testing
