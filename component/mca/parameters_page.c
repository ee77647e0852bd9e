/* Prints docs/parameters.md. */
#include <stdio.h>

#include "component/mca/variables.h"

static const char introduction[] =
    "# Parameters\n"
    "This page is printed from the table in `component/mca/variables.c`.\n"
    "`cmake --build BUILD --target parameters_page` writes it anew.\n"
    "\n"
    "loom's parameters are MCA variables of Open MPI. To set one, say `coll_loom_verbose` to 1:\n"
    "* for a run: `mpirun --mca coll_loom_verbose 1`;\n"
    "* in the environment: `OMPI_MCA_coll_loom_verbose=1`;\n"
    "* in the file `~/.openmpi/mca-params.conf` of each host: a line `coll_loom_verbose = 1`.\n"
    "\n"
    "Of several settings the first in this list counts. Sizes may end in `k`, `m` or `g`. Open MPI takes\n"
    "of a text like `2s` what it can without a word. `ompi_info --param coll loom --level 9` lists the\n"
    "parameters and their values.\n"
    "\n"
    "Parameters marked *same on all ranks* must be set alike on all ranks of a job: where they differ, the\n"
    "ranks may wait for each other for ever, or the parameter has no effect. All others may differ.\n"
    "\n"
    "loom reports a value that is out of range and uses the default; it reports an unknown collective in\n"
    "`coll_loom_include` or `coll_loom_exclude` and ignores that list. At other unknown words Open MPI\n"
    "lists the known ones and does not load loom (save for `coll_loom_memory`, of which loom takes the\n"
    "default).\n";

static void print_variables(const char* heading, int lowest_level, int highest_level) {
  printf("\n## %s\n", heading);
  printf("| parameter | default | values | same on all ranks | meaning |\n| --- | --- | --- | --- | --- |\n");
  for (const struct coll_loom_variable* variable = coll_loom_variable_table; variable->name; ++variable) {
    if (variable->level < lowest_level || variable->level > highest_level) continue;
    char standard[64], range[128];
    coll_loom_write_default(variable, standard, sizeof standard);
    coll_loom_write_range(variable, range, sizeof range);
    printf("| `coll_loom_%s` | %s | %s | %s | %s |\n", variable->name, standard, range,
           variable->same_on_all_ranks ? "yes" : "", variable->help);
  }
}

int main(void) {
  fputs(introduction, stdout);
  print_variables("For users (levels 1 to 3 of `ompi_info`)", 1, 3);
  print_variables("For tuning and administration (levels 4 to 6)", 4, 6);
  print_variables("For developers (levels 7 to 9)", 7, 9);
  return 0;
}
