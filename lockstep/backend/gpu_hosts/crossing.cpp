#include "lockstep/backend/gpu_hosts/crossing.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/pages.h"

namespace lockstep::gpu_hosts {
namespace {

/// Slices begin at multiples of so many bytes, as kernels like it.
constexpr std::size_t slice_alignment = 256;

cuda::Address address_of(const std::byte* on_gpu) {
  return static_cast<cuda::Address>(reinterpret_cast<std::uintptr_t>(on_gpu));
}

void copy_down(const Road& road, std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  const cuda::Driver& driver = road.gpu->driver();
  driver.check(driver.copy_down(to, address_of(from.data()), from.size(), road.down), "copying from the GPU");
}

void copy_up(const Road& road, std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return;
  const cuda::Driver& driver = road.gpu->driver();
  driver.check(driver.copy_up(address_of(to.data()), from, to.size(), road.up), "copying to the GPU");
}

/// What `backend` knows of why its call has failed, without a call's words around it.
bool has_ended(Work& work, Backend& backend) try { return work.test(); } catch (const Error&) {
  if (const auto cause = backend.failure()) throw Error(cause->code, cause->text, cause->peer());
  throw;
}

void end(Work& work) noexcept {
  try {
    work.wait();
  } catch (const Error& error) {  // that of its group, which is known
    log::debug(error.what());
  }
}

void mark_in_place(Request& request) {
  request.call.in_place = true;
  request.signature.flags |= Signature::is_in_place;
}

}  // namespace

void StreamMark::set(cuda::Stream stream) {
  is_reached_ = false;
  gpu_.driver().check(gpu_.driver().record_event(event_, stream), "marking a stream");
}

bool StreamMark::is_reached() {
  if (is_reached_) return true;
  const cuda::Result result = gpu_.driver().query_event(event_);
  if (result == cuda::not_ready) return false;
  gpu_.driver().check(result, "waiting for a call on the GPU");
  return is_reached_ = true;
}

SumOfHosts::SumOfHosts(const Road& road, const Request& request, cuda::Stream stream)
    : road_(road), request_(request), counts_(counts()) {
  const Request part = gathering();
  gathered_ = road_.on_host->put(std::span(&part, 1), stream, false).call;
}

/// Of this host's ranks; those that have no slice come last.
std::vector<std::size_t> SumOfHosts::counts() const {
  const std::size_t each = std::max<std::size_t>(1, slice_alignment / request_.element_bytes);
  const std::size_t elements = request_.call.elements, blocks = (elements + each - 1) / each;
  std::vector<std::size_t> counts(static_cast<std::size_t>(road_.here.size()));
  for (int slice = 0; slice < road_.slices; ++slice) {
    const Range range = schedule::chunk_of(blocks, slice, road_.slices);
    const std::size_t begin = std::min(range.begin * each, elements);
    counts[static_cast<std::size_t>(slice)] = std::min((range.begin + range.count) * each, elements) - begin;
  }
  return counts;
}

std::span<std::byte> SumOfHosts::own_slice() const {
  const auto own = static_cast<std::size_t>(road_.here.rank());
  const std::size_t before =
      std::accumulate(counts_.begin(), counts_.begin() + road_.here.rank(), std::size_t{0});
  return request_.output.subspan(before * request_.element_bytes, counts_[own] * request_.element_bytes);
}

/// The sums of this host's ranks, each slice where it will be in the result.
Request SumOfHosts::gathering() const {
  Request part = request_;
  part.call.operation = Operation::reduce_scatter;  // others see what was called
  if (part.signature.reduce_op == ReduceOp::average) part.signature.reduce_op = ReduceOp::sum;
  part.call.rank = road_.here.rank();
  part.call.ranks = road_.here.size();
  part.call.counts = counts_;
  part.call.in_place = false;
  part.signature.flags = 0;
  part.output = own_slice();
  if (request_.input.data() == request_.output.data() && !part.output.empty()) mark_in_place(part);
  return part;
}

/// All slices of the result, which each rank has of its own.
Request SumOfHosts::spreading() const {
  Request part{
      .signature = {.elements = request_.output.size(), .detail = 1, .operation = Operation::all_gather},
      .call = {.operation = Operation::all_gather, .rank = road_.here.rank(), .ranks = road_.here.size()},
      .input = own_slice(),
      .output = request_.output,
      .place = request_.place};
  part.call.counts = counts_;
  for (std::size_t& count : part.call.counts) count *= request_.element_bytes;
  if (!part.input.empty()) mark_in_place(part);
  return part;
}

/// An average is divided where hosts' sums have been added up, as in main memory.
Request SumOfHosts::crossing(const Piece& piece) const {
  const Signature& called = request_.signature;
  Request part{.signature = {.elements = piece.here.size() / request_.element_bytes,
                             .operation = Operation::all_reduce,
                             .dtype = called.dtype,
                             .reduce_op = called.reduce_op},
               .call = road_.of_peers,
               .element_bytes = request_.element_bytes,
               .input = piece.here,
               .output = piece.here,
               .averaged = request_.call.ranks};
  part.call.operation = Operation::all_reduce;
  part.call.elements = part.signature.elements;
  mark_in_place(part);
  return part;
}

void SumOfHosts::fetch() {
  const std::span<std::byte> slice = own_slice();
  if (slice.empty()) return;
  memory_ = road_.pinned->take(slice.size());
  const std::size_t most =
      std::max(road_.piece_bytes / request_.element_bytes, std::size_t{1}) * request_.element_bytes;
  for (std::size_t at = 0; at < slice.size(); at += most) {
    const std::size_t bytes = std::min(most, slice.size() - at);
    Piece piece{.on_gpu = slice.subspan(at, bytes), .here = {memory_.get() + at, bytes}};
    copy_down(road_, piece.here.data(), piece.on_gpu);
    piece.fetched = std::make_unique<StreamMark>(road_.events, *road_.gpu);
    piece.fetched->set(road_.down);
    pieces_.push_back(std::move(piece));
  }
}

bool SumOfHosts::advance(const Turn& turn) {
  if (!is_gathered_) {
    if (!gathered_->is_over()) return false;
    fetch();
    is_gathered_ = true;
  }
  while (turn.crosses && crossed_ < pieces_.size() && pieces_[crossed_].fetched->is_reached()) {
    Piece& piece = pieces_[crossed_++];
    piece.work = Work(road_.peers->submit(crossing(piece)));
  }
  for (; landed_ < crossed_ && has_ended(pieces_[landed_].work, *road_.peers); ++landed_)
    copy_up(road_, pieces_[landed_].on_gpu, pieces_[landed_].here.data());
  if (landed_ < pieces_.size()) return false;
  if (!spread_) {
    if (!turn.spreads) return false;
    spread_ = road_.on_host->put_behind(spreading(), road_.up);
  }
  return spread_->is_over();
}

void SumOfHosts::give_up() noexcept {
  for (Piece& piece : pieces_) end(piece.work);
}

WholeRequest::WholeRequest(const Road& road, const Request& request, std::shared_ptr<StreamMark> begin)
    : road_(road), request_(request), begin_(std::move(begin)) {}

/// Those of messages from one rank to another are for themselves.
std::pair<int, bool> WholeRequest::queue() const {
  const Operation operation = request_.signature.operation;
  if (!is_message(operation)) return Crossing::queue();
  return {request_.peer, operation == Operation::send};
}

/// What it needs of the GPU's memory.
std::span<const std::byte> WholeRequest::source() const {
  const bool is_root =
      request_.signature.operation == Operation::broadcast && request_.call.rank == request_.call.root;
  return is_root ? std::span<const std::byte>(request_.output) : request_.input;
}

/// What it leaves there.
std::span<std::byte> WholeRequest::target() const {
  const bool is_root =
      request_.signature.operation == Operation::broadcast && request_.call.rank == request_.call.root;
  return is_root ? std::span<std::byte>() : request_.output;
}

/// In place is in place in main memory, too.
void WholeRequest::fetch() {
  const std::size_t input = request_.input.size(), output = request_.output.size();
  const bool is_one = request_.call.in_place && input > 0 && output > 0;
  const std::size_t behind = base::round_up(input);
  memory_ = road_.pinned->take(is_one ? std::max(input, output) : behind + output);
  std::byte *first = memory_.get(), *second = memory_.get() + behind;
  if (is_one) {
    const std::size_t offset = schedule::in_place_offset(request_.call) * request_.element_bytes;
    second = memory_.get() + (input > output ? offset : 0);
    first = memory_.get() + (input > output ? 0 : offset);
  }
  here_ = request_;
  here_.place = {};
  here_.received = nullptr;
  here_.input = {first, input};
  here_.output = {second, output};
  const bool is_output = source().data() == request_.output.data() && input == 0;
  copy_down(road_, is_output ? second : first, source());
  copied_ = std::make_unique<StreamMark>(road_.events, *road_.gpu);
  if (!source().empty()) copied_->set(road_.down);
}

bool WholeRequest::advance(const Turn& turn) {
  if (stage_ == Stage::waits) {
    if (!begin_->is_reached()) return false;
    fetch();
    stage_ = Stage::comes_down;
  }
  if (stage_ == Stage::comes_down) {
    if (!turn.crosses || !(source().empty() || copied_->is_reached())) return false;
    work_ = Work(road_.all->submit(here_));
    stage_ = Stage::crosses;
  }
  if (stage_ == Stage::crosses) {
    if (!has_ended(work_, *road_.all)) return false;
    if (target().empty()) return true;
    copy_up(road_, target(), here_.output.data());
    copied_->set(road_.up);
    stage_ = Stage::goes_up;
  }
  return copied_->is_reached();
}

void WholeRequest::give_up() noexcept { end(work_); }

}  // namespace lockstep::gpu_hosts
