// init_forms.hpp -- MPI-4's persistent collectives: INIT(Bcast) is MPI_Bcast_init, or what Open MPI 4.1 has
// for it.
#pragma once

#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define INIT(Name) MPIX_##Name##_init
#else
#define INIT(Name) MPI_##Name##_init
#endif
