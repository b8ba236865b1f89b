#include "lockstep/group/tf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/failure_test.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string config(const std::string& cluster, const std::string& task) {
  return "{\"cluster\": {" + cluster + "}, \"task\": {" + task + "}}";
}

const std::string both = R"("chief": ["a:2222"], "worker": ["b:2223", "[fe80::1]:2224"])";

TEST(TfConfig, HasTheChiefAsRank0AndWorkersBehindIt) {
  const TfConfig chief = parse_tf_config(config(both, R"("type": "chief", "index": 0)"));
  EXPECT_EQ(chief.rank, 0);
  EXPECT_EQ(chief.size, 3);
  EXPECT_EQ(chief.host, "a");
  EXPECT_EQ(chief.port, 2222);
  const TfConfig worker = parse_tf_config(config(both, R"("type": "worker", "index": 1)"));
  EXPECT_EQ(worker.rank, 2);
  EXPECT_EQ(worker.host, "a");
}

TEST(TfConfig, WithoutAChiefHasTheFirstWorkerAsRank0) {
  const TfConfig found =
      parse_tf_config(config(R"("worker": ["[fe80::1]:2224", "b:1"])", R"("type": "worker", "index": "1")"));
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 2);
  EXPECT_EQ(found.host, "fe80::1");
  EXPECT_EQ(found.port, 2224);
  EXPECT_EQ(found.role, "default");
}

TEST(TfConfig, HasParameterServersBeforeTheChiefAndWorkersEachWithItsRole) {
  const std::string cluster = R"("worker": ["d:1", "e:1"], "chief": ["c:1"], "ps": ["a:7", "b:1"])";
  const auto of = [&](const std::string& type, int index) {
    return parse_tf_config(
        config(cluster, "\"type\": \"" + type + "\", \"index\": " + std::to_string(index)));
  };
  int rank = 0;
  for (const auto& [type, index] :
       {std::pair("ps", 0), {"ps", 1}, {"chief", 0}, {"worker", 0}, {"worker", 1}}) {
    const TfConfig found = of(type, index);
    EXPECT_EQ(found.rank, rank++);
    EXPECT_EQ(found.size, 5);
    EXPECT_EQ(found.role, type);
    EXPECT_EQ(found.host, "a");
    EXPECT_EQ(found.port, 7);
  }
  EXPECT_EQ(of("evaluator", 0).role, "default");
}

TEST(TfConfig, MakesAnEvaluatorAWorldOfItsOwn) {
  const TfConfig found = parse_tf_config(config(both, R"("type": "evaluator", "index": 0)"));
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(found.size, 1);
}

TEST(TfConfig, SaysWhatIsWrongAndWhere) {
  const auto why = [](const std::string& text) {
    return test::failure_of([&] { parse_tf_config(text); }, ErrorCode::invalid_argument);
  };
  const std::string worker = R"("type": "worker", "index": 0)";
  EXPECT_THAT(why("{\"cluster\": "),
              StartsWith("TF_CONFIG: it is no JSON (at byte 13); write for example {\"cluster\""));
  EXPECT_THAT(why("[9e333]"), StartsWith("TF_CONFIG: it has a number that is too large to be one; write"));
  EXPECT_THAT(why("[]"), StartsWith("TF_CONFIG: it is no object; write for example"));
  EXPECT_THAT(why("{\"task\": {}}"), StartsWith("TF_CONFIG: \"cluster\" is missing, or no object"));
  EXPECT_THAT(why("{\"cluster\": {}, \"task\": 1}"),
              StartsWith("TF_CONFIG: \"task\" is missing, or no object"));
  EXPECT_EQ(why(config(both, "")), "TF_CONFIG: the task has no type, or one that is no text");
  EXPECT_EQ(why(config(both, R"("type": "boss", "index": 0)")),
            "TF_CONFIG: the task's type \"boss\" is none of chief, worker, ps, evaluator");
  EXPECT_EQ(why(config(both, R"("type": "worker")")),
            "TF_CONFIG: the task has no index, or one that is no number");
  EXPECT_EQ(why(config(both, R"("type": "worker", "index": 2)")),
            "TF_CONFIG: the task is \"worker\" 2, but the cluster has 2 of that type");
  EXPECT_EQ(why(config(both, R"("type": "worker", "index": -1)")),
            "TF_CONFIG: the task is \"worker\" -1, but the cluster has 2 of that type");
  EXPECT_THAT(why(config(both, R"("type": "worker", "index": "x")")),
              StartsWith("TF_CONFIG: the task's index"));
  EXPECT_EQ(why(config(R"("chief": ["a:1", "b:1"])", R"("type": "chief", "index": 0)")),
            "TF_CONFIG: the cluster has 2 chiefs; there can be one");
  EXPECT_EQ(why(config(R"("worker": "a:1")", worker)),
            "TF_CONFIG: cluster's \"worker\" is no list of addresses");
  EXPECT_EQ(why(config(R"("worker": [1])", worker)),
            "TF_CONFIG: cluster's \"worker\" has an address that is no text");
  EXPECT_EQ(why(config(R"("worker": ["a"])", worker)),
            "TF_CONFIG: address \"a\" is not of the form host:port");
  EXPECT_THAT(why(config(R"("worker": ["a:0"])", worker)), StartsWith("TF_CONFIG: the port of \"a:0\""));
  EXPECT_THAT(why(std::string((1 << 20) + 1, ' ')), HasSubstr("are more than"));
}

}  // namespace
}  // namespace lockstep
