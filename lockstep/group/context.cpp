#include "lockstep/group/context.h"

#include <utility>

namespace lockstep {

std::shared_ptr<Context> Context::alone() {
  auto context = std::make_shared<Context>();
  context->page_rank = {0};
  context->join_page(std::make_shared<ControlPage>(ControlPage::in_process(1)), 0, WaitPolicy());
  return context;
}

std::shared_ptr<Context> Context::of_thread(Thread thread) {
  auto context = std::make_shared<Context>();
  const int ranks = thread.page->local_ranks();
  for (int rank = 0; rank < ranks; ++rank) context->page_rank.push_back(rank);
  context->store = std::move(thread.store);
  context->job = std::move(thread.job);
  context->options = thread.options;
  context->arena_bytes = thread.arena_bytes;
  context->threads = true;
  context->join_page(std::move(thread.page), thread.rank, WaitPolicy::for_ranks_per_core(ranks));
  return context;
}

std::shared_ptr<Context> Context::of_process(Arrival arrival) {
  auto context = std::make_shared<Context>();
  context->store = std::move(arrival.store);
  context->trust = std::move(arrival.trust);
  context->job = std::move(arrival.job);
  context->socket_prefix = std::move(arrival.socket_prefix);
  context->store_host = arrival.store_host;
  context->options = arrival.options;
  context->arena_bytes = arrival.arena_bytes;
  context->arrival_timeout = arrival.arrival_timeout;
  return context;
}

void Context::join_page(std::shared_ptr<ControlPage> its_page, int rank, const WaitPolicy& policy) {
  page = std::move(its_page);
  progress = std::make_shared<Progress>(page, policy);
  recorder = std::make_unique<trace::Recorder>(&page->record(rank));
  open_calls = std::make_shared<trace::OpenCalls>(&page->open_calls(rank));
  group_names = std::make_shared<trace::GroupNames>(&page->groups(rank));
}

}  // namespace lockstep
