/*
 * kgen.h - shared types of the synthetic job generator.
 *
 * Life of a run: kgen.c parses options, kgen_job.c lays out ranks and groups, kgen_model.c turns
 * the job into one script of host operations per thread and one list of GPU operations per rank
 * (kgen_kinds.c: what kinds of jobs add; kgen_schedule.c: the order of microbatches), kgen_sim.c
 * gives every operation a start and an end, kgen_write.c writes one profiler file per rank.
 * kgen_big.c is independent of all that.  Times are int64_t nanoseconds on the true clock
 * unless a name says otherwise.
 */
#ifndef KGEN_H
#define KGEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KG_EPOCH_NS  1712000000000000000LL
#define KG_MAX_RULES 64
#define KG_NONE	     UINT32_MAX

/* Exit statuses shared with the other programs. */
enum { KG_EXIT_USAGE = 2, KG_EXIT_IO = 4, KG_EXIT_LIMIT = 5, KG_EXIT_BUG = 70 };

struct kg_rule { /* "R:VALUE" or "host:H:VALUE" */
	bool by_host;
	int index;
	double value;
};

struct kg_rules {
	int n;
	struct kg_rule r[KG_MAX_RULES];
};

struct kg_kind;

struct kg_cfg {
	const char *dir;
	const struct kg_kind *kind; /* NULL: data, tensor and pipeline parallelism alone */
	int chunks;		    /* parts of the model that a pipeline stage has */
	double planted;		    /* factor of the times that the kind adds */
	double batch;		    /* factor of the samples of a microbatch */
	double contention;	    /* kernels take this many times as long beside those of NCCL */
	int ranks, hosts, tp, pp, dp, steps, layers, microbatches;
	int queue_depth; /* launches the driver accepts before it blocks the caller */
	uint64_t seed, noise_seed;
	double jitter; /* standard deviation as a fraction */
	double comm_scale, bytes_scale, compute_us, host_us, data_us, alpha_us;
	double gbps, intra_gbps; /* bus bandwidth in gigabits per second */
	double step_gap_ms;
	bool gzip, handler_names, host_bound, sync_comm, record_groups, cuda_sync, base_time;
	bool cuda_graphs, python_stacks, no_flows, truncate_last, device_sync, no_item;
	bool integer_us, no_host_name, queue_per_stream;
	bool distinct_shapes; /* of --big: no two operators have the same shapes */
	bool lengths;	      /* of sequences differ from step to step and between ranks */
	struct kg_rules slow, offset, drift;
};

/* Streams of a rank; kg_stream_id[] has the numbers shown in the files. */
enum {
	KG_S_COMPUTE,
	KG_S_COPY,
	KG_S_TP,
	KG_S_DP,
	KG_S_FWD_OUT, /* pipeline: activations to the next stage */
	KG_S_FWD_IN,
	KG_S_BWD_OUT, /* pipeline: gradients to the previous stage */
	KG_S_BWD_IN,
	KG_S_PP,      /* all stages of a pipeline: the norm of the gradients */
	KG_S_GATHER,  /* sharded: parameters */
	KG_S_SCATTER, /* sharded: gradients */
	KG_S_EXPERT,
	KG_NSTREAM
};
extern const int kg_stream_id[KG_NSTREAM];

struct kg_kernel {
	const char *name;
	int regs, shared, grid, block;
};

/* One operation in the queue of a stream. */
enum { KG_G_KERNEL, KG_G_COLL, KG_G_MEMCPY, KG_G_MEMSET, KG_G_RECORD, KG_G_WAIT };

struct kg_gop {
	uint8_t kind, stream;
	bool launched, done, arrived;
	int32_t step;
	uint32_t thread_hop; /* index of the launching call in its thread's script */
	uint8_t thread;
	uint8_t event_id; /* RECORD: number in the reused pool of events */
	uint32_t dep;	  /* WAIT: index of the RECORD; COLL: index of the collective */
	uint32_t graph_node;
	uint32_t place; /* in the queue of its stream */
	int64_t latency, dur;
	int64_t alone; /* duration without contention */
	int64_t ready, start, end;
	uint64_t bytes;
	const struct kg_kernel *kernel; /* name only for copies */
};

/* One operation of a host thread. */
enum { KG_H_BEGIN, KG_H_END, KG_H_BUSY, KG_H_CALL, KG_H_POST, KG_H_AWAIT };
enum { KG_CAT_OP, KG_CAT_ANNOTATION, KG_CAT_PYTHON };
enum { KG_SYNC_NONE, KG_SYNC_STREAM, KG_SYNC_DEVICE, KG_SYNC_EVENT };

struct kg_api {
	const char *name;
	int cbid;
	bool flow_start; /* linked to a GPU activity by a flow arrow */
	bool waits;	 /* with --cuda-sync the profiler says for what */
	const char *cat; /* NULL: cuda_runtime */
};
enum {
	KG_API_LAUNCH,
	KG_API_LAUNCH_EX,
	KG_API_MEMCPY,
	KG_API_MEMSET,
	KG_API_RECORD,
	KG_API_WAIT,
	KG_API_STREAM_SYNC,
	KG_API_DEVICE_SYNC,
	KG_API_GRAPH,
	KG_API_CAPTURING,
	KG_API_QUERY,
	KG_API_EVENT_SYNC,
	KG_API_MEMCPY_SYNC,
	KG_API_MALLOC,
	KG_API_FREE,
	KG_API_DRIVER_LAUNCH
};
extern const struct kg_api kg_apis[];

struct kg_hop {
	uint8_t kind, cat, api, sync, sync_stream;
	bool issued, comm_wait;
	int32_t step;
	uint32_t first, n;  /* CALL: range of GPU operations */
	uint32_t limit;	    /* CALL with sync: wait for GPU operations below this index, or for this
			       RECORD */
	uint32_t coll;	    /* collective this range belongs to, or KG_NONE */
	uint32_t token;	    /* POST, AWAIT */
	uint32_t seq;	    /* autograd sequence number, 0 = none */
	uint32_t ext, corr; /* numbers given by the writer */
	uint32_t annotation; /* CALL: innermost annotation, set by the writer */
	int64_t dur, start, end;
	const char *name, *args;
};

struct kg_thread {
	struct kg_hop *op;
	size_t n, cap, pc;
	int64_t now;
	uint32_t open[48];
	int depth;
};

struct kg_queue {
	uint32_t *item; /* indices into the GPU operations of the rank, in launch order */
	size_t n, cap, head;
	int64_t free;
};

struct kg_rank {
	int id, host, dev, tp, dp, pp, pid;
	double host_factor, slow, drift_ppm;
	int64_t offset_ns, begin_ns;
	struct kg_thread th[2]; /* main, autograd */
	struct kg_gop *gop;
	size_t n_gop, cap_gop;
	struct kg_queue q[KG_NSTREAM];
	int64_t *token; /* time of each hand-over between the threads, -1 = not yet */
	size_t n_token, cap_token;
	int group[KG_NSTREAM]; /* group served by a stream, -1 = none */
	uint32_t seq[KG_NSTREAM];
};

struct kg_group {
	const char *desc;
	int stream0; /* stream of the first member; differs only for pipeline pairs */
	int n, id;
	bool p2p, inter_host;
	int *rank;
	uint32_t *coll; /* by sequence number */
	size_t n_coll, cap_coll;
};

struct kg_coll {
	int group, n_arrived, op;
	uint32_t seq;
	uint64_t nelems;
	int64_t transfer_ns, last_start;
	uint32_t *gop; /* by member */
};

struct kg_job {
	struct kg_cfg cfg;
	struct kg_rank *rank;
	struct kg_group *group;
	size_t n_group;
	struct kg_coll *coll;
	size_t n_coll, cap_coll;
};

/* kgen.c */
_Noreturn void kg_die(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *kg_alloc(size_t n, size_t size);
/* Ensures room for one more element; returns the (moved) array. */
void *kg_grow(void *p, size_t n, size_t *cap, size_t size);
char *kg_strf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
double kg_rule_value(const struct kg_rules *rules, int rank, int host, double none, bool multiply);

/* Counter-based noise: the same key gives the same draw whatever else the job does. */
uint64_t kg_hash(uint64_t a, uint64_t b);
double kg_uniform(uint64_t key);
double kg_factor(const struct kg_cfg *cfg, uint64_t key);

/* kgen_job.c; kg_make_job expects job->cfg to be set */
void kg_make_job(struct kg_job *job);
void kg_write_truth(const struct kg_job *job);

/* kgen_kinds.c; sets the defaults of the kind, too.  False: there is no such kind. */
bool kg_kind_set(struct kg_cfg *cfg, const char *name);
/* The i-th kind; false: there are fewer. */
bool kg_kind_get(size_t i, const char **name, const char **help);
bool kg_uses(const struct kg_cfg *cfg, int stream);

/* kgen_model.c */
void kg_build(struct kg_job *job);

/* kgen_sim.c */
void kg_simulate(struct kg_job *job);

/* kgen_write.c */
void kg_write_rank(const struct kg_job *job, struct kg_rank *rank);

/* kgen_out.c */
struct kg_out;
struct kg_out *kg_out_open(const char *path, bool gzip);
void kg_out_close(struct kg_out *o);
uint64_t kg_out_bytes(const struct kg_out *o);
void kg_put(struct kg_out *o, const char *s, size_t n);
void kg_puts(struct kg_out *o, const char *s);
void kg_put_u64(struct kg_out *o, uint64_t v);
void kg_put_us(struct kg_out *o, int64_t ns); /* microseconds with three decimals */
void kg_putf(struct kg_out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* kgen_big.c */
void kg_big(const struct kg_cfg *cfg, double megabytes, const char *path);

#endif
