#include "lockstep/train/parameter_server/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lockstep/base/error.h"

namespace lockstep::ps {
namespace {

using ::testing::HasSubstr;

Variable variable(std::vector<std::int64_t> sizes, torch::ScalarType type = torch::kFloat32,
                  bool is_table = false) {
  return {.name = "v", .type = type, .sizes = std::move(sizes), .is_table = is_table};
}

TEST(Placement, GivesEachServerAboutAsManyBytes) {
  const Placement placement({variable({10, 4}), variable({4}), variable({1000, 4}), variable({})}, 3);
  for (int server = 0; server < 3; ++server)
    EXPECT_NEAR(static_cast<double>(placement.bytes(server)), 4045 * 4 / 3.0, 16);
  EXPECT_EQ(placement.pieces(0), (std::vector<Piece>{{0, 0, 10}, {1, 0, 4}, {2, 0, 326}}));
  EXPECT_EQ(placement.pieces(1), (std::vector<Piece>{{2, 326, 337}}));
  EXPECT_EQ(placement.pieces(2), (std::vector<Piece>{{2, 663, 337}, {3, 0, 1}}));
}

TEST(Placement, CutsTablesByTheirRows) {
  const Placement placement({variable({7, 4}, torch::kFloat64, true), variable({8})}, 2);
  EXPECT_EQ(placement.pieces(0), (std::vector<Piece>{{0, 0, 4}, {1, 0, 4}}));
  EXPECT_EQ(placement.pieces(1), (std::vector<Piece>{{0, 4, 3}, {1, 4, 4}}));
  ASSERT_EQ(placement.stretches(1).size(), 1U) << "tables lie in no stretch";
  EXPECT_EQ(placement.stretches(1)[0].begin, 4);
  EXPECT_EQ(placement.stretches(1)[0].elements, 4);
}

TEST(Placement, OfAnyVariablesHasEachRowOnceAndStretchesInOnePiece) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Variable> variables;
    for (std::size_t count = random() % 7; variables.size() < count;) {
      std::vector<std::int64_t> sizes;
      for (std::size_t dim = random() % 4; sizes.size() < dim;)
        sizes.push_back(static_cast<std::int64_t>(random() % 6));
      variables.push_back(variable(sizes, random() % 2 == 0 ? torch::kFloat32 : torch::kFloat64,
                                   !sizes.empty() && random() % 4 == 0));
    }
    const int servers = 1 + static_cast<int>(random() % 5);
    const Placement placement(variables, servers);
    std::vector<std::int64_t> next(variables.size());  // the first row that no server has yet
    std::map<torch::ScalarType, std::int64_t> ends;
    for (int server = 0; server < servers; ++server) {
      for (const Piece& piece : placement.pieces(server)) {
        EXPECT_EQ(piece.first_row, next[piece.variable]);
        next[piece.variable] += piece.rows;
      }
      for (const auto& stretch : placement.stretches(server)) {
        EXPECT_EQ(stretch.begin, ends[stretch.type]) << "the next one begins where the last one ends";
        ends[stretch.type] += stretch.elements;
      }
    }
    std::map<torch::ScalarType, std::int64_t> totals;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      EXPECT_EQ(next[i], variables[i].rows());
      if (!variables[i].is_table)
        totals[variables[i].type] += variables[i].rows() * variables[i].row_elements();
    }
    for (const auto& [type, total] : totals) EXPECT_EQ(ends[type], total);
  }
}

TEST(Placement, NamesTablesThatAreNone) {
  const std::vector<NamedTensor> parameters{{"a", torch::ones({3, 2})}, {"scalar", torch::ones({})}};
  const auto failure = [&](const std::string& table) -> std::string {
    try {
      (void)variables_of(parameters, std::vector{table});
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(failure("a"), "nothing");
  EXPECT_THAT(failure("b"), HasSubstr("tables names 'b', which is no trainable parameter"));
  EXPECT_THAT(failure("scalar"), HasSubstr("the table 'scalar' has no rows"));
}

}  // namespace
}  // namespace lockstep::ps
