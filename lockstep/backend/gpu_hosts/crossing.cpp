#include "lockstep/backend/gpu_hosts/crossing.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/keep_for_ever.h"
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

void copy_on_gpu(const Road& road, std::span<std::byte> to, const std::byte* from, cuda::Stream stream) {
  road.gpu->driver().check(
      cuda::SharingDriver::get().copy(address_of(to.data()), address_of(from), to.size(), stream),
      "copying on the GPU");
}

/// What `backend` knows of why its call has failed, without a call's words around it.
Error bare(const Error& of_call, Backend& backend) { return failure_of(backend).value_or(of_call); }

Work begin_in(Backend& backend, const Request& request) try {
  return Work(backend.submit(request));
} catch (const Error& error) {
  throw bare(error, backend);
}

bool has_ended(Work& work, Backend& backend) try { return work.test(); } catch (const Error& error) {
  throw bare(error, backend);
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

/// The input goes to where the result is made, unless the others reach it where it is.
SumOfHosts::SumOfHosts(const Road& road, const Request& request, cuda::Stream stream)
    : road_(road), request_(request), counts_(counts()), result_(request.output), source_(request.input) {
  device_arena::Engine& on_host = *road_.on_host;
  if (!on_host.reaches(result_)) {
    block_ = on_host.allocate(result_.size());
    result_ = {reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(block_->address())), result_.size()};
  }
  if (source_.data() != result_.data() && !on_host.reaches(source_)) {
    copy_on_gpu(road_, result_, source_.data(), stream);
    source_ = result_;
  }
  if (!own_slice().empty()) memory_ = road_.pinned->take(own_slice().size());
  const Request part = gathering();
  gathered_ = on_host.put(std::span(&part, 1), stream, false).call;
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
  return result_.subspan(before * request_.element_bytes, counts_[own] * request_.element_bytes);
}

/// The sums of this host's ranks, each slice where it will be in the result.
Request SumOfHosts::gathering() const {
  Request part = request_;
  part.call.operation = Operation::reduce_scatter;  // others see what was called
  part.averaged = 1;                                // is divided between hosts
  part.call.rank = road_.here.rank();
  part.call.ranks = road_.here.size();
  part.call.counts = counts_;
  part.call.in_place = false;
  part.signature.flags = 0;
  part.input = source_;
  part.output = own_slice();
  if (source_.data() == result_.data() && !part.output.empty()) mark_in_place(part);
  return part;
}

/// All slices of the result, which each rank has of its own.
Request SumOfHosts::spreading() const {
  Request part{
      .signature = {.elements = result_.size(), .detail = 1, .operation = Operation::all_gather},
      .call = {.operation = Operation::all_gather, .rank = road_.here.rank(), .ranks = road_.here.size()},
      .input = own_slice(),
      .output = result_,
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

Advance SumOfHosts::advance(const Turn& turn) {
  Advance result = Advance::waits;
  if (gathered_) {
    if (!gathered_->is_over()) return result;
    fetch();
    gathered_ = nullptr;
    result = Advance::moved;
  }
  for (; turn.crosses && crossed_ < pieces_.size() && pieces_[crossed_].fetched->is_reached(); ++crossed_) {
    pieces_[crossed_].work = begin_in(*road_.peers, crossing(pieces_[crossed_]));
    result = Advance::moved;
  }
  for (; landed_ < crossed_ && has_ended(pieces_[landed_].work, *road_.peers); ++landed_) {
    copy_up(road_, pieces_[landed_].on_gpu, pieces_[landed_].here.data());
    result = Advance::moved;
  }
  if (!spread_) {
    if (landed_ < pieces_.size() || !turn.spreads) return result;
    spread_ = road_.on_host->put_behind(spreading(), road_.up);
    result = Advance::moved;
  }
  if (!copied_) {
    if (!spread_->is_over()) return result;
    if (!block_) return Advance::is_over;
    copy_on_gpu(road_, request_.output, result_.data(), road_.up);
    copied_ = std::make_unique<StreamMark>(road_.events, *road_.gpu);
    copied_->set(road_.up);
    result = Advance::moved;
  }
  return copied_->is_reached() ? Advance::is_over : result;
}

void SumOfHosts::give_up() noexcept {
  for (Piece& piece : pieces_) end(piece.work);
  if (road_.is_by_mpi && landed_ < crossed_) base::keep_for_ever(memory_);
}

/// In place is in place in main memory, too.
WholeRequest::WholeRequest(const Road& road, const Request& request, std::shared_ptr<StreamMark> begin)
    : road_(road), request_(request), begin_(std::move(begin)), here_(request) {
  const std::size_t input = request_.input.size(), output = request_.output.size();
  const bool is_one = request_.call.in_place && input > 0 && output > 0;
  const std::size_t behind = base::round_up(input);
  if (input + output > 0) memory_ = road_.pinned->take(is_one ? std::max(input, output) : behind + output);
  std::byte *first = memory_.get(), *second = memory_.get() + behind;
  if (is_one) {
    const std::size_t offset = schedule::in_place_offset(request_.call) * request_.element_bytes;
    second = memory_.get() + (input > output ? offset : 0);
    first = memory_.get() + (input > output ? 0 : offset);
  }
  here_.place = {};
  here_.received = nullptr;
  here_.input = {first, input};
  here_.output = {second, output};
  sent_ = is_root_of_broadcast() ? second : first;
}

std::pair<int, bool> WholeRequest::queue() const {
  const Operation operation = request_.signature.operation;
  if (!is_message(operation)) return collectives;
  return {request_.peer, operation == Operation::send};
}

/// Its output is what it sends.
bool WholeRequest::is_root_of_broadcast() const {
  return request_.signature.operation == Operation::broadcast && request_.call.rank == request_.call.root;
}

/// What it needs of the GPU's memory.
std::span<const std::byte> WholeRequest::source() const {
  return is_root_of_broadcast() ? std::span<const std::byte>(request_.output) : request_.input;
}

/// What it leaves there.
std::span<std::byte> WholeRequest::target() const {
  return is_root_of_broadcast() ? std::span<std::byte>() : request_.output;
}

void WholeRequest::fetch() {
  copied_ = std::make_unique<StreamMark>(road_.events, *road_.gpu);
  if (source().empty()) return;
  copy_down(road_, sent_, source());
  copied_->set(road_.down);
}

Advance WholeRequest::advance(const Turn& turn) {
  Advance result = Advance::waits;
  if (stage_ == Stage::waits) {
    if (!begin_->is_reached()) return result;
    fetch();
    stage_ = Stage::comes_down;
    result = Advance::moved;
  }
  if (stage_ == Stage::comes_down) {
    if (!turn.crosses || !(source().empty() || copied_->is_reached())) return result;
    work_ = begin_in(*road_.all, here_);
    stage_ = Stage::crosses;
    result = Advance::moved;
  }
  if (stage_ == Stage::crosses) {
    if (!has_ended(work_, *road_.all)) return result;
    if (target().empty()) return Advance::is_over;
    copy_up(road_, target(), here_.output.data());
    copied_->set(road_.up);
    stage_ = Stage::goes_up;
    result = Advance::moved;
  }
  return copied_->is_reached() ? Advance::is_over : result;
}

void WholeRequest::give_up() noexcept {
  end(work_);
  if (road_.is_by_mpi && stage_ == Stage::crosses) base::keep_for_ever(memory_);
}

}  // namespace lockstep::gpu_hosts
