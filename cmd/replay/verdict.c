/* The verdict: for people, and for programs. People read first what they can change: so computation
 * comes after the causes that are lost time, and then what has no name. */
#include "program.h"

#define LINES 5	   /* of the verdict */
#define SMALL 0.03 /* of the step: only the first cause may be smaller */
#define MUCH  0.2  /* of the step: so much without a name has its place among the causes */

void print_verdict(const struct report *r, struct pl_writer *w)
{
	const struct pl_verdict *v = &r->verdict;
	const struct pl_verdict_row *other = NULL;
	const char *head = "bound by:";
	bool computes = false;
	size_t n = 0;

	for (size_t i = 0; i < v->n && n < LINES && (!n || v->row[i].share >= SMALL); i++) {
		if (v->row[i].cause == PL_VERDICT_OTHER && v->row[i].share < v->compute.share &&
		    v->row[i].share < MUCH) {
			other = &v->row[i];
			continue;
		}
		computes |= v->row[i].cause == PL_VERDICT_COMPUTE;
		print_wrapped(n++ ? "         " : head, v->row[i].text, w);
	}
	if (!computes && v->n)
		print_wrapped(n++ ? "         " : head, v->compute.text, w);
	if (other)
		print_wrapped("         ", other->text, w);
}

static void put_row(struct pl_writer *w, const struct pl_verdict_row *x)
{
	pl_json_open(w, '{');
	pl_json_str(w, "cause", pl_verdict_word(x->cause));
	pl_json_real(w, "share", x->share);
	pl_json_str(w, "where", x->where);
	pl_json_str(w, "text", x->text);
	pl_json_close(w);
}

void put_verdict(struct pl_writer *w, const struct report *r)
{
	const struct pl_verdict *v = &r->verdict;

	pl_json_key(w, "verdict");
	pl_json_open(w, '[');
	for (size_t i = 0; i < v->n; i++)
		put_row(w, &v->row[i]);
	pl_json_close(w);
	pl_json_key(w, "computation");
	put_row(w, &v->compute);
}
