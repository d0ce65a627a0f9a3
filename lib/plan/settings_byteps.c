/*
 * Settings of BytePS: environment.
 *
 * BytePS splits every tensor into partitions of one size. It rounds the size up to whole pages
 * times the ranks of a host. It fuses no tensors. Each size of a chunk of the plan is tried (at
 * most TRIED sizes), and the one is taken that gives the fewest tensors another number of parts:
 * O(tried x tensors). The credit of BytePS limits how many partitions are sent before the next is
 * chosen by priority; 0 turns priorities off.
 *
 * BytePS has no settings for sets of several tensors, for an order, or for chunks of several sizes.
 */
#include "plan/internal.h"

#define BYTES_MAX INT32_MAX /* it reads the size as an int */
#define PAGE	  4096
#define TRIED	  512

static int64_t parts_of(const struct pl_setter *s, size_t i)
{
	return s->s.b.parts[s->s.b.set[i]];
}

/* Tensors that get another number of parts than in the plan. */
static uint32_t differing(const struct pl_setter *s, int64_t bytes)
{
	uint32_t n = 0;

	for (size_t i = 0; i < s->s.p->n_tensors; i++) {
		int64_t b = s->s.p->tensor[i].bytes;

		n += b > 0 && (b - 1) / bytes + 1 != parts_of(s, i);
	}
	return n;
}

/* Partitions of a size under which the fewest differ; the largest of equally good ones. */
static int64_t best_size(const struct pl_setter *s, uint32_t *differ)
{
	size_t n = s->s.p->n_tensors;
	int64_t best = PAGE;

	*differ = differing(s, best);
	for (size_t i = 0; i < n; i += 1 + n / TRIED) {
		/* a set of several tensors counts as its tensors: they are not fused */
		int64_t k = parts_of(s, i), b = s->s.p->tensor[i].bytes;
		int64_t bytes = pl_min_i64(b / k + (b % k > 0), BYTES_MAX - PAGE);
		uint32_t d;

		bytes = pl_max_i64((bytes + PAGE - 1) / PAGE, 1) * PAGE;
		d = differing(s, bytes);
		if (d < *differ || (d == *differ && bytes > best)) {
			*differ = d;
			best = bytes;
		}
	}
	return best;
}

static void put_partitions(struct pl_setter *s)
{
	uint32_t differ;
	int64_t bytes = best_size(s, &differ);

	pl_write_format(&s->w,
			"# rounded up by BytePS to whole pages times the ranks of a host\n"
			"export BYTEPS_PARTITION_BYTES=%lld\n",
			(long long)bytes);
	if (differ)
		pl_write_format(&s->w,
				"# not exactly the plan's chunks: %u of %zu tensors get "
				"another number of them\n",
				differ, s->s.p->n_tensors);
	s->done |= 1u << PL_RW_PARTITION_TENSOR;
}

static void put_servers(struct pl_setter *s)
{
	const struct pl_rewrite *rw = pl_settings_last(s->p, PL_RW_ALGORITHM);

	s->done |= 1u << PL_RW_ALGORITHM;
	pl_write_format(&s->w,
			"# the same on all roles, and as many servers to be started\n"
			"export DMLC_NUM_SERVER=%lld\n",
			(long long)(rw->k ? rw->k : 1));
}

static void body(struct pl_setter *s)
{
	int64_t acc = pl_settings_accumulate(s);
	bool priority = pl_settings_last(s->p, PL_RW_PRIORITY) != NULL;

	if (s->s.n)
		put_partitions(s);
	if (priority || pl_settings_last(s->p, PL_RW_ORDER)) {
		pl_write_format(&s->w, "# one partition on its way and one behind it, so that "
				       "priorities decide what is next: those of BytePS,\n"
				       "# the order of declaration in TensorFlow, of parameters in "
				       "MXNet, of their sorted names in PyTorch\n"
				       "export BYTEPS_SCHEDULING_CREDIT=2\n");
		s->done |= priority ? 1u << PL_RW_PRIORITY : 0;
	} else if (s->s.n) {
		pl_write_format(&s->w, "# no order in the plan: first come, first served\n"
				       "export BYTEPS_SCHEDULING_CREDIT=0\n");
	}
	if (pl_settings_algorithm(s->p) == PL_ALGO_PS)
		put_servers(s);
	if (acc)
		pl_write_format(
			&s->w,
			"# microbatches of 1/%lld of the batch each, and of its loss, in PyTorch: "
			"byteps.torch.DistributedOptimizer(..., "
			"backward_passes_per_step=%lld)\n",
			(long long)acc, (long long)acc);
}

const struct pl_settings pl_settings_byteps = { "byteps",
						"BytePS: environment with the size of partitions",
						body };
