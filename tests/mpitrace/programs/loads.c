/* A program without MPI that loads a plug-in with one: `loads PLUGIN`. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char** words) {
  void* plugin = dlopen(words[count - 1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    puts(dlerror());
    return 2;
  }
  return ((int (*)(void))dlsym(plugin, "run"))();
}
