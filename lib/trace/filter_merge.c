/*
 * The merge table after a filter. A member names its event by its number in the segment, so each
 * member is searched among the old numbers of the events that passed (binary search). Segments
 * without events are removed, with the uses of their clocks. All clocks stay, because the offsets
 * of the others refer to the first one. O(members * log(events)), and one number for each member.
 *
 * A collective that lost members is marked like one whose ranks were not all recorded. A send and
 * its receive stay together or are both removed.
 */
#include "trace/internal.h"

/* The place of the event among those that passed, PL_NONE: it did not pass. */
static uint32_t place(const struct pl_passed *s, uint32_t event)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, s->n, s->from[i] < event);
	return i < s->n && i < PL_NONE && s->from[i] == event ? (uint32_t)i : PL_NONE;
}

static bool is_pair(const struct pl_merge *m, const struct pl_match *k)
{
	return k->flags & PL_MATCH_P2P && k->n == 2 && (uint64_t)k->first + 2 <= m->n_members;
}

/* Give members their new numbers; segment PL_NONE: removed. */
static void renumber(struct pl_merge *m, const struct pl_passed *seg, uint32_t n_segs,
		     const uint32_t *number)
{
	for (uint32_t i = 0; i < m->n_members; i++) {
		struct pl_member *e = &m->member[i];
		uint32_t at = e->segment < n_segs ? place(&seg[e->segment], e->event) : PL_NONE;

		*e = at == PL_NONE ? (struct pl_member){ PL_NONE, 0 }
				   : (struct pl_member){ number[e->segment], at };
	}
	for (uint32_t i = 0; i < m->n_matches; i++) {
		struct pl_member *e = &m->member[m->match[i].first];

		if (!is_pair(m, &m->match[i]))
			continue;
		if (e[0].segment == PL_NONE || e[1].segment == PL_NONE)
			e[0].segment = e[1].segment = PL_NONE;
	}
}

int pl_trace_merge_close_gaps(struct pl_merge *m, struct pl_err *err)
{
	uint32_t *before, k = 0; /* before[i]: the number of members before the i-th that stay */
	bool owner = false;

	PL_CHECK(pl_alloc(&before, (size_t)m->n_members + 1, sizeof(*before), err));
	for (uint32_t i = 0; i < m->n_members; i++) {
		before[i] = k;
		if (m->member[i].segment != PL_NONE)
			m->member[k++] = m->member[i];
	}
	before[m->n_members] = k;
	m->n_members = k;
	k = 0;
	for (uint32_t i = 0; i < m->n_matches; i++) {
		struct pl_match a = m->match[i];
		bool message = a.flags & PL_MATCH_MESSAGE;
		uint32_t n = a.n;

		a.n = before[a.first + n] - before[a.first];
		a.first = before[a.first];
		if (a.n < n)
			a.flags |= PL_MATCH_MISSING;
		if (message && !owner) /* otherwise readers would add it to another collective */
			continue;
		if (a.n && (a.n == n || !(a.flags & PL_MATCH_P2P)))
			m->match[k++] = a;
		owner = message ? owner : a.n > 0;
	}
	m->n_matches = k;
	k = 0;
	for (uint32_t i = 0; i < m->n_uses; i++)
		if (m->use[i].segment != PL_NONE)
			m->use[k++] = m->use[i];
	m->n_uses = k;
	pl_free(before);
	return 0;
}

/* Remove groups that no match has any more. */
static void drop_groups(struct pl_merge *m, uint32_t *number)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < m->n_groups; i++)
		number[i] = PL_NONE;
	for (uint32_t i = 0; i < m->n_matches; i++)
		if (m->match[i].group < m->n_groups)
			number[m->match[i].group] = 0;
	for (uint32_t i = 0; i < m->n_groups; i++) {
		if (number[i] == PL_NONE) {
			pl_free(m->group[i].name);
			pl_free(m->group[i].rank);
			continue;
		}
		number[i] = k;
		m->group[k++] = m->group[i];
	}
	for (uint32_t i = 0; i < m->n_matches; i++)
		if (m->match[i].group < m->n_groups)
			m->match[i].group = number[m->match[i].group];
	m->n_groups = k;
}

static int check(const struct pl_merge *m, struct pl_err *err)
{
	for (uint32_t i = 0; i < m->n_matches; i++)
		if ((uint64_t)m->match[i].first + m->match[i].n > m->n_members)
			return pl_fail(err, PL_EDATA, "match %u passes the last of %u members", i,
				       m->n_members);
	return 0;
}

int pl_trace_merge_passed(struct pl_merge *m, const struct pl_passed *seg, uint32_t n_segs,
			  struct pl_err *err)
{
	uint32_t *number = NULL, *group = NULL, k = 0;
	int rc;

	PL_TRY(check(m, err));
	PL_TRY(pl_alloc(&number, (size_t)n_segs + 1, sizeof(*number), err));
	PL_TRY(pl_alloc(&group, (size_t)m->n_groups + 1, sizeof(*group), err));
	for (uint32_t i = 0; i < n_segs; i++)
		number[i] = seg[i].n ? k++ : PL_NONE;
	renumber(m, seg, n_segs, number);
	for (uint32_t i = 0; i < m->n_uses; i++) {
		uint32_t *of = &m->use[i].segment;

		*of = *of < n_segs ? number[*of] : PL_NONE;
	}
	PL_TRY(pl_trace_merge_close_gaps(m, err));
	drop_groups(m, group);
out:
	pl_free(number);
	pl_free(group);
	return rc;
}
