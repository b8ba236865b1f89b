#include "lockstep/train/parameter_server/messages.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep::ps {
namespace {

constexpr std::uint64_t most_text = std::uint64_t{64} << 20;
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
  if (header.magic != Header().magic || header.text_bytes > most_text)
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

ArenaTensors::ArenaTensors(const Group& group, std::span<const Placement::Stretch> like) {
  for (const Placement::Stretch& one : like) {
    const auto bytes = static_cast<std::size_t>(one.elements) * c10::elementSize(one.type);
    blocks.push_back(group.allocate<std::byte>(std::max<std::size_t>(bytes, 1)));
    tensors.push_back(torch::from_blob(blocks.back().data(), {one.elements}, one.type));
  }
}

}  // namespace lockstep::ps
