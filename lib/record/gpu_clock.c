/*
 * Each report of a time comes after that time, so (time of the host at the report) - (time of the
 * device) is the offset of the clocks plus a delay. The least one of this fifth of a second and of
 * the one before is taken as the offset. It is too large by the least delay of a report: some
 * microseconds, if a thread of the host polls a counter. A clock that drifts by 20 ppm adds 8 us at
 * most.
 */
#include "record/gpu_clock.h"

#define WINDOW_NS 200000000

void pl_gpu_clock_init(struct pl_gpu_clock *k)
{
	memset(k, 0, sizeof(*k));
	pthread_mutex_init(&k->lock, NULL);
}

void pl_gpu_clock_reading(struct pl_gpu_clock *k, uint64_t gpu, pl_ns host)
{
	int64_t offset = pl_sub_sat(host, (int64_t)gpu);

	pthread_mutex_lock(&k->lock);
	if (!k->n || host - k->since > WINDOW_NS) {
		k->least[1] = k->least[0];
		k->least[0] = offset;
		k->since = host;
		k->n = k->n < 2 ? k->n + 1 : 2;
	}
	k->least[0] = pl_min_i64(k->least[0], offset);
	pthread_mutex_unlock(&k->lock);
}

pl_ns pl_gpu_clock_host(struct pl_gpu_clock *k, uint64_t gpu)
{
	int64_t offset;

	pthread_mutex_lock(&k->lock);
	offset = k->n == 2 ? pl_min_i64(k->least[0], k->least[1]) : k->least[0];
	pthread_mutex_unlock(&k->lock);
	return pl_add_sat((int64_t)gpu, offset);
}
