/*
 * kgen_job.c - the layout of the job (ranks, hosts, process groups, clocks) and the true times of
 * its steps.
 */
#include "kgen.h"

#include <stdlib.h>
#include <string.h>

static void add_group(struct kg_job *job, const char *desc, const int *rank, int n,
		      const int *streams)
{
	struct kg_group *g = &job->group[job->n_group];

	if (n < 2)
		return;
	g->id = (int)job->n_group++;
	g->desc = desc;
	g->n = n;
	g->p2p = streams[0] != streams[1];
	g->rank = kg_alloc((size_t)n, sizeof(*g->rank));
	for (int i = 0; i < n; i++) {
		struct kg_rank *r = &job->rank[rank[i]];

		g->rank[i] = rank[i];
		r->group[streams[i ? 1 : 0]] = g->id;
		if (r->host != job->rank[rank[0]].host)
			g->inter_host = true;
	}
}

static void make_groups(struct kg_job *job)
{
	static const int tp_streams[] = { KG_S_TP, KG_S_TP }, dp_streams[] = { KG_S_DP, KG_S_DP };
	static const int pp_streams[] = { KG_S_PP, KG_S_PP };
	static const int fwd[] = { KG_S_FWD_OUT, KG_S_FWD_IN };
	static const int bwd[] = { KG_S_BWD_OUT, KG_S_BWD_IN };
	static const int more[][2] = { { KG_S_GATHER, KG_S_GATHER },
				       { KG_S_SCATTER, KG_S_SCATTER },
				       { KG_S_EXPERT, KG_S_EXPERT } };
	static const char *const names[] = { "fsdp_gather", "fsdp_scatter", "ep_group" };
	const struct kg_cfg *c = &job->cfg;
	int *m = kg_alloc((size_t)c->ranks, sizeof(*m)), block = c->tp * c->dp;

	job->group = kg_alloc(8 * (size_t)c->ranks, sizeof(*job->group));
	for (int first = 0; first < c->ranks; first += c->tp) {
		for (int i = 0; i < c->tp; i++)
			m[i] = first + i;
		add_group(job, "tp_group", m, c->tp, tp_streams);
	}
	for (int i = 0; i < c->tp * c->pp; i++) {
		int first = i / c->tp * block + i % c->tp;

		for (int k = 0; k < c->dp; k++)
			m[k] = first + k * c->tp;
		add_group(job, "dp_group", m, c->dp, dp_streams);
		for (int s = 0; s < 3; s++)
			if (kg_uses(c, more[s][0]))
				add_group(job, names[s], m, c->dp, more[s]);
	}
	for (int first = 0; first < block; first++) {
		for (int k = 0; k < c->pp; k++)
			m[k] = first + k * block;
		add_group(job, "pp_group", m, c->pp, pp_streams);
	}
	/* With several parts of the model on a stage the last stage sends to the first one, too. */
	for (int first = 0; first + (c->chunks > 1 ? 0 : block) < c->ranks; first++) {
		int next = (first + block) % c->ranks;

		m[0] = first;
		m[1] = next;
		add_group(job, "pp_forward", m, 2, fwd);
		m[0] = next;
		m[1] = first;
		add_group(job, "pp_backward", m, 2, bwd);
	}
	free(m);
}

void kg_make_job(struct kg_job *job)
{
	const struct kg_cfg *c = &job->cfg;
	int per_host = (c->ranks + c->hosts - 1) / c->hosts;

	job->rank = kg_alloc((size_t)c->ranks, sizeof(*job->rank));
	for (int i = 0; i < c->ranks; i++) {
		struct kg_rank *r = &job->rank[i];
		uint64_t key = kg_hash(c->seed, (uint64_t)i);

		r->id = i;
		r->host = i / per_host;
		r->dev = i % per_host;
		r->tp = i % c->tp;
		r->dp = i / c->tp % c->dp;
		r->pp = i / (c->tp * c->dp);
		r->pid = 20000 + (int)(kg_hash(c->seed, (uint64_t)r->host + 99) % 30000) +
			 67 * r->dev;
		r->host_factor = c->jitter > 0 ? 0.96 + 0.08 * kg_uniform(kg_hash(key, 1)) : 1;
		r->slow = kg_rule_value(&c->slow, i, r->host, 1, true);
		r->offset_ns = (int64_t)kg_rule_value(&c->offset, i, r->host, 0, false);
		r->drift_ppm = kg_rule_value(&c->drift, i, r->host, 0, false);
		/* Ranks enter the first step up to 1 ms apart. */
		r->begin_ns = KG_EPOCH_NS + (int64_t)(kg_hash(key, 2) % 1000000);
		for (int s = 0; s < KG_NSTREAM; s++)
			r->group[s] = -1;
	}
	make_groups(job);
}

struct step_truth {
	int64_t start, end, comm_ns, transfer_ns;
};

static void collect_truth(const struct kg_job *job, struct step_truth *truth)
{
	for (int s = 0; s < job->cfg.steps; s++)
		truth[s].start = INT64_MAX;
	for (int i = 0; i < job->cfg.ranks; i++) {
		const struct kg_rank *r = &job->rank[i];

		for (size_t k = 0; k < r->th[0].n; k++) {
			const struct kg_hop *h = &r->th[0].op[k];
			struct step_truth *t = &truth[h->step];

			if (h->kind != KG_H_BEGIN || strncmp(h->name, "ProfilerStep#", 13))
				continue;
			if (h->start < t->start)
				t->start = h->start;
			if (h->end > t->end)
				t->end = h->end;
		}
		for (size_t k = 0; k < r->n_gop; k++) {
			const struct kg_gop *g = &r->gop[k];
			struct step_truth *t = &truth[g->step];

			if (g->kind != KG_G_RECORD && g->kind != KG_G_WAIT && g->end > t->end)
				t->end = g->end;
			if (g->kind != KG_G_COLL)
				continue;
			t->comm_ns += g->end - g->start;
			t->transfer_ns += job->coll[g->dep].transfer_ns;
		}
	}
}

void kg_write_truth(const struct kg_job *job)
{
	const struct kg_cfg *c = &job->cfg;
	struct step_truth *truth = kg_alloc((size_t)c->steps, sizeof(*truth));
	char *path = kg_strf("%s/truth.json", c->dir);
	struct kg_out *o = kg_out_open(path, false);

	collect_truth(job, truth);
	kg_putf(o,
		"{\"ranks\": %d, \"hosts\": %d, \"tp\": %d, \"pp\": %d, \"dp\": %d,\n\"steps\": [",
		c->ranks, c->hosts, c->tp, c->pp, c->dp);
	for (int s = 0; s < c->steps; s++)
		kg_putf(o,
			"%s\n  {\"step\": %d, \"start_ns\": %lld, \"end_ns\": %lld, "
			"\"recorded_ns\": %lld, \"comm_ns\": %lld, \"transfer_ns\": %lld}",
			s ? "," : "", s + 1, (long long)truth[s].start, (long long)truth[s].end,
			(long long)(truth[s].end - truth[s].start),
			(long long)(truth[s].comm_ns / c->ranks),
			(long long)(truth[s].transfer_ns / c->ranks));
	kg_puts(o, "\n],\n\"clocks\": [");
	for (int i = 0; i < c->ranks; i++) {
		const struct kg_rank *r = &job->rank[i];

		kg_putf(o,
			"%s\n  {\"rank\": %d, \"host\": \"node%02d\", \"offset_ns\": %lld, "
			"\"drift_ppm\": %.9g, \"epoch_ns\": %lld}",
			i ? "," : "", i, r->host, (long long)r->offset_ns, r->drift_ppm,
			KG_EPOCH_NS);
	}
	kg_puts(o, "\n]}\n");
	kg_out_close(o);
	free(path);
	free(truth);
}
