#include "lockstep/train/parameter_server/messages.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/shared_memory.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep::ps {
namespace {

constexpr int header_tag = 1, content_tag = 2;

}  // namespace

void Line::send(Header header, const std::string& text) const {
  header.text_bytes = text.size();
  lockstep::send(group_, std::span(&header, 1), other(), header_tag).wait();
  if (!text.empty()) send_bytes(std::as_bytes(std::span(text)));
}

Header Line::receive(std::string* text) const {
  Header header;
  recv(group_, std::span(&header, 1), other(), header_tag).wait();
  if (header.magic != Header().magic || header.text_bytes > most_text_bytes)
    throw Error(
        ErrorCode::corrupt_data,
        c10::str("parameter server: rank ", group_.world_rank(other()), " sent what is no request of it"),
        group_.world_rank(other()));
  std::string content(header.text_bytes, '\0');
  if (!content.empty()) receive_bytes(std::as_writable_bytes(std::span(content)));
  if (text != nullptr) *text = std::move(content);
  return header;
}

Header Line::ask(const Header& header, std::string* text, const std::string& sent_text) const {
  for (;;) {
    send(header, sent_text);
    std::string answer_text;
    const Header answer = receive(&answer_text);
    if (answer.kind == Kind::not_yet) continue;
    if (answer.kind == Kind::refused)
      throw Error(ErrorCode::mismatch, answer_text, group_.world_rank(other()));
    if (text != nullptr) *text = std::move(answer_text);
    return answer;
  }
}

void Line::take_answer() const {
  std::string text;
  if (receive(&text).kind == Kind::refused)
    throw Error(ErrorCode::mismatch, text, group_.world_rank(other()));
}

void Line::send_bytes(std::span<const std::byte> bytes) const {
  lockstep::send_bytes(group_, bytes, other(), content_tag).wait();
}

void Line::receive_bytes(std::span<std::byte> bytes) const {
  recv_bytes(group_, bytes, other(), content_tag).wait();
}

void Line::send_tensor(const torch::Tensor& dense) const { send_bytes(elements_of(dense)); }

void Line::receive_tensor(const torch::Tensor& dense) const {
  receive_bytes(writable_bytes(dense, "parameter server"));
}

std::uint64_t word_of(const Group& group, const torch::Tensor& dense) {
  const auto place = place_of(group, elements_of(dense));
  return place ? to_word(*place) : 0;
}

torch::Tensor tensor_at(const Group& group, std::uint64_t word, torch::ScalarType type,
                        std::vector<std::int64_t> sizes) {
  if (word == 0) return {};
  const ArenaPlace place = place_of_word(word);
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  try {
    if (shares_memory(group) && place.rank >= 0 && place.rank < group.size())
      return torch::from_blob(memory_at(group, place, bytes).data(), sizes, type);
  } catch (const Error&) {  // outside of it: said below
  }
  throw Error(ErrorCode::corrupt_data, "parameter server: a client names memory that is in no arena");
}

}  // namespace lockstep::ps
