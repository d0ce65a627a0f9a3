/* kernels_table.h - the launchers of CUDA kernels as a backend, on the emulated device. */
#ifndef PL_KERNELS_TABLE_H
#define PL_KERNELS_TABLE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "tensor/backend.h"

/* Only what kernels do; the rest is NULL. */
struct pl_backend emu_table(void);
/* half: activations are bfloat16; seed: order of blocks and threads */
void *emu_table_open(bool half, uint64_t seed);
void emu_table_close(void *ctx);
/* Are races looked for? See cuda_emu.h. */
bool emu_table_watched(void);
#ifdef __cplusplus
}
#endif

#endif
