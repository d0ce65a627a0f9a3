/* plain.h - the reference backend, with which the tests compare the backends of the library. */
#ifndef PLAIN_H
#define PLAIN_H

#include "tensor/backend.h"

/* Slow and simple, one loop for each formula. */
extern const struct pl_backend pl_backend_plain;

#endif
