// fetch_dataset() from a server of the test's own: what it asks for, what it does with bad answers, and what
// is in the folder afterwards.
#include <sys/resource.h>

#include <atomic>
#include <fstream>

#include "lockstep/base/failure_test.h"
#include "lockstep/data/cifar10.h"
#include "lockstep/data/fetch/published.h"
#include "lockstep/data/idx.h"
#include "lockstep/group/threads_test.h"
#include "publisher_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using State = FetchProgress::State;

const std::string images = "train-images-idx3-ubyte.gz";

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Fetch : public PublisherTest {
 protected:
  void fetch(const FetchOptions& options) const { fetch_dataset(PublicDataset::mnist, data(), options); }
  void fetch_cifar10(const FetchOptions& options) const {
    fetch_dataset(PublicDataset::cifar10, data(), options);
  }
  std::string failure(const FetchOptions& options, ErrorCode code) const {
    return test::failure_of([&] { fetch(options); }, code);
  }
};

TEST_F(Fetch, BringsIdxFilesThatReadersTake) {
  fetch(from("ranges"));
  EXPECT_EQ(there(), mnist_files());
  EXPECT_EQ(IdxFile(find_idx_pair(data() / "train").images).size(), 20U);
  EXPECT_EQ(IdxFile(find_idx_pair(data() / "t10k").labels).label(7), 7);
}

TEST_F(Fetch, BringsCifar10ThatReadersTake) {
  fetch_cifar10(cifar10_from("ranges", "cifar-10-binary.tar.gz"));
  EXPECT_THAT(there(), SizeIs(6));
  EXPECT_EQ(Cifar10Files(data(), Cifar10Part::train).size(), 15U);
  EXPECT_EQ(Cifar10Files(data(), Cifar10Part::test).read(2).label, 2);
}

TEST_F(Fetch, TakesSha256AsWell) {
  FetchOptions options = cifar10_from("ranges", "cifar-10-binary.tar.gz");
  options.checksums["cifar-10-binary.tar.gz"] = sha256("cifar-10-binary.tar.gz");
  fetch_cifar10(options);
  EXPECT_THAT(there(), SizeIs(6));
}

TEST_F(Fetch, AsksForNothingThatIsThere) {
  fetch(from("ranges"));
  fs::remove(data() / "t10k-labels-idx1-ubyte");
  std::vector<State> states;
  FetchOptions options = from("ranges");
  options.progress = [&](const FetchProgress& progress) { states.push_back(progress.state); };
  fetch(options);
  EXPECT_THAT(states, ElementsAre(State::already_there, State::already_there, State::already_there,
                                  State::fetching, State::fetching, State::unpacking, State::done));
  EXPECT_THAT(requests(), SizeIs(5));
}

TEST_F(Fetch, GoesOnWhereAConnectionWasCut) {
  fetch(from("cut"));
  EXPECT_EQ(there(), mnist_files());
  const auto asked = requests();
  EXPECT_THAT(asked, Contains(images + " -"));
  EXPECT_THAT(asked, Contains(StartsWith(images + " bytes=")).Times(::testing::Ge(3)));
}

TEST_F(Fetch, BeginsAnewWhereTheServerKnowsNoRanges) {
  FetchOptions options = from("cut_no_ranges");
  options.attempts = 2;
  fetch(options);
  EXPECT_EQ(there(), mnist_files());
}

TEST_F(Fetch, GoesOnInALaterCall) {
  FetchOptions options = from("always_cut");
  EXPECT_THAT(failure(options, ErrorCode::system), HasSubstr("/always_cut/" + images));
  ASSERT_THAT(there(), ElementsAre(images + ".part"));
  const auto had = fs::file_size(data() / (images + ".part"));
  EXPECT_GT(had, 1000U);
  fetch(from("ranges"));
  EXPECT_EQ(there(), mnist_files());
  EXPECT_THAT(requests(), Contains(images + " bytes=" + std::to_string(had) + "-"));
}

TEST_F(Fetch, GivesUpOnAServerThatBringsNothingNew) {
  FetchOptions options = from("always_cut");
  options.attempts = 3;
  EXPECT_NE(failure(options, ErrorCode::system), "");
  EXPECT_THAT(requests(), SizeIs(4));  // the first brings something
}

TEST_F(Fetch, TakesAWholePartAsItIs) {
  FetchOptions options = from("ranges");
  options.most_unpacked_bytes = 10;  // all of it comes, and then this call ends
  EXPECT_THAT(failure(options, ErrorCode::corrupt_data),
              HasSubstr("more than the 10 bytes that it may have"));
  ASSERT_THAT(there(), ElementsAre(images + ".part"));
  fetch(from("ranges"));
  EXPECT_EQ(there(), mnist_files());
}

TEST_F(Fetch, BeginsAnewWhereThePartIsOfAnotherFile) {
  fs::create_directory(data());
  std::ofstream(data() / (images + ".part")) << "of another day";
  fetch(from("ranges"));
  EXPECT_EQ(there(), mnist_files());
  EXPECT_THAT(requests(), AllOf(Contains(images + " bytes=14-"), Contains(images + " -")));
}

TEST_F(Fetch, ARangeThatWasNotAskedForIsRefused) {
  fs::create_directory(data());
  std::ofstream(data() / (images + ".part")) << "begun";
  EXPECT_THAT(failure(from("wrong_range"), ErrorCode::corrupt_data),
              HasSubstr("asked for the bytes from 5 on"));
  fetch(from("wrong_range"));
  EXPECT_EQ(there(), mnist_files());
}

TEST_F(Fetch, AWrongChecksumLeavesNothing) {
  const std::string text = failure(from("wrong"), ErrorCode::corrupt_data);
  EXPECT_THAT(text, AllOf(HasSubstr("MNIST's " + images + " has the checksum "),
                          HasSubstr("not " + md5(images)), HasSubstr("--url")));
  EXPECT_THAT(there(), IsEmpty());
}

TEST_F(Fetch, TellsWhatTheServerAnswers) {
  EXPECT_THAT(failure(from("missing"), ErrorCode::system),
              AllOf(HasSubstr("cannot fetch MNIST: " + url("missing")),
                    HasSubstr("answers 404 (there is no such file)")));
  EXPECT_THAT(failure(from("failing"), ErrorCode::system), HasSubstr("503"));
  EXPECT_THAT(there(), IsEmpty());
}

TEST_F(Fetch, OnlyWhatMayPassIsTriedAgain) {
  for (const char* const behaviour : {"missing", "failing"}) {
    FetchOptions options = from(behaviour);
    options.attempts = 3;
    EXPECT_NE(failure(options, ErrorCode::system), "");
  }
  EXPECT_THAT(requests(), SizeIs(1 + 3));
}

TEST_F(Fetch, NobodyThereIsSaid) {
  FetchOptions options = from("ranges");
  options.url = "http://127.0.0.1:" + std::to_string(port());
  EXPECT_THAT(failure(options, ErrorCode::system), HasSubstr("127.0.0.1:" + std::to_string(port())));
}

TEST_F(Fetch, FollowsRedirectsButNotForEverAndNotAnywhere) {
  fetch(from("moved"));
  EXPECT_EQ(there(), mnist_files());
  fs::remove_all(data());
  EXPECT_THAT(failure(from("circle"), ErrorCode::system), HasSubstr("redirects"));
  EXPECT_NE(failure(from("to_file"), ErrorCode::system), "");
  EXPECT_THAT(there(), IsEmpty());
}

TEST_F(Fetch, AServerThatSendsNothingIsATimeout) {
  FetchOptions options = from("silent");
  options.stall_timeout = std::chrono::seconds(1);
  EXPECT_THAT(failure(options, ErrorCode::timeout), HasSubstr("/silent/"));
  options = from("silent");
  options.timeout = std::chrono::milliseconds(200);
  EXPECT_THAT(failure(options, ErrorCode::timeout), HasSubstr("the time is over"));
}

TEST_F(Fetch, MoreBytesThanAllowedAreRefused) {
  FetchOptions options = from("endless");
  options.most_fetched_bytes = 1 << 20;
  EXPECT_THAT(failure(options, ErrorCode::corrupt_data), HasSubstr("more than the 1048576 bytes"));
  EXPECT_THAT(there(), IsEmpty());
}

TEST_F(Fetch, ADiskWithoutRoomIsSaidAndWhatCameStays) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = failure(from("ranges"), ErrorCode::system);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(text,
              AllOf(HasSubstr("cannot write"), HasSubstr(images + ".part"), HasSubstr("File too large")));
  fetch(from("ranges"));
  EXPECT_EQ(there(), mnist_files());
}

TEST_F(Fetch, NoMemberOfAnArchiveGetsOutOfTheFolder) {
  for (const char* const kind :
       {"climbing", "climbing_inside", "absolute", "linking", "hard_linking", "device"}) {
    const std::string text =
        test::failure_of([&] { fetch_cifar10(cifar10_from(kind, kind)); }, ErrorCode::corrupt_data);
    EXPECT_THAT(
        text, ::testing::AnyOf(HasSubstr("would lie outside of the folder"), HasSubstr("is no regular file")))
        << kind;
    EXPECT_THAT(there(), ElementsAre("cifar-10-binary.tar.gz.part")) << kind;
    fs::remove_all(data());
  }
  EXPECT_FALSE(fs::exists(folder() / "outside.bin"));
  EXPECT_FALSE(fs::exists("/tmp/outside.bin"));
}

TEST_F(Fetch, AnArchiveThatIsNotWholeLeavesNoFile) {
  const std::pair<const char*, const char*> wrong[] = {
      {"incomplete", "there is no \"cifar-10-batches-bin/test_batch.bin\" in it"},
      {"truncated", "cifar-10-binary.tar.gz: it cannot be unpacked"},
      {"no_gzip", "cifar-10-binary.tar.gz: it "}};
  for (const auto& [kind, says] : wrong) {
    EXPECT_THAT(test::failure_of([&, kind = kind] { fetch_cifar10(cifar10_from(kind, kind)); },
                                 ErrorCode::corrupt_data),
                HasSubstr(says));
    EXPECT_THAT(there(), ElementsAre("cifar-10-binary.tar.gz.part"));
    fs::remove_all(data());
  }
}

TEST_F(Fetch, MembersThatNobodyAskedForStayInTheArchive) {
  fetch_cifar10(cifar10_from("strange", "strange"));
  EXPECT_THAT(there(), SizeIs(6));
}

TEST_F(Fetch, AnotherFileOfThatNameIsLeftAlone) {
  fs::create_directory(data());
  std::ofstream(data() / "train-images-idx3-ubyte") << "the user's own";
  FetchOptions options = from("ranges");
  options.checksums = {};
  EXPECT_THAT(
      failure(options, ErrorCode::invalid_argument),
      AllOf(HasSubstr("is there with 14 bytes, and MNIST's has 47040016"), HasSubstr("another folder")));
  EXPECT_EQ(content_of(data() / "train-images-idx3-ubyte"), "the user's own");
  EXPECT_THAT(requests(), IsEmpty());
}

TEST_F(Fetch, OfTwoAtOnceOneFetchesAndTheOtherWaits) {
  std::vector<std::string> words = {program("lockstep"), "fetch", "mnist", data(), "--url", url("hold")};
  for (const auto& [file, sum] : from("hold").checksums)
    words.insert(words.end(), {"--checksum", file + "=" + sum});
  Process first = start(words);
  server().await("holding\n");
  std::atomic<int> waits = 0;
  FetchOptions options = from("hold");
  options.progress = [&](const FetchProgress& progress) {
    if (progress.state == State::waiting && waits++ == 0) server().type("go\n");
  };
  fetch(options);
  const Ending ending = first.finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_GE(waits, 1);
  EXPECT_EQ(there(), mnist_files());
  EXPECT_THAT(requests(), SizeIs(4)) << "each file is fetched once";
}

TEST_F(Fetch, WaitsForAnotherProcessNoLongerThanItsTime) {
  Process first = start({program("lockstep"), "fetch", "mnist", data(), "--url", url("hold")});
  server().await("holding\n");
  FetchOptions options = from("hold");
  options.timeout = std::chrono::milliseconds(100);
  EXPECT_THAT(failure(options, ErrorCode::timeout), HasSubstr("another process still fetches"));
}

TEST_F(Fetch, AfterAKillTheNextGoesOn) {
  const fs::path part = data() / (images + ".part");
  {
    Process killed = start({program("lockstep"), "fetch", "mnist", data(), "--url", url("hold")});
    server().await("holding\n");
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    std::error_code none;
    while (!deadline.expired() && (!fs::exists(part, none) || fs::file_size(part, none) == 0))
      ::sched_yield();
    killed.send(SIGKILL);
    EXPECT_EQ(killed.finish().exit_code, 128 + SIGKILL);
  }
  const auto had = fs::file_size(part);
  fetch(from("ranges"));
  EXPECT_EQ(there(), mnist_files());
  EXPECT_THAT(requests(), Contains(images + " bytes=" + std::to_string(had) + "-"));
}

TEST_F(Fetch, OneRankOfAHostFetchesAndAllGoOn) {
  test::on_ranks(3, [&](Group& world) {
    fetch_dataset(world, PublicDataset::mnist, data(), from("ranges"));
    EXPECT_EQ(there(), mnist_files());
  });
  EXPECT_THAT(requests(), SizeIs(4));
}

TEST_F(Fetch, ItsFailureIsEveryRanks) {
  test::on_ranks(3, [&](Group& world) {
    const std::string text = test::failure_of(
        [&] { fetch_dataset(world, PublicDataset::mnist, data(), from("missing")); }, ErrorCode::system);
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 failed"), HasSubstr("404")));
  });
}

TEST_F(Fetch, OfAGroupEndsBeforeTheOthersGiveUp) {
  test::on_ranks(2,
                 [&](Group& world) {
                   const std::string text = test::failure_of(
                       [&] { fetch_dataset(world, PublicDataset::mnist, data(), from("silent")); },
                       ErrorCode::timeout);
                   EXPECT_THAT(text, HasSubstr("the time is over"));
                 },
                 {.timeout = std::chrono::seconds(4)});
}

TEST(FetchOptions, ThatCannotWorkAreRefusedAtOnce) {
  const auto refusal = [](const FetchOptions& options) {
    return test::failure_of([&] { (void)fetch::published(PublicDataset::mnist, options); },
                            ErrorCode::invalid_argument);
  };
  EXPECT_THAT(refusal({.url = "ftp://host/"}), HasSubstr("must begin with http:// or https://"));
  EXPECT_THAT(refusal({.url = "http://host/get?set=mnist"}), HasSubstr("without ? and #"));
  EXPECT_THAT(refusal({.checksums = {{images, "abc"}}}), HasSubstr("must be an MD5 (32 digits"));
  EXPECT_THAT(refusal({.checksums = {{"other.gz", std::string(32, 'a')}}}),
              HasSubstr("MNIST has the files train-images-idx3-ubyte.gz, "));
}

TEST(PublicDatasets, AreAsTheirPublishersSay) {
  for (const PublicDataset set :
       {PublicDataset::mnist, PublicDataset::fashion_mnist, PublicDataset::cifar10}) {
    EXPECT_EQ(parse_public_dataset(to_string(set)), set);
    const auto found = fetch::published(set, {});
    EXPECT_FALSE(found.urls.empty());
    for (const auto& file : found.files) EXPECT_THAT(file.checksum, SizeIs(32)) << file.name;
  }
  EXPECT_THAT(test::failure_of([] { (void)parse_public_dataset("imagenet"); }, ErrorCode::invalid_argument),
              HasSubstr("there are mnist, fashion-mnist, cifar10"));
}

}  // namespace
}  // namespace lockstep::testing
