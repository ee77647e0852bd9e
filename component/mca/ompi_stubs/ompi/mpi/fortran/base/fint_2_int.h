/* Stand-in, see ../../../../README.md. MPI_Fint is int in every build that loom supports: nothing to convert.
 */
#ifndef LOOM_STANDIN_FINT_2_INT_H
#define LOOM_STANDIN_FINT_2_INT_H

#define OMPI_INT_2_FINT(value) (value)
#define OMPI_FINT_2_INT(value) (value)

#endif
