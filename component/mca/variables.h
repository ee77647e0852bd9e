/* The MCA variables: their values, and a table that describes each of them. The table is used to register
 * them with Open MPI (register.c), to check them, and to print docs/parameters.md (parameters_page.c): so
 * nothing here includes Open MPI. A new variable is a member and a row. */
#ifndef LOOM_COMPONENT_MCA_VARIABLES_H
#define LOOM_COMPONENT_MCA_VARIABLES_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct coll_loom_variables {
  bool enable;
  int verbose;
  double timeout_s;
  bool reproducible;
  char* net_devices;
  bool progress_thread;
  char* memory;
  bool check; /* may change at any time */
  char* include;
  char* exclude;
  bool single_copy;
  int rendezvous; /* enum loom_rendezvous */
  unsigned long long memory_limit;
  unsigned long long overlap_bytes;
  unsigned long long lane_bytes;
  int priority;
  char* tune;
  char* tune_file;
  char* topo_file;
  char* topo_dump_file;
  char* graph_file;
  char* graph_dump_file;
};

/* How a variable is stored, and what a user may write. */
enum coll_loom_variable_type {
  COLL_LOOM_BOOL,    /* bool */
  COLL_LOOM_INT,     /* int */
  COLL_LOOM_SECONDS, /* double */
  COLL_LOOM_SIZE,    /* unsigned long long, bytes: 65536, 64k, 1m, 2g */
  COLL_LOOM_STRING,  /* char*; where the row has words, one of them */
  COLL_LOOM_ENUM     /* int: one of the words; for others Open MPI itself complains and does not load loom */
};

struct coll_loom_word {
  int value;
  const char* name; /* NULL: the end of the list */
};

struct coll_loom_variable {
  const char* name; /* without coll_loom_ */
  enum coll_loom_variable_type type;
  int level;              /* of ompi_info: user 1 to 3, tuner 4 to 6, developer 7 to 9 */
  size_t at;              /* where struct coll_loom_variables has it */
  double initial;         /* the default: a number, or the value of a word; other strings are empty */
  double lowest, highest; /* of numbers */
  const struct coll_loom_word* words;
  bool lists_collectives; /* names of them, as coll_loom_read_list() reads them */
  bool same_on_all_ranks;
  bool settable;    /* while the program runs */
  const char* help; /* {algorithms} stands for their names */
};

/* By level. The last row has no name. */
extern const struct coll_loom_variable coll_loom_variable_table[];

/* The default; strings are constants, which Open MPI copies as it registers the variable. */
void coll_loom_set_default(const struct coll_loom_variable* variable, struct coll_loom_variables* values);

/* Gives each variable that is out of range its default. Writes a line about each of these into report, and
 * one about each number of the environment that Open MPI reads otherwise than it is written ("5 min").
 * Strings are from malloc. */
void coll_loom_correct(struct coll_loom_variables* values, char* report, size_t report_bytes);

/* Whether Open MPI takes a variable's text as it is written; true of all but numbers. */
bool coll_loom_reads_whole(const struct coll_loom_variable* variable, const char* text);

/* Whether a text that is taken as it is written is in range, or a list of collectives; else loom ignores it.
 */
bool coll_loom_takes_text(const struct coll_loom_variable* variable, const char* text);

/* Marks the collectives, of LOOM_COLLECTIVE_COUNT, that a list names; after a ^, those that it does not name.
 * False: bad is a name of the list that is no collective. */
bool coll_loom_read_list(const char* list, bool* named, char* bad, size_t bad_bytes);

/* Texts for users: the help, with the names; "256 MiB"; "0 to 100". */
void coll_loom_write_help(const struct coll_loom_variable* variable, char* text, size_t bytes);
void coll_loom_write_default(const struct coll_loom_variable* variable, char* text, size_t bytes);
void coll_loom_write_range(const struct coll_loom_variable* variable, char* text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
