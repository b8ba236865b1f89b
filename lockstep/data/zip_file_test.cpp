#include "lockstep/data/zip_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "lockstep/base/unique_fd.h"
#include "lockstep/data/crc32.h"
#include "lockstep/data/folder_test.h"
#include "lockstep/data/zip_writer.h"

namespace lockstep {
namespace {

using test::Bytes;
using test::bytes_of;
using test::refusal;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using Contents = std::map<std::string, Bytes>;

const Contents sample = {{"a/hello", bytes_of("hello")},
                         {"a/nothing", {}},
                         {"long name " + std::string(40, 'x'), Bytes(1000, std::byte{7})}};

Bytes archive_of(const Contents& contents) {
  Bytes archive;
  ZipWriter zip(
      [&](std::span<const std::byte> bytes) { archive.insert(archive.end(), bytes.begin(), bytes.end()); });
  for (const auto& [name, content] : contents) zip.add(name, content);
  zip.finish();
  return archive;
}

Contents contents_of(const std::filesystem::path& path) {
  const ZipFile zip(InputFile(path, "archive"));
  Contents contents;
  for (const auto& [name, entry] : zip.entries()) contents[name] = zip.read(entry);
  return contents;
}

/// Where `text` is in `bytes` for the last time.
std::size_t last(const Bytes& bytes, std::string_view text) {
  const Bytes wanted = bytes_of(text);
  const auto found = std::find_end(bytes.begin(), bytes.end(), wanted.begin(), wanted.end());
  EXPECT_NE(found, bytes.end());
  return static_cast<std::size_t>(found - bytes.begin());
}

class Zip : public test::FolderTest {
 protected:
  std::string refused(const Bytes& archive) const {
    return refusal([&] { (void)contents_of(memory_.with(archive)); });
  }
  test::MemoryFile memory_;
};

TEST_F(Zip, ReadsWhatItHasWritten) { EXPECT_EQ(contents_of(memory_.with(archive_of(sample))), sample); }

TEST_F(Zip, OfNothingIsAnArchive) { EXPECT_EQ(contents_of(memory_.with(archive_of({}))), Contents()); }

TEST_F(Zip, HasTheSameBytesForTheSameFiles) { EXPECT_EQ(archive_of(sample), archive_of(sample)); }

TEST_F(Zip, BeginsEachContentAtAMultipleOf64) {
  for (std::size_t length = 1; length < 130; ++length) {  // names that leave every gap
    const Bytes archive = archive_of({{std::string(length, 'n'), bytes_of("the content")}});
    EXPECT_EQ(last(archive, "the content") % zip_alignment, 0U) << length;
  }
}

TEST_F(Zip, ReadsArchivesWithoutThe64BitEnd) {
  Bytes archive = archive_of(sample);
  const auto end = archive.end() - zip_end_bytes;
  archive.erase(end - (zip_end64_bytes + zip_end64_place_bytes), end);
  EXPECT_EQ(contents_of(memory_.with(archive)), sample);
}

TEST_F(Zip, ReadsWhatLiesBeyond4GiB) {
  const Bytes content = bytes_of("behind all that");
  ZipEntry large{.name = "large", .bytes = (std::uint64_t{1} << 32) + 5};
  ZipEntry small{.name = "small", .bytes = content.size(), .checksum = crc32(content)};
  const Bytes first = zip_local_header(large);
  small.header = first.size() + large.bytes;
  const Bytes second = zip_local_header(small);
  const std::uint64_t end = small.header + second.size() + content.size();
  const Bytes directory = zip_directory(std::vector{large, small}, end);

  const auto path = file("x", first);  // with a hole where the large one is
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const auto write = [&](std::uint64_t at, const Bytes& bytes) {
    ASSERT_EQ(::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
  };
  write(small.header, second);
  write(small.header + second.size(), content);
  write(end, directory);

  const ZipFile zip(InputFile(path, "archive"));
  EXPECT_EQ(zip.entries().at("large").bytes, large.bytes);
  EXPECT_EQ(zip.entries().at("small").header, small.header);
  EXPECT_EQ(zip.read(zip.entries().at("small")), content);
  EXPECT_EQ(first.size() % zip_alignment, 0U);
  EXPECT_EQ((small.header + second.size()) % zip_alignment, 0U);
}

TEST_F(Zip, NamesDamageWithOffsetExpectedAndFound) {
  const Bytes archive = archive_of({{"a/x", bytes_of("hello")}});  // which begins at byte 64
  const auto changed = [&](std::size_t at, int value) {
    Bytes other = archive;
    other[at] = static_cast<std::byte>(value);
    return refused(other);
  };
  EXPECT_EQ(refused({}),
            "corrupt_data: " + memory_.with({}).string() +
                ": at byte 0 expected a zip archive, found 0 bytes in all; the file is truncated or "
                "damaged: get it again");
  EXPECT_THAT(changed(64, 'H'),
              HasSubstr("at byte 64 expected entry \"a/x\" with CRC-32 3610a686, found other content, of "));
  EXPECT_THAT(changed(30, 'b'),
              HasSubstr("at byte 0 expected entry \"a/x\", found other bytes"));  // its name
  EXPECT_THAT(changed(28, 255),  // the length of what stands between name and content
              HasSubstr("at byte 288 expected entry \"a/x\" of 5 bytes, found the next one at byte 69"));
  Bytes other = archive;
  other.push_back(std::byte{0});
  EXPECT_THAT(refused(other), HasSubstr("expected the end of a zip archive, found other bytes"));
  other = archive;
  other.erase(other.begin());
  EXPECT_THAT(refused(other), HasSubstr("expected the end of a zip archive in 64 bits, found other bytes"));
}

TEST_F(Zip, RefusesADirectoryThatLies) {
  const ZipEntry entry{.name = "a", .bytes = 5, .checksum = crc32(bytes_of("hello"))};
  const auto with_directory = [&](const std::vector<ZipEntry>& entries) {
    Bytes archive = zip_local_header(entry);
    const Bytes content = bytes_of("hello");
    archive.insert(archive.end(), content.begin(), content.end());
    const Bytes directory = zip_directory(entries, archive.size());
    archive.insert(archive.end(), directory.begin(), directory.end());
    return archive;
  };
  const auto changed = [&](const auto& change) {
    ZipEntry other = entry;
    change(other);
    return with_directory({other});
  };
  EXPECT_EQ(refused(with_directory({entry})), "accepted");
  EXPECT_THAT(refused(with_directory({entry, entry})),
              AllOf(StartsWith("corrupt_data"), HasSubstr("expected each entry once, found a second \"a\"")));
  const auto longer = changed([](ZipEntry& other) { other.bytes = 50; });
  EXPECT_THAT(refused(longer),
              HasSubstr("at byte 0 expected entry \"a\" of 50 bytes to end before byte 69, found no "
                        "room for it"));
  const auto huge = changed([](ZipEntry& other) { other.bytes = ~std::uint64_t{0}; });
  EXPECT_THAT(refused(huge),
              HasSubstr("expected entry \"a\" of 18446744073709551615 bytes to end before byte 69"));
  const auto far = changed([](ZipEntry& other) { other.header = ~std::uint64_t{0} - 20; });
  EXPECT_THAT(refused(far), HasSubstr("at byte 18446744073709551595 expected entry \"a\""));
  ZipEntry second = entry;
  second.name = "b";
  EXPECT_THAT(refused(with_directory({entry, second})), HasSubstr("no room for it"))
      << "two share their bytes";

  Bytes more = with_directory({entry});
  more[more.size() - zip_end_bytes - zip_end64_place_bytes - zip_end64_bytes + 32] = std::byte{2};
  EXPECT_THAT(refused(more), HasSubstr("expected entry 1 of 2 of the directory, found none"));
  Bytes fewer = with_directory({entry});
  fewer[fewer.size() - zip_end_bytes - zip_end64_place_bytes - zip_end64_bytes + 32] = std::byte{0};
  EXPECT_THAT(refused(fewer), HasSubstr("expected the end of the directory, found 47 more bytes of it"));
  Bytes many = with_directory({entry});
  many[many.size() - zip_end_bytes - zip_end64_place_bytes - zip_end64_bytes + 36] = std::byte{1};
  EXPECT_THAT(refused(many),
              AllOf(StartsWith("unsupported"), HasSubstr("its directory has 4294967297 entries in 47 "
                                                         "bytes; at most 262144 in 67108864")));
}

TEST_F(Zip, RefusesWhatIsCompressed) {
  Bytes archive = archive_of({{"a", bytes_of("hello")}});
  archive[69 + 10] = std::byte{8};  // the method, in the directory
  EXPECT_THAT(refused(archive),
              AllOf(StartsWith("unsupported"), HasSubstr("its entry \"a\" is compressed or encrypted")));
}

TEST_F(Zip, EveryTruncationIsRefused) {
  const Bytes archive = archive_of(sample);
  for (std::size_t length = 0; length < archive.size(); ++length) {
    const Bytes cut(archive.begin(), archive.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THAT(refused(cut), StartsWith("corrupt_data")) << length;
  }
}

TEST_F(Zip, AChangedByteIsNoticedOrChangesNoContent) {
  const Bytes archive = archive_of(sample);
  for (std::size_t at = 0; at < archive.size(); ++at) {
    Bytes other = archive;
    other[at] ^= std::byte{0x11};
    try {
      for (const auto& [name, content] : contents_of(memory_.with(other)))
        EXPECT_EQ(content, sample.at(name)) << at;
    } catch (const Error& error) {
      EXPECT_THAT((std::array{ErrorCode::corrupt_data, ErrorCode::unsupported}),
                  testing::Contains(error.code()))
          << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep
