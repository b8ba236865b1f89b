#include "lockstep/base/spake2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <ostream>
#include <string_view>
#include <vector>

namespace lockstep::spake2 {
namespace {

template <class Bytes>
Bytes from_hex(std::string_view hex) {
  Bytes bytes{};
  EXPECT_EQ(hex.size(), 2 * bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned value = 0;
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, value, 16);
    bytes[i] = static_cast<std::byte>(value);
  }
  return bytes;
}

// RFC 9382, appendix B.
struct Example {
  const char *a, *b;
  const char *w, *x, *y;
  const char *share_a, *share_b;
  const char *confirmation_a, *confirmation_b;
};
void PrintTo(const Example& example, std::ostream* out) { *out << example.a << " and " << example.b; }

constexpr Example examples[] = {
    {"server", "client", "2ee57912099d31560b3a44b1184b9b4866e904c49d12ac5042c97dca461b1a5f",
     "43dd0fd7215bdcb482879fca3220c6a968e66d70b1356cac18bb26c84a78d729",
     "dcb60106f276b02606d8ef0a328c02e4b629f84f89786af5befb0bc75b6e66be",
     "04a56fa807caaa53a4d28dbb9853b9815c61a411118a6fe516a8798434751470f9010153ac33d0d5f2047ffdb1a3e42c9b4e6be"
     "662766e1"
     "eeb4116988ede5f912c",
     "0406557e482bd03097ad0cbaa5df82115460d951e3451962f1eaf4367a420676d09857ccbc522686c83d1852abfa8ed6e4a1155"
     "cf8f1543"
     "ceca528afb591a1e0b7",
     "58ad4aa88e0b60d5061eb6b5dd93e80d9c4f00d127c65b3b35b1b5281fee38f0",
     "d3e2e547f1ae04f2dbdbf0fc4b79f8ecff2dff314b5d32fe9fcef2fb26dc459b"},
    {"", "client", "0548d8729f730589e579b0475a582c1608138ddf7054b73b5381c7e883e2efae",
     "403abbe3b1b4b9ba17e3032849759d723939a27a27b9d921c500edde18ed654b",
     "903023b6598908936ea7c929bd761af6039577a9c3f9581064187c3049d87065",
     "04a897b769e681c62ac1c2357319a3d363f610839c4477720d24cbe32f5fd85f44fb92ba966578c1b712be6962498834078262c"
     "aa5b441e"
     "cfa9d4a9485720e918a",
     "04e0f816fd1c35e22065d5556215c097e799390d16661c386e0ecc84593974a61b881a8c82327687d0501862970c64565560cb5"
     "671f6960"
     "48050ca66ca5f8cc7fc",
     "47d29e6666af1b7dd450d571233085d7a9866e4d49d2645e2df975489521232b",
     "3313c5cefc361d27fb16847a91c2a73b766ffa90a4839122a9b70a2f6bd1d6df"},
    {"server", "", "626e0cdc7b14c9db3e52a0b1b3a768c98e37852d5db30febe0497b14eae8c254",
     "07adb3db6bc623d3399726bfdbfd3d15a58ea776ab8a308b00392621291f9633",
     "b6a4fc8dbb629d4ba51d6f91ed1532cf87adec98f25dd153a75accafafedec16",
     "04f88fb71c99bfffaea370966b7eb99cd4be0ff1a7d335caac4211c4afd855e2e15a873b298503ad8ba1d9cbb9a392d2ba309b4"
     "8bfd7879"
     "aefd0f2cea6009763b0",
     "040c269d6be017dccb15182ac6bfcd9e2a14de019dd587eaf4bdfd353f031101e7cca177f8eb362a6e83e7d5e729c0732e1b528"
     "879c086f"
     "39ba0f31a9661bd34db",
     "bc9f9bbe99f26d0b2260e6456e05a86196a3307ec6663a18bf6ac825736533b2",
     "c2370e1bf813b086dff0d834e74425a06e6390f48f5411900276dcccc5a297ec"},
    {"", "", "7bf46c454b4c1b25799527d896508afd5fc62ef4ec59db1efb49113063d70cca",
     "8cef65df64bb2d0f83540c53632de911b5b24b3eab6cc74a97609fd659e95473",
     "d7a66f64074a84652d8d623a92e20c9675c61cb5b4f6a0063e4648a2fdc02d53",
     "04a65b367a3f613cf9f0654b1b28a1e3a8a40387956c8ba6063e8658563890f46ca1ef6a676598889fc28de2950ab8120b79a5e"
     "f1ea4c9f"
     "44bc98f585634b46d66",
     "04589f13218822710d98d8b2123a079041052d9941b9cf88c6617ddb2fcc0494662eea8ba6b64692dc318250030c6af045cb738"
     "bc81ba35"
     "b043c3dcb46adf6f58d",
     "dfb4db8d48ae5a675963ea5e6c19d98d4ea028d8e898dad96ea19a80ade95dca",
     "d0f0609d1613138d354f7e95f19fb556bf52d751947241e8c7118df5ef0ae175"},
};

class Rfc9382 : public testing::TestWithParam<Example> {};
INSTANTIATE_TEST_SUITE_P(AppendixB, Rfc9382, testing::ValuesIn(examples));

TEST_P(Rfc9382, SharesAndConfirmationsAreThoseOfTheExample) {
  const Example& example = GetParam();
  const auto w = from_hex<Scalar>(example.w);
  const Half a(Side::a, w, from_hex<Scalar>(example.x));
  const Half b(Side::b, w, from_hex<Scalar>(example.y));
  EXPECT_EQ(a.share(), from_hex<Share>(example.share_a));
  EXPECT_EQ(b.share(), from_hex<Share>(example.share_b));
  const Identities identities{.a = example.a, .b = example.b};
  const auto of_a = a.finish(b.share(), identities);
  const auto of_b = b.finish(a.share(), identities);
  ASSERT_TRUE(of_a && of_b);
  EXPECT_EQ(of_a->own, from_hex<Confirmation>(example.confirmation_a));
  EXPECT_EQ(of_b->own, from_hex<Confirmation>(example.confirmation_b));
  EXPECT_EQ(of_a->others, of_b->own);
  EXPECT_EQ(of_b->others, of_a->own);
}

Scalar w_of(std::string_view secret) { return scalar_of(std::as_bytes(std::span(secret))); }

struct Exchange {
  std::optional<Confirmations> a, b;
  bool agree() const { return a && b && same(a->others, b->own) && same(b->others, a->own); }
};

Exchange exchange(std::string_view secret_a, std::string_view secret_b, const Identities& identities_a,
                  const Identities& identities_b) {
  const Half a(Side::a, w_of(secret_a)), b(Side::b, w_of(secret_b));
  return {a.finish(b.share(), identities_a), b.finish(a.share(), identities_b)};
}

TEST(Spake2, AgreesWhereSecretAndIdentitiesAreTheSameAndNowhereElse) {
  const Identities ours{.a = "me", .b = "you", .more = "for this"};
  EXPECT_TRUE(exchange("secret", "secret", ours, ours).agree());
  EXPECT_FALSE(exchange("secret", "secreT", ours, ours).agree());
  for (const Identities& others : {Identities{"Me", "you", "for this"}, Identities{"me", "You", "for this"},
                                   Identities{"me", "you", "for that"}, Identities{"mey", "ou", "for this"}})
    EXPECT_FALSE(exchange("secret", "secret", ours, others).agree()) << others.a << others.b << others.more;
}

TEST(Spake2, IsFreshEachTime) {
  EXPECT_NE(Half(Side::a, w_of("s")).share(), Half(Side::a, w_of("s")).share());
}

TEST(Spake2, RefusesWhatIsNoPointOfTheCurve) {
  const Half half(Side::a, w_of("secret"));
  const Share good = Half(Side::b, w_of("secret")).share();
  ASSERT_TRUE(half.finish(good, {}));
  EXPECT_FALSE(half.finish({}, {})) << "the point at infinity has no such form";
  for (const std::size_t changed : {0U, 1U, 40U, 64U}) {
    Share bad = good;
    bad[changed] ^= std::byte{1};
    EXPECT_FALSE(half.finish(bad, {})) << changed;
  }
  Share huge;
  huge.fill(std::byte{0xff});
  huge[0] = std::byte{4};
  EXPECT_FALSE(half.finish(huge, {}));
}

// w N alone, of the first example: K would be the point at infinity, which anybody knows.
TEST(Spake2, RefusesAShareThatMakesAKeyOfNothing) {
  const Half half(Side::a, from_hex<Scalar>(examples[0].w));
  const auto mask_alone = from_hex<Share>(
      "04012f3c32af2c3dd3ffc98c81bfb37d262ebafc3f71065def69da12e369d8778c9a6af8cbf8eb3b6a0fa1035586bd7de73bbc"
      "e56dfe2ef9"
      "4fabc045a8dcc356b1");
  EXPECT_FALSE(half.finish(mask_alone, {}));
}

TEST(Spake2, AReflectedShareAgreesWithNothing) {
  const Half a(Side::a, w_of("secret"));
  const auto reflected = a.finish(a.share(), {.a = "x", .b = "x"});
  ASSERT_TRUE(reflected);
  EXPECT_FALSE(same(reflected->own, reflected->others));
}

}  // namespace
}  // namespace lockstep::spake2
