// The functions of libcurl that we call, from the library that is loaded when it is first needed.
#pragma once

#define CURL_DISABLE_TYPECHECK  // its checks are macros that call the linked functions
#include <curl/curl.h>

#include <memory>

namespace lockstep::fetch {

struct CurlLibrary {
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_strerror) easy_strerror;

  /// Throws Error{unsupported} where it is not installed, or does no https.
  static const CurlLibrary& get();
};

}  // namespace lockstep::fetch
