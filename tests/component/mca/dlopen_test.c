/* The plugin loads with every symbol resolved, without MPI being initialised and without a GPU driver, and
 * keeps its inside to itself. Argument: the plugin's path. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    fprintf(stderr, "dlopen: %s\n", dlerror());
    return 1;
  }
  int failures = 0;
  if (dlsym(plugin, "mca_coll_loom_component") == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    ++failures;
  }
  static const char* const internal[] = {"loom_perform", "loom_initialize", "coll_loom_allreduce",
                                         "coll_loom_variables"};
  for (size_t i = 0; i < sizeof internal / sizeof *internal; ++i) {
    if (dlsym(plugin, internal[i]) != NULL) {
      fprintf(stderr, "%s is visible outside the plugin\n", internal[i]);
      ++failures;
    }
  }
  if (dlclose(plugin) != 0) ++failures;
  return failures != 0;
}
