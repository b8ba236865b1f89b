#include "lockstep/data/fetch/curl_library.h"

#include "lockstep/base/error.h"
#include "lockstep/base/loaded_library.h"

namespace lockstep::fetch {
namespace {

CurlLibrary load_libcurl() {
  const LoadedLibrary library("libcurl.so.4", "install libcurl (Debian: libcurl4)");
  const auto global_init = library.function<decltype(&::curl_global_init)>("curl_global_init");
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    throw Error(ErrorCode::unsupported, "libcurl cannot begin");
  return {library.function<decltype(&::curl_easy_init)>("curl_easy_init"),
          library.function<decltype(&::curl_easy_setopt)>("curl_easy_setopt"),
          library.function<decltype(&::curl_easy_perform)>("curl_easy_perform"),
          library.function<decltype(&::curl_easy_getinfo)>("curl_easy_getinfo"),
          library.function<decltype(&::curl_easy_cleanup)>("curl_easy_cleanup"),
          library.function<decltype(&::curl_easy_strerror)>("curl_easy_strerror")};
}

}  // namespace

const CurlLibrary& CurlLibrary::get() {
  static const CurlLibrary loaded = load_libcurl();
  return loaded;
}

}  // namespace lockstep::fetch
