/* Prints docs/parameters.md. */
#include <stdio.h>

#include "component/mca/counters.h"
#include "component/mca/variables.h"

static const char introduction[] =
    "# Parameters and counters\n"
    "This page is printed from the tables in `component/mca/variables.c` and `component/mca/counters.c`.\n"
    "`cmake --build BUILD --target parameters_page` writes it anew.\n"
    "\n"
    "loom's parameters are MCA variables of Open MPI. To set one, for instance `coll_loom_verbose` to 1:\n"
    "* for a run: `mpirun --mca coll_loom_verbose 1`;\n"
    "* in the environment: `OMPI_MCA_coll_loom_verbose=1`;\n"
    "* in the file `~/.openmpi/mca-params.conf` of each host: a line `coll_loom_verbose = 1`.\n"
    "\n"
    "Of several settings the first in this list counts. Sizes may end in `k`, `m` or `g`. Open MPI itself\n"
    "reads them, and takes `2q` as 2; loom reports such a value of `--mca` or the environment, and\n"
    "`loom doctor` those of files, too. `ompi_info --param coll loom --level 9` lists the\n"
    "parameters and their values.\n"
    "\n"
    "Parameters marked *same on all ranks* must be set alike on all ranks of a job: if they differ, the\n"
    "ranks may wait for each other for ever, or the parameter has no effect. All others may differ.\n"
    "\n"
    "loom reports a value that is out of range and uses the default; it reports an unknown collective in\n"
    "`coll_loom_include` or `coll_loom_exclude` and ignores that list. For other unknown words Open MPI\n"
    "lists the known ones and does not load loom (except for `coll_loom_memory`: there loom uses the\n"
    "default).\n";

static const char about_counters[] =
    "\n"
    "## Counters\n"
    "Programs and tools read loom's counters through MPI's tool interface (MPI_T), as performance variables\n"
    "of class counter and type `MPI_UNSIGNED_LONG_LONG`. In Open MPI a handle counts from its allocation,\n"
    "so allocate it before the calls; `mpi_examples/hello_allreduce.c` shows how.\n"
    "\n";

static const char about_elements[] =
    "\n"
    "`MPI_T_pvar_handle_alloc` tells how many elements a variable has, and `MPI_T_pvar_read` gives them\n"
    "all. They lie row by row: of a variable `[collective][reason]`, element `[i][j]` has the number\n"
    "`i` * (number of reasons) + `j`.\n"
    "\n"
    "Programs can learn the names from the variable's description, as `mpi_examples/support/loom_pvars.cpp`\n"
    "does: `MEANING; element [collective][reason]; collective: NAMES; reason: NAMES`. Names are in\n"
    "order and separated by spaces.\n";

/* Nothing if no variable has such a level. */
static void print_variables(const char* heading, int lowest_level, int highest_level) {
  bool is_first = true;
  for (const struct coll_loom_variable* variable = coll_loom_variable_table; variable->name; ++variable) {
    if (variable->level < lowest_level || variable->level > highest_level) continue;
    if (is_first)
      printf("\n## %s\n| parameter | default | values | same on all ranks | meaning |\n"
             "| --- | --- | --- | --- | --- |\n",
             heading);
    is_first = false;
    char standard[64], range[128], help[1024];
    coll_loom_write_default(variable, standard, sizeof standard);
    coll_loom_write_range(variable, range, sizeof range);
    coll_loom_write_help(variable, help, sizeof help);
    printf("| `coll_loom_%s` | %s | %s | %s | %s |\n", variable->name, standard, range,
           variable->same_on_all_ranks ? "yes" : "", help);
  }
}

static void print_places(const char* heading, enum coll_loom_dimension dimension) {
  printf("\n%s:", heading);
  for (int place = 0; place < coll_loom_dimension_length(dimension); ++place)
    printf("%s %d `%s`", place > 0 ? "," : "", place, coll_loom_place_name(dimension, place));
  printf(".\n");
}

static void print_reasons(void) {
  printf("\nReasons:\n");
  for (int reason = 0; reason < coll_loom_dimension_length(COLL_LOOM_REASON); ++reason)
    printf("* %d `%s`: %s\n", reason, coll_loom_place_name(COLL_LOOM_REASON, reason),
           coll_loom_reason_help(reason));
}

static void print_counters(void) {
  printf("| variable | elements | meaning |\n| --- | --- | --- |\n");
  for (const struct coll_loom_counter* counter = coll_loom_counter_table; counter->name; ++counter) {
    printf("| `coll_loom_%s` | ", counter->name);
    if (counter->rows == COLL_LOOM_NO_DIMENSION) {
      printf("1");
    } else {
      printf("[%s]", coll_loom_dimension_name(counter->rows));
      if (counter->columns != COLL_LOOM_NO_DIMENSION)
        printf("[%s]", coll_loom_dimension_name(counter->columns));
    }
    printf(" | %s |\n", counter->help);
  }
}

int main(void) {
  fputs(introduction, stdout);
  print_variables("For users (levels 1 to 3 of `ompi_info`)", 1, 3);
  print_variables("For tuning and administration (levels 4 to 6)", 4, 6);
  print_variables("For developers (levels 7 to 9)", 7, 9);
  fputs(about_counters, stdout);
  print_counters();
  fputs(about_elements, stdout);
  print_places("Collectives", COLL_LOOM_COLLECTIVE);
  print_places("Algorithms", COLL_LOOM_ALGORITHM);
  print_reasons();
  return 0;
}
