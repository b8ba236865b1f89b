// `lockstep fetch`: what it prints, and what it says of wrong words.
#include "publisher_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FetchCommand : public PublisherTest {
 protected:
  Ending fetch(std::vector<std::string> words) const {
    words.insert(words.begin(), {program("lockstep"), "fetch"});
    return start(words).finish();
  }
};

TEST_F(FetchCommand, SaysALineForEachFile) {
  const std::vector<std::string> words = {
      "cifar10",     data(),       "--url",
      url("ranges"), "--checksum", "cifar-10-binary.tar.gz=" + md5("cifar-10-binary.tar.gz")};
  Ending ending = fetch(words);
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_THAT(ending.out, IsEmpty());
  EXPECT_THAT(ending.err, ::testing::MatchesRegex("cifar-10-binary.tar.gz: done, [0-9]+ KiB\n"));
  ending = fetch(words);
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_EQ(ending.err, "cifar-10-binary.tar.gz: is there already\n");
}

TEST_F(FetchCommand, AFailureIsOneLine) {
  const Ending ending = fetch({"mnist", data(), "--url", url("missing")});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_EQ(ending.err, "lockstep fetch: cannot fetch MNIST: " + url("missing") +
                            "/train-images-idx3-ubyte.gz: the server answers 404 (there is no such file)\n");
}

TEST_F(FetchCommand, APasswordInTheAddressIsNotShown) {
  std::string address = url("missing");
  address.insert(std::string("http://").size(), "me:secret@");
  const Ending ending = fetch({"mnist", data(), "--url", address});
  EXPECT_THAT(ending.err, AllOf(HasSubstr(url("missing")), ::testing::Not(HasSubstr("secret"))));
}

TEST_F(FetchCommand, AFolderThatCannotBeMadeIsNamed) {
  const Ending ending = fetch({"mnist", "/proc/none/here", "--url", url("ranges")});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("cannot make the folder /proc/none/here"));
}

TEST_F(FetchCommand, SaysWhatIsWrongWithItsWords) {
  struct {
    std::vector<std::string> words;
    std::string says;
  } const wrong[] = {
      {{}, "SET is required"},
      {{"mnist"}, "DIR is required"},
      {{"imagenet", "x"}, "there is no data set \"imagenet\"; there are mnist, fashion-mnist, cifar10"},
      {{"mnist", "x", "--url", "host/mnist"}, "\"host/mnist\" must begin with http:// or https://"},
      {{"mnist", "x", "--checksum", "abc"}, "--checksum abc is not like "},
      {{"mnist", "x", "--checksum", "train-labels-idx1-ubyte.gz=12"}, "it must be an MD5"},
      {{"mnist", "x", "--timeout", "soon"}, "--timeout"},
      {{"mnist", "x", "--timeout", "0"}, "--timeout must be more than 0"},
      {{"mnist", "x", "--fast"}, "--fast"},
  };
  for (const auto& [words, says] : wrong) {
    const Ending ending = fetch(words);
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_THAT(ending.err, AllOf(HasSubstr("lockstep fetch: "), HasSubstr(says),
                                  HasSubstr("See `lockstep fetch --help`.")));
  }
}

}  // namespace
}  // namespace lockstep::testing
