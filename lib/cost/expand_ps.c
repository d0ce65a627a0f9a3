/*
 * Parameter servers. Each member pushes S over its own link, S/k to each of the k servers. All
 * servers serve all members at once, each server over its own link. A server can send data back
 * when it has this data from all members; the pull works in the same way as the push.
 *
 * The data is divided as finely as possible. The link of the server begins one latency after the
 * link of a member begins. It carries the data of the members in the order of their arrival. It
 * ends when it has carried all data and the last member has sent all. The servers do the same at
 * the same time. Therefore only one is expanded, and "serve R" stands for each of the k servers.
 */
#include "cost/expand_internal.h"

struct arrival {
	pl_ns start;
	uint32_t i;
};
struct ps {
	struct expansion *s;
	struct hop worker, server;
	struct arrival *order;	/* members as they arrive */
	struct member link;	/* of the server */
	uint32_t servers, last; /* node: the last that the server served, PL_NONE */
};

PL_COMPARATOR(by_arrival, struct arrival, start, i);

/* Adds the message of member i after node `after`, and the server's time. Returns the message. */
static uint32_t serve(struct ps *p, uint32_t i, bool pull, uint32_t after)
{
	struct expansion *s = p->s;
	pl_ns dur = pl_cost_expand_busy(&s->m[i], (long double)p->worker.ns_per_byte * s->bytes);
	pl_ns part = pl_cost_expand_busy(&p->link, (long double)p->server.ns_per_byte * s->bytes /
							   p->servers);
	char name[40];
	uint32_t sent, id;

	snprintf(name, sizeof(name), "%s %u", pull ? "pull" : "push", i);
	sent = pl_cost_expand_message(s, i, i, name, s->bytes, dur);
	pl_cost_expand_edge(s, after, sent, PL_E_SEQ, 0);
	snprintf(name, sizeof(name), "serve %u", i);
	id = pl_cost_expand_message(s, s->n, i, name, s->bytes / p->servers, part);
	pl_cost_expand_edge(s, sent, id, PL_E_START, expand_latency(p->worker));
	if (p->last != PL_NONE)
		pl_cost_expand_edge(s, p->last, id, PL_E_SEQ, 0);
	p->last = id;
	return sent;
}

/* `turn` is the node at which the servers have the data of all members. */
static void push(struct ps *p, uint32_t turn, bool more)
{
	struct expansion *s = p->s;

	for (uint32_t k = 0; k < s->n; k++) {
		uint32_t i = p->order[k].i;

		pl_cost_expand_edge(s, serve(p, i, false, s->m[i].arrive), turn, PL_E_DATA,
				    expand_latency(p->worker));
	}
	pl_cost_expand_edge(s, p->last, turn, PL_E_SEQ, 0);
	for (uint32_t i = 0; !more && i < s->n;
	     i++) /* the servers acknowledge when they have all data */
		pl_cost_expand_edge(s, turn, s->m[i].transfer, PL_E_SEQ, 0);
}

static void pull(struct ps *p, uint32_t turn)
{
	struct expansion *s = p->s;

	for (uint32_t k = 0; k < s->n; k++) {
		uint32_t i = p->order[k].i;

		pl_cost_expand_edge(s, serve(p, i, true, turn), s->m[i].transfer, PL_E_DATA,
				    expand_latency(p->worker));
	}
	for (uint32_t i = 0; i < s->n; i++)
		pl_cost_expand_edge(s, p->last, s->m[i].transfer, PL_E_SEQ, 0);
}

void pl_cost_expand_ps(struct expansion *s, bool pushes, bool pulls)
{
	enum pl_scope scope = s->place.hosts > 1 ? PL_SCOPE_NETWORK : PL_SCOPE_HOST;
	struct ps p = { .s = s, .servers = s->x->comm.servers, .last = PL_NONE };
	uint32_t turn;

	p.servers = p.servers ? p.servers : 1;
	p.worker = pl_cost_expand_hop(s, scope, s->place.per_host);
	p.server = pl_cost_expand_hop(s, scope, 1);
	s->rc = pl_alloc(&p.order, s->n, sizeof(*p.order), s->err);
	if (s->rc < 0)
		return;
	for (uint32_t i = 0; i < s->n; i++)
		p.order[i] = (struct arrival){ s->e->node[s->m[i].arrive].start, i };
	pl_sort(p.order, s->n, sizeof(*p.order), by_arrival);
	turn = pl_cost_expand_delay(s, "reduced", 0);
	if (pushes)
		push(&p, turn, pulls);
	else
		for (uint32_t i = 0; i < s->n;
		     i++) /* servers have nothing to send before all members are there */
			pl_cost_expand_edge(s, s->m[i].arrive, turn, PL_E_SEQ, 0);
	p.last = PL_NONE; /* a link's other direction */
	if (pulls)
		pull(&p, turn);
	pl_free(p.order);
}
