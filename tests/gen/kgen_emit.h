/*
 * kgen_emit.h - what a training script can do: open ranges, spend host time, launch GPU work,
 * communicate, synchronise.  Every call appends to the script of the current thread.
 */
#ifndef KGEN_EMIT_H
#define KGEN_EMIT_H

#include "kgen.h"

struct kg_emit {
	struct kg_job *job;
	const struct kg_cfg *cfg;
	struct kg_rank *r;
	int thread, step;
	/*
	 * Noise is drawn by (rank, step, scope, counter).  A scope is one layer of one pass of one
	 * microbatch, and communication counts apart from computation, so that adding or removing
	 * a collective leaves every other draw of the job as it was.
	 */
	uint64_t scope;
	uint32_t n_compute, n_comm, seq;
	bool in_comm;
	bool in_graph; /* capture: GPU work is queued but the host does not appear */
	bool whole;    /* ... of a whole pass, not of one layer */
	bool compiled; /* launches without operators */
	uint32_t graph_first;
};

void kg_scope(struct kg_emit *e, int phase, int microbatch, int layer);
double kg_draw_uniform(struct kg_emit *e);
double kg_draw_factor(struct kg_emit *e);

/* Ranges; kg_begin returns the index of the new entry, or KG_NONE inside a graph. */
uint32_t kg_begin(struct kg_emit *e, int cat, const char *name, const char *args);
void kg_end(struct kg_emit *e);
/* Interpreter frames; nothing without --python-stacks. */
void kg_frame(struct kg_emit *e, const char *name);
void kg_frame_end(struct kg_emit *e);
void kg_host(struct kg_emit *e, double us);
void kg_idle(struct kg_emit *e, double us); /* exactly this long on every rank */

/* GPU work on the compute stream. */
void kg_kernel(struct kg_emit *e, const struct kg_kernel *k, double us);
void kg_memset(struct kg_emit *e, uint64_t bytes, double us);
void kg_copy_in(struct kg_emit *e, uint64_t bytes, double us); /* on the copy stream, joined */
void kg_copy_out_sync(struct kg_emit *e);		       /* one scalar, the host waits */
void kg_copy_out_blocking(struct kg_emit *e);		       /* the same by a call that blocks */
void kg_copy_pageable(struct kg_emit *e, uint64_t bytes, double us); /* in; the host waits */
void kg_device_sync(struct kg_emit *e);
void kg_call(struct kg_emit *e, int api, double us); /* own time of a call that launches nothing */
void kg_graph_begin(struct kg_emit *e, bool whole);
void kg_graph_end(struct kg_emit *e, bool whole);

/* Events: waits of a stream or of the host for what a stream was given before. */
uint32_t kg_event(struct kg_emit *e, int stream);
void kg_stream_wait(struct kg_emit *e, int stream, uint32_t event);
void kg_host_wait(struct kg_emit *e, uint32_t event);

/*
 * Communication on the stream of a group, behind what stream `from` was given before.  Returns a
 * handle to the end event for kg_join, which makes the compute stream wait for it.
 */
enum { KG_C_ALLREDUCE, KG_C_ALLGATHER, KG_C_REDUCE_SCATTER, KG_C_ALLTOALL, KG_C_P2P };
uint32_t kg_collective(struct kg_emit *e, int op, int stream, int from, uint64_t bytes);
uint32_t kg_allreduce(struct kg_emit *e, int stream, uint64_t bytes);
uint32_t kg_send_recv(struct kg_emit *e, int stream, uint64_t bytes);
void kg_join(struct kg_emit *e, int stream, uint32_t event);
/* What a collective of the job is called in the arguments of its events. */
const char *kg_coll_name(int op);

/* The main thread hands over to the other thread, or back. */
void kg_hand_over(struct kg_emit *e, int to_thread);

#endif
