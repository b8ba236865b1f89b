#include "lockstep/data/tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/folder_test.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::refusal;
using Window = std::vector<std::int64_t>;

class Tokens : public test::FolderTest {
 protected:
  fs::path write(const std::string& content) const { return file("train.bin", content); }
  fs::path write_u16(const std::vector<unsigned>& tokens) const {
    std::string content;
    for (const unsigned token : tokens) {
      content += static_cast<char>(token % 256);
      content += static_cast<char>(token / 256);
    }
    return write(content);
  }
  static Window window(const TokenFile& file, std::size_t i) {
    Window tokens(file.options().context + 1);
    file.read(i, tokens);
    return tokens;
  }
};

TEST_F(Tokens, WindowsShareOneTokenSoThatEachIsPredictedOnce) {
  const TokenFile file(write("abcdefghij"), {.type = TokenType::u8, .context = 4});
  EXPECT_EQ(file.tokens(), 10U);
  ASSERT_EQ(file.size(), 2U);
  EXPECT_EQ(window(file, 0), (Window{'a', 'b', 'c', 'd', 'e'}));
  EXPECT_EQ(window(file, 1), (Window{'e', 'f', 'g', 'h', 'i'}));
}

TEST_F(Tokens, OfTwoBytesAreLittleEndian) {
  const TokenFile file(write_u16({1, 256, 50256, 65535, 7}), {.context = 2});
  ASSERT_EQ(file.size(), 2U);
  EXPECT_EQ(window(file, 0), (Window{1, 256, 50256}));
  EXPECT_EQ(window(file, 1), (Window{50256, 65535, 7}));
}

TEST_F(Tokens, OfOneByteGoUpTo255) {
  const TokenFile file(write("\xff\x80"), {.type = TokenType::u8, .context = 1, .vocabulary = 256});
  EXPECT_EQ(window(file, 0), (Window{255, 128}));
}

TEST_F(Tokens, MayBeExactlyOneWindow) {
  EXPECT_EQ(TokenFile(write_u16({1, 2, 3}), {.context = 2}).size(), 1U);
}

TEST_F(Tokens, OutsideOfTheVocabularyAreRefusedWhereTheyStand) {
  const fs::path path = write_u16({1, 2, 3, 50257, 5});
  const TokenFile file(path, {.context = 2, .vocabulary = 50257});
  EXPECT_EQ(window(file, 0), (Window{1, 2, 3}));
  EXPECT_EQ(refusal([&] { (void)window(file, 1); }),
            "corrupt_data: " + path.string() +
                ": at byte 6 expected a token below 50257, found 50257; it was made for another vocabulary, "
                "has a header, or is no token file");
  EXPECT_EQ(window(TokenFile(path, {.context = 2}), 1), (Window{3, 50257, 5}));
}

TEST_F(Tokens, FewerThanAWindowAreRefused) {
  const fs::path path = write_u16({1, 2, 3});
  EXPECT_EQ(refusal([&] { const TokenFile file(path, {.context = 3}); }),
            "invalid_argument: " + path.string() +
                ": expected at least one window of context 3 + 1 tokens, found 3 tokens; use a shorter "
                "context, or a longer file");
  EXPECT_NE(refusal([&] { const TokenFile file(path, {.context = ~std::size_t{0}}); }).find("found 3 tokens"),
            std::string::npos);
  EXPECT_EQ(refusal([&] { const TokenFile file(path, {.context = 0}); }),
            "invalid_argument: " + path.string() + ": expected a context of at least 1 token, found 0");
  const fs::path empty = write("");
  EXPECT_NE(refusal([&] { const TokenFile file(empty, {.context = 1}); }).find("found 0 tokens"),
            std::string::npos);
}

TEST_F(Tokens, OfTwoBytesInAnOddNumberOfBytesAreRefused) {
  const fs::path path = write("abcde");
  EXPECT_EQ(refusal([&] { const TokenFile file(path, {.context = 1}); }),
            "corrupt_data: " + path.string() +
                ": at byte 4 expected a token of 2 bytes, found 1 byte and the end of the file; it is "
                "truncated, or no file of u16 tokens: make or get it again");
}

TEST_F(Tokens, OfAFileThatShrinksAreAnErrorAndNotTheEnd) {
  const fs::path path = write(std::string(100'000, 'x'));
  const TokenFile file(path, {.type = TokenType::u8, .context = 10});
  EXPECT_EQ(window(file, 9'000).front(), 'x');
  fs::resize_file(path, 10);
  EXPECT_EQ(
      refusal([&] { (void)window(file, 9'000); }),
      "corrupt_data: token file " + path.string() +
          " at byte 10: expected 99990 more bytes, found the end of the file; it became shorter while it "
          "was read: try again when its writer is done");
}

TEST_F(Tokens, AreReadOnFromTheFileThatWasReplaced) {
  const fs::path path = write("abc");
  const TokenFile file(path, {.type = TokenType::u8, .context = 2});
  fs::rename(path, folder_ / "old");
  write("xyz");
  EXPECT_EQ(window(file, 0), (Window{'a', 'b', 'c'}));
}

TEST_F(Tokens, GiveWindowsThatAreThereIntoRoomThatFits) {
  const fs::path path = write("abcde");
  const TokenFile file(path, {.type = TokenType::u8, .context = 2});
  EXPECT_EQ(refusal([&] { (void)window(file, 2); }),
            "invalid_argument: " + path.string() + " has no window 2; it has 2, counted from 0");
  Window room(2);
  EXPECT_EQ(refusal([&] { file.read(0, room); }),
            "invalid_argument: " + path.string() + ": a window has 3 tokens, found room for 2");
}

}  // namespace
}  // namespace lockstep
