/* How the ranks compare what they call (check.c): each tells the first one, which judges and answers. So one
 * rank knows who has not come; memory for the lists of all is needed there alone; and whoever comes too late
 * finds an answer. Includes coll_loom.h downwards. */
#ifndef LOOM_COMPONENT_MCA_CHECK_EXCHANGE_H
#define LOOM_COMPONENT_MCA_CHECK_EXCHANGE_H

#include "component/mca/coll_loom.h"

/* For a message to the user. */
struct coll_loom_text {
  char of[1024];
  size_t length;
};
__attribute__((format(printf, 2, 3))) void coll_loom_say(struct coll_loom_text* text, const char* format,
                                                         ...);

/* Of what all ranks have told, one behind the other: an error class, and why. */
typedef int (*coll_loom_judge_t)(const void* all, int ranks, struct coll_loom_text* text);

/* Collective, with as many bytes on all ranks. True: all ranks have come, and *error is the class that
 * `judge` has found on the first one. False: a rank has not come within coll_loom_timeout, or messages have
 * failed; later calls of the communicator fail. The first rank may have a text then, and whoever has waited
 * in vain. */
bool coll_loom_tell_first(struct coll_loom_module* self, const void* mine, size_t bytes,
                          coll_loom_judge_t judge, struct coll_loom_text* text, int* error);
/* Instead: this rank cannot take part, because of *error. */
void coll_loom_end_checks(struct coll_loom_module* self, int* error);

#endif
