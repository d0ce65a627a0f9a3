/*
 * Sentences about rewrites that were applied. A kind has a text (struct pl_rewrite_kind) in which
 * words in braces stand for what the rewrite says.
 */
#include "rewrite/rewrite_internal.h"

/* Why an algorithm may be the better one. */
static const char *const reason[PL_ALGO_COUNT_] = {
	[PL_ALGO_RING] = "each link carries the least data, in many messages",
	[PL_ALGO_TREE] = "few messages follow one another, which suits small buckets",
	[PL_ALGO_HALVING] = "few messages follow one another, and links carry little data",
	[PL_ALGO_HIERARCHICAL] = "ranks of a host add up first, so the network carries less",
	[PL_ALGO_PS] = "servers add up what the ranks push to them",
};

/* Bytes of the tensors that the rewrite names, or of the bucket of the first of them. */
static int64_t bytes_of(const struct pl_rewriter *r, const struct pl_rewrite *rw, bool bucket)
{
	int64_t bytes = 0;

	for (uint32_t i = 0; i < (bucket ? 1 : rw->n_args); i++) {
		uint32_t named = pl_rewrite_tensor_find(r, rw->arg[i]);

		for (uint32_t t = 0; named != PL_NONE && t < r->n_tensors; t++)
			if (t == named ||
			    (bucket && rw_now(r)->b.set[t] == rw_now(r)->b.set[named]))
				bytes = pl_add_sat(bytes, r->tensor[t].bytes);
	}
	return bytes;
}

static void put_word(const struct pl_rewriter *r, const struct pl_rewrite *rw, const char *word,
		     struct pl_writer *w)
{
	char text[32];
	int algo;

	switch (word[0]) {
	case 'n': /* names */
		pl_write_int(w, rw->n_args);
		break;
	case 'f': /* first */
		pl_write_text(w, rw->arg[0]);
		break;
	case 'k':
		pl_write_int(w, rw->k);
		break;
	case 'x':
		pl_write_format(w, "%g", rw->x);
		break;
	case 't': /* to, or times */
		if (word[1] == 'i' && rw->x > 0)
			pl_write_format(w, "%g times the recorded", rw->x);
		else
			pl_write_format(w, word[1] == 'i' ? "%s of" : "%s",
					pl_fmt_ns(text, sizeof(text), rw->to));
		break;
	case 'w':
		pl_write_text(w, rw->word ? rw->word : "typical");
		break;
	case 's': /* samples */
	case 'm': /* members */
		if (rw->k)
			pl_write_format(w, "%lld", (long long)rw->k);
		else
			pl_write_format(w, "%g times as many", rw->x);
		break;
	case 'l': /* link */
		if (!rw->word || !strcmp(rw->word, "*"))
			pl_write_text(w, "every link");
		else
			pl_write_format(w, "the link %s", rw->word);
		break;
	case 'r': /* reason */
		algo = pl_plan_algorithm_find(rw->word);
		pl_write_text(w, algo < 0 ? "" : reason[algo]);
		break;
	default: /* bytes, bucket */
		pl_write_text(w, pl_fmt_bytes(text, sizeof(text),
					      (double)bytes_of(r, rw, word[1] == 'u')));
	}
}

void pl_rewrite_explain(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			struct pl_writer *w)
{
	const struct pl_rewrite_kind *kind = pl_rewrite_kinds[rw->op];
	const char *s = kind->explain;

	if (kind->explain_less && rw->n_args <= kind->less)
		s = kind->explain_less;
	pl_write_format(w, "%s: ", pl_plan_rewrite_name(rw->op));
	for (; *s; s++) {
		if (*s != '{') {
			pl_write_char(w, *s);
			continue;
		}
		put_word(r, rw, s + 1, w);
		s = strchr(s, '}');
	}
	pl_write_char(w, '\n');
}
