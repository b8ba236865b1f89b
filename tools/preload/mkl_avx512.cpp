// liblockstep_mkl_avx512.so, for LD_PRELOAD (`lockstep run --mkl-avx512`): MKL takes its AVX-512 code wherever the processor has
// AVX-512. By itself it does so on Intel's alone, and takes AVX2 on all others: it asks two functions of its own whose processor it is,
// which it exports, so that these are found before them. Which instructions there are it asks elsewhere: it uses none that the processor
// lacks. Needs nothing but the C library, so that it can be loaded into any program.

#ifdef __x86_64__

namespace {

int takes_all_code() {
  __builtin_cpu_init();
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
  return has_avx512 || __builtin_cpu_is("intel") ? 1 : 0;
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() { return takes_all_code(); }
__attribute__((visibility("default"))) int mkl_serv_intel_cpu() { return takes_all_code(); }
}

#endif
