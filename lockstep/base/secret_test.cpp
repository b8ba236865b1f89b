#include "lockstep/base/secret.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"

namespace lockstep {
namespace {

using test::error_of;
using test::soon;
using testing::HasSubstr;

Secret secret_of(const std::string& text) { return Secret::from_bytes(std::as_bytes(std::span(text))); }

class SecretFile : public testing::Test {
 public:
  ~SecretFile() override { std::filesystem::remove_all(folder_); }

 protected:
  SecretFile() {
    std::string pattern = testing::TempDir() + "lockstep-secret-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/secret";
  }

  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  Error refusal() {
    return error_of([&] { Secret::from_file(path_); });
  }

  std::string folder_;
  std::string path_;
};

TEST_F(SecretFile, IsReadWithoutItsLineEnd) {
  for (const char* end : {"", "\n", "\r\n"}) {
    write("0123456789abcdef" + std::string(end));
    EXPECT_TRUE(Secret::from_file(path_) == secret_of("0123456789abcdef"));
  }
  write("0123456789abcdef\n\n");
  EXPECT_TRUE(Secret::from_file(path_) == secret_of("0123456789abcdef\n"));
  write(std::string(4096, 'x') + "\n");
  EXPECT_TRUE(Secret::from_file(path_) == secret_of(std::string(4096, 'x')));
}

TEST_F(SecretFile, ThatOthersMayTouchIsRefused) {
  for (const mode_t mode : {0640U, 0604U, 0620U, 0601U}) {
    write("0123456789abcdef", mode);
    const Error error = refusal();
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("chmod 600"));
    EXPECT_THAT(error.what(), HasSubstr(path_));
  }
}

TEST_F(SecretFile, OfAWrongSizeOrKindIsRefused) {
  for (const std::string& text : {std::string(), std::string(15, 'x'), std::string(15, 'x') + "\n",
                                  std::string(4097, 'x'), std::string(1 << 20, 'x')}) {
    write(text);
    EXPECT_EQ(refusal().code(), ErrorCode::invalid_argument) << text.size();
    EXPECT_THAT(refusal().what(), HasSubstr("16 to 4096"));
  }
  std::filesystem::remove(path_);
  EXPECT_EQ(refusal().code(), ErrorCode::system);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(refusal().what(), HasSubstr("not a regular file"));
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(refusal().what(), HasSubstr("not a regular file"));
}

TEST_F(SecretFile, NeverAppearsInAnError) {
  write("hunter2", 0600);
  EXPECT_THAT(refusal().what(), Not(HasSubstr("hunter2")));
}

TEST(Secret, TravelsThroughAnInheritedDescriptor) {
  const Secret secret = Secret::random();
  const UniqueFd memfd = secret.to_memfd();
  ASSERT_EQ(::lseek(memfd.get(), 5, SEEK_SET), 5);
  for (int child = 0; child < 2; ++child) EXPECT_TRUE(Secret::from_inherited_fd(memfd.get()) == secret);
  EXPECT_EQ(::lseek(memfd.get(), 0, SEEK_CUR), 5) << "a shared position must not move";
  EXPECT_EQ(::pwrite(memfd.get(), "x", 1, 0), -1) << "sealed";
  EXPECT_NE(::ftruncate(memfd.get(), 0), 0) << "sealed";
  EXPECT_EQ(::fcntl(memfd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  const Error closed = error_of([] { Secret::from_inherited_fd(-1); });
  EXPECT_EQ(closed.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(closed.what(),
              HasSubstr("LOCKSTEP_SECRET_FD=-1: this descriptor is not open; what stands between"));
}

TEST(Secret, DiffersEachTimeAndCopiesAreEqual) {
  const Secret first = Secret::random();
  Secret second = Secret::random();
  EXPECT_FALSE(first == second);
  EXPECT_EQ(first.bytes().size(), 32U);
  second = first;
  EXPECT_TRUE(first == second);
  EXPECT_FALSE(secret_of(std::string(16, 'a')) == secret_of(std::string(17, 'a')));
}

}  // namespace
}  // namespace lockstep
