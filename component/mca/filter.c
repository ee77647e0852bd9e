/* coll_loom_include and coll_loom_exclude: which collectives loom may carry. */
#include "component/mca/coll_loom.h"

static bool refused[LOOM_COLLECTIVE_COUNT];
static char bad_name[64];
static const char* bad_variable;

/* False: one name is no collective. */
static bool read_list(const char* variable, const char* list, bool named[LOOM_COLLECTIVE_COUNT]) {
  if (coll_loom_read_list(list, named, bad_name, sizeof bad_name)) return true;
  bad_variable = variable;
  return false;
}

static bool is_set(const char* list) {
  return list != NULL && *list != '\0';
}

void coll_loom_read_filter(void) {
  bool named[LOOM_COLLECTIVE_COUNT];
  const char *include = coll_loom_variables.include, *exclude = coll_loom_variables.exclude;
  if (is_set(include) && read_list("coll_loom_include", include, named))
    for (int i = 0; i < LOOM_COLLECTIVE_COUNT; ++i) refused[i] |= !named[i];
  if (is_set(exclude) && read_list("coll_loom_exclude", exclude, named))
    for (int i = 0; i < LOOM_COLLECTIVE_COUNT; ++i) refused[i] |= named[i];
}

bool coll_loom_takes(enum loom_collective collective) {
  return !refused[collective];
}

const char* coll_loom_bad_filter(const char** variable) {
  *variable = bad_variable;
  return bad_variable != NULL ? bad_name : NULL;
}
