// Files that are missing, damaged or of something else: a job that needs them says so in one line on each
// rank, ends with an exit code other than 0, and changes nothing.
#include <functional>
#include <map>

#include "small_digits.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct BadFile {
  const char* name;
  std::function<void(const fs::path& folder)> spoil;
  std::vector<std::string> arguments;
  std::vector<std::string> says;
};

std::ostream& operator<<(std::ostream& out, const BadFile& bad) { return out << bad.name; }

void overwrite(const fs::path& path, std::streamoff at, char byte) {
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(at).put(byte);
}

const std::vector<std::string> resume = {"--checkpoint", "FOLDER/digits.ckpt", "--resume"};

const BadFile kinds[] = {
    {"NoData",
     [](const fs::path& folder) { fs::remove(folder / "train-images-idx3-ubyte"); },
     {},
     {"no images at ", "train-images-idx3-ubyte", "found neither"}},
    {"NoLabels",
     [](const fs::path& folder) { fs::remove(folder / "test-labels-idx1-ubyte"); },
     {},
     {"no labels at ", "test-labels-idx1-ubyte", "found neither"}},
    {"TruncatedData",
     [](const fs::path& folder) { fs::resize_file(folder / "train-images-idx3-ubyte", 1000); },
     {},
     {"train-images-idx3-ubyte: at byte ", "truncated"}},
    {"LyingData",
     [](const fs::path& folder) { overwrite(folder / "train-images-idx3-ubyte", 4, '\x7f'); },
     {},
     {"train-images-idx3-ubyte: at byte ", "expected", "found"}},
    {"FewerLabels",
     [](const fs::path& folder) {
       fs::copy_file(folder / "other", folder / "train-labels-idx1-ubyte",
                     fs::copy_options::overwrite_existing);
     },
     {},
     {"train-labels-idx1-ubyte: at byte 4", "one label for each of the 40 images", "do not belong together"}},
    {"NoCheckpoint",
     [](const fs::path& folder) { fs::remove(folder / "digits.ckpt"); },
     resume,
     {"cannot open the checkpoint ", "digits.ckpt", "No such file"}},
    {"TruncatedCheckpoint",
     [](const fs::path& folder) { fs::resize_file(folder / "digits.ckpt", 5000); },
     resume,
     {"checkpoint ", "digits.ckpt: at byte ", "expected", "found"}},
    {"DamagedCheckpoint",
     [](const fs::path& folder) { overwrite(folder / "digits.ckpt", 5000, '\x55'); },
     resume,
     {"digits.ckpt: at byte ", "with its checksum", "other content"}},
    {"CheckpointOfAnotherModel",
     [](const fs::path& folder) { fs::rename(folder / "linear.ckpt", folder / "digits.ckpt"); },
     resume,
     {"digits.ckpt is of another model", "build the model that it was saved from"}},
    {"AFolderAsCheckpoint",
     [](const fs::path& folder) {
       fs::remove(folder / "digits.ckpt");
       fs::create_directory(folder / "digits.ckpt");
     },
     resume,
     {"digits.ckpt: expected the checkpoint, found a directory"}},
};

class BadFiles : public JobTest, public ::testing::WithParamInterface<BadFile> {
 protected:
  std::map<std::string, std::uintmax_t> files() const {
    std::map<std::string, std::uintmax_t> found;
    for (const auto& item : fs::directory_iterator(folder()))
      found[item.path().filename()] = item.is_regular_file() ? item.file_size() : 0;
    return found;
  }
  Ending digits(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {program("lockstep"), "run", "-np", "2", "--", program("digits"),
                                         "--data", folder(), "--epochs", "2"});
    for (auto& word : arguments) {
      if (word.starts_with("FOLDER")) word = folder().string() + word.substr(6);
    }
    return start(arguments).finish();
  }
};

TEST_P(BadFiles, AreNamedByAllRanksAndNothingChanges) {
  write_digits(folder(), 10);
  std::ofstream(folder() / "other", std::ios::binary) << std::string("\0\0\x8\1\0\0\0\2ab", 10);
  ASSERT_EQ(digits({"--checkpoint", folder() / "digits.ckpt"}).exit_code, 0);
  ASSERT_EQ(start({program("training_rank"), "save", folder() / "linear.ckpt", "1"}).finish().exit_code, 0);
  GetParam().spoil(folder());
  const auto before = files();

  const Ending ending = digits(GetParam().arguments);
  EXPECT_EQ(ending.exit_code, 1) << ending.err;
  for (const char* rank : {"[0] ", "[1] "}) {
    const auto lines = lines_with(ending.err, rank);
    ASSERT_THAT(lines, SizeIs(1)) << ending.err;
    for (const auto& part : GetParam().says) EXPECT_THAT(lines.front(), HasSubstr(part));
  }
  EXPECT_THAT(ending.err, HasSubstr("lockstep run: rank "));
  EXPECT_EQ(files(), before);
}

INSTANTIATE_TEST_SUITE_P(Of, BadFiles, ::testing::ValuesIn(kinds),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::testing
