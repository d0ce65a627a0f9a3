/* fuzz_program.h - what targets with tensor programs share. */
#ifndef PL_FUZZ_PROGRAM_H
#define PL_FUZZ_PROGRAM_H

#include "fuzz.h"
#include "tprog/tprog.h"

/* The program as a file of one. */
static void write_program(const struct pl_tprog *p, struct pl_buf *b)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(b, &err);
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	pl_tprog_write_header(&w);
	pl_tprog_write(p, &w);
	FUZZ_CHECK(pl_write_end(&w, &err) == 0);
	pl_write_fini(&w);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
}

#endif
