/* fake_mpi.h - what a test asks of fake_mpi.c. */
#ifndef FAKE_MPI_H
#define FAKE_MPI_H

#include <stdbool.h>

#define FAKE_MPI_HUGE 0x4c00ff00 /* a type whose size is more than an int can say */

struct fake_mpi {
	int request;	 /* the handle of the next send or receive with a request */
	int source, tag; /* what statuses say */
	bool cancelled;	 /* likewise */
	bool fails;	 /* the next send or wait */
};

#endif
