#include "lockstep/view/report/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/view/report/document.h"
#include "lockstep/view/report/made_up_run_test.h"
#include "lockstep/view/report/thresholds.h"

namespace lockstep::view {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

constexpr double one_ms = 1e6;

Verdict verdict_of(const MadeUpTraining& training) { return judge(analyse(training.run())); }

/// The first finding, which the sentence ends with.
Finding first_finding(const Verdict& verdict) {
  if (verdict.findings.empty()) return {.text = "nothing found"};
  EXPECT_THAT(verdict.sentence, HasSubstr(verdict.findings.front().text));
  return verdict.findings.front();
}

TEST(RunVerdict, NamesTheRankWhoseLoaderIsSlowAndWhatItCosts) {
  MadeUpTraining training;
  training.ranks[3].data_ms = 5;
  const Verdict verdict = verdict_of(training);
  EXPECT_THAT(
      verdict.sentence,
      MatchesRegex(
          "1[0-9] % of the step is exposed communication; rank 3 arrives last in 100 % of steps, median "
          "[45]\\.[0-9] ms late, because its loader is slow \\(5\\.0 ms a step, 0 us on the others\\)\\."));
  const Finding first = first_finding(verdict);
  EXPECT_EQ(first.problem, Problem::late_rank);
  EXPECT_NEAR(first.gain_ns, 5 * one_ms, 0.2 * one_ms);
}

TEST(RunVerdict, OfAnMpiProgramNamesTheRankThatComesLate) {
  const auto run_with = [](int late, double late_ms) {
    RunData run{.name = "mpi"};
    run.timeline.groups = {{1, "MPI_COMM_WORLD"}};
    for (int rank = 0; rank < 3; ++rank) {
      RankTimeline timeline{.rank = rank, .pid = 1, .host = "a"};
      for (int i = 0; i < 50; ++i) {
        const std::uint64_t all = made_up_ns(10.0 * i + late_ms);
        timeline.mpi_calls.push_back({.begin_ns = rank == late ? all : made_up_ns(10.0 * i),
                                      .arrived_ns = all,
                                      .end_ns = all + made_up_ms,
                                      .bytes = 800,
                                      .routine = "MPI_Allreduce",
                                      .communicator = 1,
                                      .has_arrived = true,
                                      .has_bytes = true});
      }
      run.timeline.ranks.push_back(std::move(timeline));
    }
    return run;
  };
  const Analysis late = analyse(run_with(2, 4));
  EXPECT_EQ(judge(late).sentence,
            "37 % of the run is communication (73 % of it waiting for others); rank 2 arrives last in 100 % "
            "of MPI_Allreduce calls, "
            "median 4.0 ms late.");
  ASSERT_THAT(late.mpi, SizeIs(1));
  EXPECT_EQ(late.mpi[0].calls, 150U);
  EXPECT_EQ(late.mpi[0].bytes, 150U * 800);
  EXPECT_THAT(late.notes, IsEmpty());
  EXPECT_THAT(judge(analyse(run_with(-1, 0))).sentence,
              MatchesRegex("Nothing stands out: 10 % of the run is communication \\(0 % of it waiting for "
                           "others\\), and no rank is late .*"));
  RunData holes = run_with(2, 4);
  holes.timeline.ranks[0].mpi_calls.erase(holes.timeline.ranks[0].mpi_calls.begin() + 5);
  EXPECT_THAT(analyse(holes).notes, ::testing::ElementsAre(HasSubstr("calls are missing in the timeline")));
}

TEST(RunVerdict, TellsASlowForwardFromASharedCore) {
  MadeUpTraining training;
  training.ranks[1].compute_ms = 26;
  EXPECT_THAT(first_finding(verdict_of(training)).text,
              HasSubstr("because its forward and backward take longer (26 ms a step, 20 ms on the others)"));
  training.ranks[1].cores = 0.6;
  EXPECT_THAT(first_finding(verdict_of(training)).text,
              HasSubstr("because its core is shared: it had one for 60 % of the time it was ready to run"));
}

TEST(RunVerdict, TellsASlowTransferFromALateArrival) {
  MadeUpTraining training;
  training.ranks[2].transfer_ms = 6;
  EXPECT_THAT(first_finding(verdict_of(training)).text,
              MatchesRegex(
                  "rank 2 arrives last in 100 % of steps, .*because the transfer to it is slow \\(6\\.2 ms a "
                  "step, 200 us on the others\\)"));
}

TEST(RunVerdict, SaysWhichLinkIsSlowWhereNobodyIsLate) {
  RunData run = MadeUpTraining{.work_ms = 4}.run();
  for (RankTimeline& rank : run.timeline.ranks) {
    for (const trace::TrainingStepEvent& step : rank.steps) {
      trace::CollectiveEvent call{};
      call.sequence = step.step;
      call.begin_ns = call.arrived_ns = step.last_gradient_ns + made_up_ns(0.1);
      call.end_ns = call.arrived_ns + made_up_ns(rank.rank == 1 ? 3 : 1);
      call.operation = Operation::all_reduce;
      call.elements = 1 << 20;
      rank.calls.push_back(call);
    }
  }
  const Verdict verdict = judge(analyse(run));
  const auto slow = std::ranges::find(verdict.findings, Problem::slow_link, &Finding::problem);
  ASSERT_NE(slow, verdict.findings.end());
  EXPECT_EQ(slow->text, "the transfer to rank 1 is slow: median 3.0 ms a call, 1.0 ms on the others");
  EXPECT_NEAR(slow->gain_ns, 2 * one_ms, 0.1 * one_ms);
}

TEST(RunVerdict, AdvisesLargerBatchesWhereStepsAreSmall) {
  MadeUpTraining training{.ranks = std::vector<MadeUpRank>(2, {.compute_ms = 2, .optimizer_ms = 0.1}),
                          .work_ms = 3};
  training.jitter_ms = 0.01;
  const Finding first = first_finding(verdict_of(training));
  EXPECT_EQ(first.problem, Problem::small_step);
  EXPECT_EQ(first.text,
            "steps are small: 2.0 ms of computing for 3.0 ms of communication that nothing covers");
  EXPECT_NEAR(first.gain_ns, 1.5 * one_ms, 0.05 * one_ms);
}

TEST(RunVerdict, SeesBucketsThatAreReadyTooLate) {
  const Finding first = first_finding(verdict_of({.work_ms = 6, .buckets = 8, .buckets_complete = 0}));
  EXPECT_EQ(first.problem, Problem::late_buckets);
  EXPECT_THAT(first.text, HasSubstr("only 0.0 of 8 buckets are complete at the last gradient"));
  EXPECT_NEAR(first.gain_ns, 6 * one_ms * 7 / 8, 0.1 * one_ms);
  EXPECT_EQ(first_finding(verdict_of({.work_ms = 6, .buckets = 8, .buckets_complete = 7})).problem,
            Problem::transfer);
}

TEST(RunVerdict, NamesTheConnectionThatIsSlow) {
  const auto with_links = [](double slowest) {
    RunData run = MadeUpTraining{.work_ms = 6}.run();
    for (trace::FlightRank& rank : run.record->ranks)
      rank.sent = {{.peer = (rank.rank + 1) % 4, .bytes = 1'000'000'000, .busy_ns = 1'000'000'000}};
    run.record->ranks[2].sent[0].busy_ns = static_cast<std::uint64_t>(1e9 * slowest);
    run.record->ranks[2].sent.push_back({.peer = 0, .bytes = 1000, .busy_ns = 1'000'000'000});
    return judge(analyse(run));
  };
  const Finding first = first_finding(with_links(5));
  EXPECT_EQ(first.problem, Problem::slow_link);
  EXPECT_EQ(first.text,
            "the connection from rank 2 to rank 3 is slow: it carries 0.20 GB/s while it is busy, the others "
            "1.00 GB/s");
  EXPECT_NEAR(first.gain_ns, 0.8 * 6 * one_ms, 0.1 * one_ms);
  EXPECT_EQ(first_finding(with_links(1.5)).problem, Problem::transfer);
}

// Of six connections between three ranks four are slow: what rank 2 sends, and what waits for its acknowledgements.
TEST(RunVerdict, NamesAConnectionOfTheRankOfWhichAllAreSlow) {
  RunData run = MadeUpTraining{.ranks = std::vector<MadeUpRank>(3), .work_ms = 6}.run();
  const auto busy_ns = [](int from, int to) -> std::uint64_t {
    if (from == 2) return to == 0 ? 5'000'000'000 : 4'900'000'000;
    return to == 2 ? 4'000'000'000 : 1'000'000'000;
  };
  for (trace::FlightRank& rank : run.record->ranks) {
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != rank.rank)
        rank.sent.push_back({.peer = peer, .bytes = 1'000'000'000, .busy_ns = busy_ns(rank.rank, peer)});
    }
  }
  EXPECT_EQ(first_finding(judge(analyse(run))).text,
            "the connection from rank 2 to rank 0 is slow: it carries 0.20 GB/s while it is busy, the others "
            "1.00 GB/s");
}

TEST(RunVerdict, SeesThatAllWaitForTheirData) {
  const Finding first = first_finding(verdict_of({.ranks = std::vector<MadeUpRank>(3, {.data_ms = 8})}));
  EXPECT_EQ(first.problem, Problem::data);
  EXPECT_THAT(first.text, MatchesRegex("all ranks wait 2[0-9] % of each step for their data"));
}

TEST(RunVerdict, SeesThatRanksTakeTurnsInBeingLate) {
  const Finding first = first_finding(verdict_of({.jitter_ms = 5}));
  EXPECT_EQ(first.problem, Problem::uneven);
  EXPECT_THAT(first.text, HasSubstr("no one rank is late: they take turns"));
}

TEST(RunVerdict, SeesThatAllCoresAreShared) {
  const Finding first = first_finding(verdict_of({.ranks = std::vector<MadeUpRank>(2, {.cores = 0.5})}));
  EXPECT_EQ(first.problem, Problem::busy_cores);
  EXPECT_THAT(first.text, HasSubstr("ranks had a core for 50 % of the time they were ready to run"));
}

TEST(RunVerdict, SaysThatNothingStandsOut) {
  const Verdict verdict = verdict_of({});
  EXPECT_THAT(verdict.findings, IsEmpty());
  EXPECT_THAT(verdict.sentence,
              MatchesRegex("Nothing stands out: [0-9.]+ % of the step is exposed communication, and no "
                           "rank is late more than by chance\\."));
}

TEST(RunVerdict, ConcludesNothingFromFewSteps) {
  MadeUpTraining training{.steps = static_cast<int>(Thresholds::fewest)};
  training.ranks[3].data_ms = 50;
  const Verdict verdict = verdict_of(training);
  EXPECT_THAT(verdict.findings, IsEmpty());
  EXPECT_THAT(verdict.sentence, HasSubstr("of fewer than 20 steps nothing more can be said"));
}

TEST(RunVerdict, OfAFailedRunBeginsWithWhoFailedFirst) {
  RunData run = MadeUpTraining{}.run();
  run.record->at_ns = 10 * made_up_ms;
  run.record->first_cause = {ErrorCode::peer_lost, 2, 0, "rank 2 is gone"};
  run.record->ranks[2].left = false;
  run.record->ranks[2].ending = {.exit_code = 0, .signal = 9, .order = 1};
  const Verdict verdict = judge(analyse(run));
  EXPECT_THAT(verdict.sentence,
              MatchesRegex("The run failed: dead rank: rank 2 \\(pid 102\\) was killed by signal 9.*"));
  EXPECT_EQ(verdict.findings.front().problem, Problem::failure);
  EXPECT_THAT(document_of(analyse(run), verdict).failure, Not(IsEmpty()));
}

TEST(RunVerdict, OfAProgramThatOnlyCallsNamesTheShareAndWhoIsLate) {
  const Verdict verdict = judge(analyse(made_up_calls(4, 100, 2, 4)));
  EXPECT_THAT(verdict.sentence,
              MatchesRegex("40 % of the run is communication \\(75 % of it waiting for others\\); rank 2 "
                           "arrives last in 100 % of all_reduce calls, median 4\\.0 ms late\\."));
  ASSERT_THAT(verdict.findings, SizeIs(1));
  EXPECT_NEAR(verdict.findings[0].gain_ns, 400 * one_ms, 5 * one_ms);
}

TEST(RunVerdict, OfNothingAtAllIsASentenceToo) {
  const Verdict verdict = judge(analyse(RunData{}));
  EXPECT_THAT(verdict.sentence, MatchesRegex("How long the run took is not known; .*\\."));
}

TEST(RunDifference, SaysWhatChangedMostAndWhatIsNoise) {
  MadeUpTraining training{.jitter_ms = 0.3};
  const Analysis before = analyse(training.run());
  EXPECT_THAT(difference_of(before, before).sentence,
              HasSubstr("A step takes as long as before, as far as noise lets tell"));
  training.ranks.assign(4, {.data_ms = 7});
  EXPECT_THAT(
      difference_of(before, analyse(training.run())).sentence,
      MatchesRegex(
          "A step takes 3[0-9] % more: 2[0-9] ms then, 2[0-9] ms now; mostly waiting for data: 0 us then, "
          "7\\.0 ms now\\."));
}

}  // namespace
}  // namespace lockstep::view
