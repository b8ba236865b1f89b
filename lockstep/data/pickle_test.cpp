#include "lockstep/data/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "lockstep/data/folder_test.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;
using test::refusal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr PickleGlobal known[] = {{"fruit.Apple"}, {"fruit.cut", true}};

Pickle parse(std::string_view text) { return parse_pickle(std::as_bytes(std::span(text)), "x.pkl", known); }

std::string refused(std::string_view text) {
  return refusal([&] { (void)parse(text); });
}

TEST(Pickle, HasNumbersTextsAndConstants) {
  const Pickle pickle = parse(
      "\x80\x02(K\x07M\x01\x02J\xff\xff\xff\xff\x8a\x02\x00\x80\x8a\x00"
      "G?\xf8\0\0\0\0\0\0\x88\x89NX\x02\0\0\0hit."sv);
  const auto& items = pickle.at(pickle.root).items;
  ASSERT_EQ(items.size(), 10U);
  const auto item = [&](std::size_t i) -> const PickleValue& { return pickle.at(items[i]); };
  EXPECT_EQ(item(0).integer, 7);
  EXPECT_EQ(item(1).integer, 0x201);
  EXPECT_EQ(item(2).integer, -1);
  EXPECT_EQ(item(3).integer, -32768);
  EXPECT_EQ(item(4).integer, 0);
  EXPECT_EQ(item(5).real, 1.5);
  EXPECT_EQ(item(6).integer, 1);
  EXPECT_EQ(item(7).integer, 0);
  EXPECT_EQ(item(9).text, "hi");
  std::string kinds;
  for (std::size_t i = 0; i < items.size(); ++i) kinds += describe(item(i)) + ", ";
  EXPECT_EQ(kinds, "an int, an int, an int, an int, an int, a float, a bool, a bool, None, a str, ");
}

TEST(Pickle, HasTuplesListsAndDicts) {
  const Pickle pickle = parse(
      "\x80\x02}(K\x01)K\x02K\x03\x85K\x04K\x05K\x06\x86u"
      "K\x07](K\x08K\x09"
      "eK\x0a"
      "as."sv);
  const PickleValue& dict = pickle.at(pickle.root);
  EXPECT_EQ(describe(dict), "a dict of 4");
  EXPECT_FALSE(dict.is_ordered);
  EXPECT_EQ(describe(pickle.at(dict.items[1])), "a tuple of 0");
  EXPECT_EQ(describe(pickle.at(dict.items[3])), "a tuple of 1");
  EXPECT_EQ(describe(pickle.at(dict.items[5])), "a tuple of 2");
  const PickleValue& list = pickle.at(dict.items[7]);
  EXPECT_EQ(describe(list), "a list of 3");
  EXPECT_EQ(pickle.at(list.items[2]).integer, 10);
}

TEST(Pickle, KeepsValuesInMind) {
  const Pickle pickle = parse("\x80\x02K\x05q\x03K\x06r\x00\x01\0\0h\x03j\x00\x01\0\0\x86\x87."sv);
  const auto& outer = pickle.at(pickle.root).items;
  ASSERT_EQ(outer.size(), 3U);
  EXPECT_THAT(pickle.at(outer[2]).items, ElementsAre(outer[0], outer[1]));
  EXPECT_EQ(pickle.at(outer[0]).integer, 5);
  EXPECT_EQ(pickle.at(outer[1]).integer, 6);
}

TEST(Pickle, MayContainItself) {
  const Pickle pickle = parse("\x80\x02]q\0h\0a."sv);
  EXPECT_THAT(pickle.at(pickle.root).items, ElementsAre(pickle.root));
}

TEST(Pickle, SaysWhatWouldBeCalledAndKeptOutside) {
  const Pickle pickle = parse(
      "\x80\x02"
      "cfruit\ncut\ncfruit\nApple\nK\x02\x86RQ."sv);
  const PickleValue& outside = pickle.at(pickle.root);
  EXPECT_EQ(outside.kind, PickleKind::persistent);
  const PickleValue& call = pickle.at(outside.items.at(0));
  EXPECT_EQ(call.kind, PickleKind::call);
  EXPECT_EQ(pickle.at(call.items.at(0)).text, "fruit.cut");
  const PickleValue& arguments = pickle.at(call.items.at(1));
  EXPECT_EQ(pickle.at(arguments.items.at(0)).text, "fruit.Apple");
  EXPECT_EQ(pickle.at(arguments.items.at(1)).integer, 2);
}

TEST(Pickle, OfAnOrderedDictDropsTheMetadata) {
  const Pickle pickle = parse(
      "\x80\x02"
      "ccollections\nOrderedDict\n)R(K\x01K\x02u}X\x09\0\0\0_metadataNsb."sv);
  const PickleValue& dict = pickle.at(pickle.root);
  EXPECT_TRUE(dict.is_ordered);
  EXPECT_EQ(describe(dict), "a dict of 1");
}

TEST(Pickle, RefusesWhatItWasNotToldToExpect) {
  EXPECT_EQ(
      refused("\x80\x02"
              "cposix\nsystem\nX\x02\0\0\0ls\x85R."sv),
      "unsupported: x.pkl: at byte 2 it asks for \"posix.system\", which is not among what is read: tensors "
      "in "
      "dicts; nothing of the file was run. Save the tensors alone: torch.save(model.state_dict(), path)");
  EXPECT_THAT(
      refused("\x80\x02"
              "cfruit\nApple\n)R."sv),
      AllOf(StartsWith("unsupported: "), HasSubstr("at byte 16 it calls \"fruit.Apple\", which torch.save "
                                                   "does not")));
  EXPECT_THAT(
      refused("\x80\x02}}X\x01\0\0\0aNsb."sv),
      AllOf(StartsWith("unsupported: "),
            HasSubstr("it gives attributes to a dict of 0; only the _metadata of an OrderedDict is known")));
  EXPECT_THAT(refused("\x80\x02"
                      "ccollections\nOrderedDict\n)R}X\x01\0\0\0aNsb."sv),
              HasSubstr("it gives attributes to a dict of 0"));
  EXPECT_THAT(refused("\x80\x02)\x81."sv), HasSubstr("opcode 81 is not one that torch.save writes"));
  EXPECT_THAT(refused("\x80\x04K\x01."sv), HasSubstr("it is of pickle protocol 4; torch.save's is 2"));
  EXPECT_THAT(refused("\x80\x02\x8a\x09\1\1\1\1\1\1\1\1\1."sv),
              HasSubstr("an int has 9 bytes; up to 8 are read"));
  EXPECT_THAT(refused("\x80\x02Nr\xff\xff\xff\xff."sv),
              HasSubstr("it keeps more than 4194304 values in mind"));
  EXPECT_THAT(refused(std::string("\x80\x02").append(1001, '(')),
              HasSubstr("at byte 1002 it goes deeper than 1000"));
  EXPECT_THAT(refused(std::string("\x80\x02").append(pickle_most_values + 1, 'N')),
              HasSubstr("there are more than 2097152 values"));
}

TEST(Pickle, NamesDamageWithOffsetExpectedAndFound) {
  EXPECT_EQ(refused("\x80\x02X\xff\xff\xff\xffhi."sv),
            "corrupt_data: x.pkl: at byte 2 expected 4294967295 more bytes, found 3");
  EXPECT_THAT(refused("hello"sv), HasSubstr("at byte 0 expected a pickle (80), found other bytes"));
  EXPECT_THAT(refused("\x80\x02N.N"sv), HasSubstr("at byte 3 expected the end, found 1 more bytes"));
  EXPECT_THAT(refused("\x80\x02."sv), HasSubstr("expected one value to be left, found 0 and 0 marks"));
  EXPECT_THAT(refused("\x80\x02N(."sv), HasSubstr("expected one value to be left, found 1 and 1 marks"));
  EXPECT_THAT(refused("\x80\x02h\0."sv), HasSubstr("expected a value to be in mind under 0, found none"));
  EXPECT_THAT(refused("\x80\x02Nq\1h\0."sv), HasSubstr("expected a value to be in mind under 0, found none"));
  EXPECT_THAT(refused("\x80\x02q\0."sv), HasSubstr("expected a value on the stack, found none"));
  EXPECT_THAT(refused("\x80\x02N(\x85."sv), HasSubstr("expected 1 values on the stack, found 0"));
  EXPECT_THAT(refused("\x80\x02t."sv), HasSubstr("expected a mark on the stack, found none"));
  EXPECT_THAT(refused("\x80\x02]NNs."sv), HasSubstr("expected a dict to add to, found a list of 0"));
  EXPECT_THAT(refused("\x80\x02}Na."sv), HasSubstr("expected a list to append to, found a dict of 0"));
  EXPECT_THAT(refused("\x80\x02}(Nu."sv), HasSubstr("expected keys with values, found a key without one"));
  EXPECT_THAT(refused("\x80\x02N)R."sv),
              HasSubstr("expected a function and a tuple of arguments, found None and a "
                        "tuple of 0"));
  EXPECT_THAT(refused("\x80\x02"
                      "ccollections\nOrderedDict\nN\x85R."sv),
              HasSubstr("expected an empty OrderedDict, found one that is made of something"));
  EXPECT_THAT(refused("\x80\x02"
                      "cfruit"sv),
              HasSubstr("at byte 2 expected a line, found no end of it"));
}

TEST(Pickle, EveryTruncationIsRefused) {
  const auto whole = "\x80\x02}(X\x02\0\0\0hicfruit\ncut\n(K\x01J\1\0\0\0G?\xf8\0\0\0\0\0\0tq\0Ru."sv;
  (void)parse(whole);
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THAT(refused(whole.substr(0, length)), StartsWith("corrupt_data: ")) << length;
}

}  // namespace
}  // namespace lockstep
