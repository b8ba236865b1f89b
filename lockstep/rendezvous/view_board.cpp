// In the store: "views/N" view N, "out/L" why a life, L as to_text() gives it, is out, "in-view/N/..." what is done in view N.
#include "lockstep/rendezvous/view_board.h"

namespace lockstep {
namespace {

// A rank that was stopped may still come to one of the last views.
constexpr std::uint64_t views_kept = 16;

std::string key_of(std::uint64_t number) { return "views/" + std::to_string(number); }

std::string out_key(const Life& life) { return "out/" + to_text(life); }

}  // namespace

void ViewBoard::publish(const View& view) {
  job_.set(key_of(view.number), view.to_text());
  if (view.number <= views_kept) return;
  (void)job_.erase(key_of(view.number - views_kept));
  (void)job_.erase_all(place_of(view.number - views_kept) + "/");
}

void ViewBoard::note_out(const Life& life, const std::string& why) { job_.set(out_key(life), why); }

View ViewBoard::get(std::uint64_t number, Deadline deadline) {
  return View::parse(job_.get(key_of(number), deadline));
}

std::optional<std::string> ViewBoard::why_out(const Life& life) { return job_.try_get(out_key(life)); }

std::string ViewBoard::place_of(std::uint64_t view) { return "in-view/" + std::to_string(view); }

}  // namespace lockstep
