/* coll_loom_include and coll_loom_exclude: which collectives loom may carry. */
#include <string.h>

#include "component/mca/coll_loom.h"

static bool refused[LOOM_COLLECTIVE_COUNT];
static char bad_name[64];
static const char* bad_variable;

static int collective_named(const char* name, size_t length) {
  for (int collective = 0; collective < LOOM_COLLECTIVE_COUNT; ++collective) {
    const char* const known = loom_collective_name((enum loom_collective)collective);
    if (strlen(known) == length && strncmp(known, name, length) == 0) return collective;
  }
  return -1;
}

/* Marks the collectives that a list names; after a ^, those that it does not name. False: one name is no
 * collective. */
static bool read_list(const char* variable, const char* list, bool named[LOOM_COLLECTIVE_COUNT]) {
  const bool opposite = *list == '^';
  for (int i = 0; i < LOOM_COLLECTIVE_COUNT; ++i) named[i] = opposite;
  for (const char* name = list + opposite; *name != '\0';) {
    name += strspn(name, ", ");
    const size_t length = strcspn(name, ", ");
    if (length == 0) break;
    const int collective = collective_named(name, length);
    if (collective < 0) {
      snprintf(bad_name, sizeof bad_name, "%.*s", (int)length, name);
      bad_variable = variable;
      return false;
    }
    named[collective] = !opposite;
    name += length;
  }
  return true;
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
