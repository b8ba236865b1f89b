// The report of a job that still runs, as a page for a browser on this host: made anew whenever it is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/launch/http_server.h"
#include "lockstep/launch/live_record.h"
#include "lockstep/launch/poll_set.h"
#include "lockstep/view/profile/timeline_spool.h"

class LivePage {
 public:
  /// `port`: of 127.0.0.1; 0: a free one. Throws CannotServe.
  LivePage(lockstep::launch::RunningJob job, std::uint16_t port);
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

  /// With a token that only who has been told can know.
  std::string address() const { return server_.address() + path_; }
  /// Keeps what the ranks have done since the last call, before their rings forget it.
  void look();
  void watch(lockstep::launch::PollSet& poll) { server_.watch(poll); }
  lockstep::Deadline wake_at() const;

 private:
  lockstep::launch::HttpAnswer answer_to(const std::string& path);
  std::string make();

  lockstep::launch::JobPages pages_;
  const std::string path_;  // "/" and the token
  lockstep::launch::HttpServer server_;
  std::optional<lockstep::ControlPage> page_;
  std::optional<lockstep::view::TimelineSpool> spool_;
  std::string made_;  // and kept for a moment
  lockstep::Deadline made_until_ = lockstep::Deadline::after({});
  lockstep::Deadline next_page_ = lockstep::Deadline::after({});
};
