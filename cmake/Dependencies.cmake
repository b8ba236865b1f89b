# What the core is built from. All of it is private to the library: none of our public headers includes any of it.
find_package(Threads REQUIRED)
find_package(hwy REQUIRED)
# Inside our library, with its names hidden: programs bring other libraries with the same names (TensorFlow and gRPC have BoringSSL), to
# which a libcrypto of the system would be bound.
set(OPENSSL_USE_STATIC_LIBS ${BUILD_SHARED_LIBS})
if(OPENSSL_USE_STATIC_LIBS AND OPENSSL_CRYPTO_LIBRARY MATCHES "\\.so$") # found before this was so
  unset(OPENSSL_CRYPTO_LIBRARY CACHE)
  unset(OPENSSL_SSL_LIBRARY CACHE)
endif()
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET GLOBAL hwloc)
# Only their headers: they are loaded when first used (docs/decisions/0018).
pkg_check_modules(curl REQUIRED libcurl)
pkg_check_modules(archive REQUIRED libarchive)
