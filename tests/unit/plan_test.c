/*
 * Plans: text, binary and JSON, errors with their lines, random plans through both forms, and the
 * sets of tensors that result.
 */
#include "core/words.h"
#include "plan/topology.h"
#include "plan_fixture.h"

#define HEAD "paceline-plan 1\n"

static const char full[] = HEAD "base \"a job.graph\"\n"
				"replicas 16\n"
				"baseline 120500000\n"
				"predicted 104250000\n"
				"bound 98000000\n"
				"evaluations 1842\n"
				"peak 3221225472\n"
				"incomplete\n"
				"provenance \"plan 0.1.0: plan \\\"x y\\\"\"\n"
				"tensor fc.weight 8192000\n"
				"tensor \"fc bias\" 4000 estimated\n"
				"tensor k 12 set=7\n"
				"tensor \"a;b#c\\\\\\x01\" 0\n"
				"fuse-tensors fc.weight \"fc bias\" alone=210000 in-plan=-5\n"
				"partition-tensor fc.weight 4\n"
				"fuse-ops relu \"x\" \"a=b\" share=0.9\n"
				"order k fc.weight in-plan=7\n"
				"accumulate 4\n"
				"recompute l1 l2\n"
				"precision bf16 conv share=0.6\n"
				"precision fp8\n"
				"algorithm ps \"k\" servers=4\n"
				"algorithm ring\n"
				"ranks 64\n"
				"bandwidth nic by=2\n"
				"latency * by=0.1\n"
				"latency to=200000ns\n"
				"speed \"rank 3\" host* factor=1.5\n"
				"priority k fc.weight\n"
				"scale kind=comm rank=2..4 by=0.5\n"
				"remove name=a,b size=1K..|3 phase=backward alone=5\n"
				"set all to=25000ns\n"
				"fix rank=3 to=median\n";

/* The same in the older spelling, with words in place of keys. */
static const char older[] = HEAD "base \"a job.graph\"\n"
				 "replicas 16\n"
				 "baseline 120500000\n"
				 "predicted 104250000\n"
				 "bound 98000000\n"
				 "evaluations 1842\n"
				 "peak 3221225472\n"
				 "incomplete\n"
				 "provenance \"plan 0.1.0: plan \\\"x y\\\"\"\n"
				 "tensor fc.weight 8192000\n"
				 "tensor \"fc bias\" 4000 estimated\n"
				 "tensor \"k\" 12 set 7\n"
				 "tensor \"a;b#c\\\\\\x01\" 0\n"
				 "fuse-tensors fc.weight \"fc bias\" ; alone 210000 in-plan -5\n"
				 "partition-tensor fc.weight 4\n"
				 "fuse-ops relu \"x\" \"a=b\" x 0.9\n"
				 "order \"k\" fc.weight ; in-plan 7\n"
				 "accumulate 4\n"
				 "recompute l1 l2\n"
				 "precision bf16 x 0.6 conv\n"
				 "precision fp8\n"
				 "algorithm ps k 4 \"k\"\n"
				 "algorithm ring\n"
				 "ranks 64\n"
				 "bandwidth nic x 2\n"
				 "latency * x 0.1\n"
				 "latency to 200us\n"
				 "speed x 1.5 \"rank 3\" host*\n"
				 "priority \"k\" fc.weight\n"
				 "scale kind=comm,rank=2..4 by 0.5\n"
				 "remove name=a,b,size=1K..|3,phase=backward ; alone 5\n"
				 "set all to 25us\n"
				 "fix rank=3 to median\n";

static void commas_in_quotes(void)
{
	static const char text[] = HEAD "remove name=\"a,step=3\"\n"
					"scale name=\"gemm<m=1,size=64>\" by=0.5\n"
					"scale name=gemm<4,5> by=0.5\n";
	struct pl_buf b = { 0 };
	struct pl_plan p;

	ok(read_str(text, &p) == 0, "a quoted value with a comma: %s", last.msg);
	is_str(written(&p, pl_plan_write_text, &b), text, "... is one, and stays one");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
}

static void text_is_kept(void)
{
	struct pl_buf b = { 0 };
	struct pl_plan p;

	is_i64(read_str(full, &p), 0, "a plan of everything is read");
	if (last.code)
		printf("# %s\n", last.msg);
	is_str(written(&p, pl_plan_write_text, &b), full, "and written as it was");
	ok(p.n_tensors == 4 && p.n_rw == 20, "tensors and rewrites");
	ok(!p.complete && p.tensor[1].estimated && !p.tensor[0].estimated, "flags");
	is_str(p.tensor[3].name, "a;b#c\\\x01", "a quoted name");
	ok(p.rw[0].alone_ns == 210000 && p.rw[0].in_plan_ns == -5 && p.rw[3].alone_ns == INT64_MIN,
	   "worths");
	ok(p.rw[1].line == 16 && p.rw[1].k == 4 && p.rw[1].n_args == 1, "line, number, name");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	is_i64(read_str(older, &p), 0, "the older spelling is read");
	is_str(written(&p, pl_plan_write_text, &b), full, "and is the same plan");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
}

static void by_hand(void)
{
	struct pl_plan p;

	is_i64(read_str("\xef\xbb\xbf# mine\r\n\r\n  paceline-plan 1 # v\r\n"
			"\tfuse-tensors a\tb# why\r\nprecision x 0.5 bf16",
			&p),
	       0, "a key may stand before the word");
	ok(!strcmp(p.rw[1].word, "bf16") && p.rw[1].x == 0.5, "which stays one");
	pl_plan_fini(&p);
	is_i64(read_str("\xef\xbb\xbf# mine\r\n\r\n  paceline-plan 1 # v\r\n"
			"\tfuse-tensors a\tb# why\r\nprecision bf16 \"x\" x 0.5",
			&p),
	       0, "rewrites alone, byte-order mark, comments, blanks, no newline at the end");
	ok(p.n_rw == 2 && p.rw[1].line == 5 && p.rw[1].x > 0.4 && p.rw[1].n_args == 1,
	   "what it says");
	ok(p.complete && !p.base && p.baseline_ns == INT64_MIN && p.evaluations == -1,
	   "all else is unknown");
	pl_plan_fini(&p);
}

static void errors(void)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "begins with a line: paceline-plan 1" },
		{ "fuse-tensors a b\n", "begins with a line: paceline-plan 1" },
		{ "paceline-plan 2\n", "line 1, column 15: version 2 is newer" },
		{ "paceline-plan 1 2\n", "line 1, column 17: \"2\" is too much here" },
		{ HEAD "\nfuse-tensor a b\n", "line 3, column 1: there is no statement "
					      "\"fuse-tensor\"; did you mean fuse-tensors?" },
		{ HEAD "fuse-tensors\n",
		  "line 2, column 1: fuse-tensors: it needs 1 or more tensors, there are 0" },
		{ HEAD "fuse-tensors a b a\n",
		  "line 2, column 14: fuse-tensors: \"a\" is there twice" },
		{ HEAD "fuse-tensors a \"\"\n", "a name is empty" },
		{ HEAD "fuse-tensors a \"b\n", "the quote is not closed" },
		{ HEAD "fuse-tensors a \"b\\q\"\n", "no escape \\q" },
		{ HEAD "fuse-tensors a \"b\\x00\"\n", "no escape \\x" },
		{ HEAD "fuse-tensors a \"b\"c\n", "no blank behind" },
		{ HEAD "fuse-tensors a\"b\"\n", "no blank before" },
		{ HEAD "fuse-tensors a\\b c\n", "byte 0x5c in a word" },
		{ HEAD "partition-tensor a 1\n",
		  "parts must be at least 2 and at most 65536, not 1" },
		{ HEAD "partition-tensor a\n", "parts must be a whole number, not \"a\"" },
		{ HEAD "partition-tensor a b 4\n", "it takes 1 of tensors, not 2" },
		{ HEAD "partition-tensor a 4.5\n", "parts must be a whole number" },
		{ HEAD "accumulate 2 3\n", "\"3\" is too much here" },
		{ HEAD "accumulate 99999999999999999999\n", "below 2^63" },
		{ HEAD "fuse-ops a b x 1.5\n",
		  "column 16: fuse-ops: share must be above 0 and at most 1, not 1.5" },
		{ HEAD "fuse-ops a b x\n", "share is missing behind \"x\"" },
		{ HEAD "fuse-ops a b x 0\n", "share must be above 0" },
		{ HEAD "fuse-ops a b x nan\n", "share must be a decimal number" },
		{ HEAD "bandwidth nic 2\n", "\"2\" is too much here" },
		{ HEAD "bandwidth nic\n", "by is missing; write: " },
		{ HEAD "bandwidth nic factor=2 by=3\n", "by is there twice" },
		{ HEAD "latency nic\n", "it needs by X or to TIME" },
		{ HEAD "latency by=2 to=5us\n", "it needs by X or to TIME" },
		{ HEAD "speed a\n", "factor is missing; write: " },
		{ HEAD "algorithm star\n",
		  "algorithm must be one of ring|tree|halving-doubling|hierarchical|ps, not "
		  "\"star\"" },
		{ HEAD "algorithm ring k 4\n", "algorithm: ring has no \"servers\"; it has none" },
		{ HEAD "algorithm ring servers=4\n", "ring has no \"servers\"" },
		{ HEAD "precision int8\n",
		  "precision must be one of fp32|tf32|bf16|fp16|fp8, not \"int8\"" },
		{ HEAD "remove\n", "it does not say of which operations" },
		{ HEAD "remove rank=3..1\n", "a range ends before it begins" },
		{ HEAD "scale all\n", "by is missing; write: scale" },
		{ HEAD "set kind=comm to=soon\n", "to must be a time, like 25us" },
		{ HEAD "ranks 0\n", "ranks must be at least 1 and at most 1000000" },
		{ HEAD "base a\nbase b\n", "line 3, column 1: base is there twice" },
		{ HEAD "tensor a 1\ntensor a 2\n", "\"a\" is there twice" },
		{ HEAD "tensor a -1\n", "bytes must be at least 0" },
		{ HEAD "tensor a 1 guessed\n", "column 12: tensor: \"guessed\" is too much here" },
		{ HEAD "accumulate 4 ; alone 3 out 4\n", "behind the semicolon" },
	};
	struct pl_plan p;

	for (size_t i = 0; i < PL_LEN(bad); i++) {
		int rc = read_str(bad[i].text, &p);

		if (!ok(rc == PL_EDATA && strstr(last.msg, bad[i].says) &&
				!strncmp(last.msg, "test: ", 6),
			"refused: %s", bad[i].says))
			printf("# %d %s\n", rc, last.msg);
	}
	is_i64(read_bytes(HEAD "base \"a\0b\"\n", sizeof(HEAD) + 10, &p), PL_EDATA, "a byte 0");
}

/* ---- random plans -------------------------------------------------------------------------------
 */

static uint64_t state;

static uint64_t below(uint64_t n)
{
	return pl_rng_next(&state) % n;
}

static const char *any_name(char *out)
{
	static const char chars[] = "abcxk01 .\"\\#;\n\t\r\x01\x7f\xc3\xa9*=-";
	size_t n = 1 + below(12);

	for (size_t i = 0; i < n; i++)
		out[i] = chars[below(sizeof(chars) - 1)];
	out[n] = '\0';
	return out;
}

static int64_t maybe(int64_t unknown)
{
	return below(3) ? (int64_t)(pl_rng_next(&state) >> (1 + below(60))) : unknown;
}

/* Some patterns, or all operations. */
static void any_selector(struct pl_selector *x)
{
	static const char *const pattern[] = { "3", "4..", "1|2", "7..9|*1" };

	x->all = true;
	for (int k = 0; k < PL_SEL_COUNT_; k++)
		if (!below(4)) {
			x->key[k] = pattern[below(k == PL_SEL_SIZE ? 3 : 4)];
			x->all = false;
		}
}

static void any_rewrite(struct pl_plan *p)
{
	struct pl_rewrite rw = { .op = (uint8_t)below(PL_RW_COUNT_), .to = -1 };
	const struct pl_lang_row *row = &pl_plan_schema.row[rw.op];
	char names[6][32], word[16];
	const char *arg[6];
	struct pl_err err = { 0 };

	for (const struct pl_lang_field *f = row->field; f->name; f++) {
		bool has_value = f->flags & PL_LANG_NEED ||
				 ((!f->only || !strcmp(rw.word, f->only)) && below(2));

		if (f->flags & PL_LANG_LIST)
			rw.n_args = (uint32_t)f->min + (f->max == 0 ? (uint32_t)below(4) : 0);
		else if (f->type == PL_LANG_INT && has_value)
			rw.k = (int64_t)f->min + (int64_t)below((uint64_t)(f->max - f->min) + 1);
		else if (f->type == PL_LANG_REAL && has_value)
			rw.x = f->max * (double)(1 + below(1u << 30)) / (double)(1u << 30) / 3;
		else if (f->type == PL_LANG_NAME)
			rw.word = any_name(word);
		else if (f->type == PL_LANG_CHOICE)
			rw.word = rw.op == PL_RW_FIX ? (below(2) ? "mean" : "median")
				  : rw.op == PL_RW_PRECISION
					  ? pl_words_name(PL_WORDS_PLAN_PRECISION("\0") "\0",
							  (unsigned)below(5))
					  : pl_plan_algorithm_name((unsigned)below(PL_ALGO_COUNT_));
		else if (f->type == PL_LANG_TIME)
			rw.to = (pl_ns)below(1u << 30);
		else if (f->type == PL_LANG_FLAG)
			any_selector(&rw.select);
	}
	if (rw.op == PL_RW_LATENCY) { /* one of the two */
		rw.to = below(2) ? (pl_ns)below(1u << 30) : -1;
		rw.x = rw.to < 0 ? (double)(1 + below(1000)) / 7 : 0;
	}
	if (rw.op == PL_RW_BATCH || rw.op == PL_RW_RANKS) { /* likewise */
		rw.k = below(2) ? 1 + (int64_t)below(1000) : 0;
		rw.x = rw.k ? 0 : (double)(1 + below(1000)) / 7;
	}
	for (uint32_t i = 0; i < rw.n_args; i++) {
		any_name(names[i]);
		names[i][0] = (char)('A' + i); /* they differ */
		arg[i] = names[i];
	}
	rw.arg = arg;
	rw.alone_ns = maybe(INT64_MIN);
	rw.in_plan_ns = below(2) ? -maybe(0) : INT64_MIN;
	if (pl_plan_add(p, &rw, &err) < 0)
		abort();
}

static void any_plan(struct pl_plan *p)
{
	struct pl_err err = { 0 };
	char name[48];
	uint64_t n = below(6);

	pl_plan_init(p);
	if (below(2))
		p->base = pl_arena_dup(&p->arena, any_name(name), strlen(name));
	p->ranks = (int64_t)below(3);
	p->baseline_ns = maybe(INT64_MIN);
	p->predicted_ns = maybe(INT64_MIN);
	p->error_ns = maybe(INT64_MIN);
	p->bound_ns = maybe(INT64_MIN);
	p->model_ns = maybe(INT64_MIN);
	p->evaluations = maybe(-1);
	p->peak_bytes = maybe(-1);
	p->complete = below(2);
	for (uint64_t i = 0; i < n; i++) {
		any_name(name);
		snprintf(name + strlen(name), 8, "%d", (int)i);
		name[0] = (char)('a' + i);
		if (pl_plan_add_tensor(p, name, maybe(0), below(2), &err) < 0)
			abort();
		if (below(2))
			p->tensor[i].set = (uint32_t)below(PL_PLAN_SETS);
	}
	n = below(8);
	for (uint64_t i = 0; i < n; i++)
		any_rewrite(p);
	n = below(3);
	for (uint64_t i = 0; i < n; i++)
		if (pl_buf_printf(&p->provenance, &err, "line %d \"x\" \\x0a\t\n", (int)i) < 0)
			abort();
}

static bool same_str(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_rewrite(const struct pl_rewrite *a, const struct pl_rewrite *b)
{
	bool same = a->op == b->op && same_str(a->word, b->word) && a->n_args == b->n_args &&
		    a->k == b->k && !memcmp(&a->x, &b->x, sizeof(a->x)) &&
		    a->alone_ns == b->alone_ns && a->in_plan_ns == b->in_plan_ns;

	for (uint32_t i = 0; same && i < a->n_args; i++)
		same = same_str(a->arg[i], b->arg[i]);
	for (int k = 0; same && k < PL_SEL_COUNT_; k++)
		same = same_str(a->select.key[k], b->select.key[k]);
	return same && a->to == b->to && a->select.all == b->select.all;
}

static bool same_plan(const struct pl_plan *a, const struct pl_plan *b)
{
	bool same =
		same_str(a->base, b->base) && a->ranks == b->ranks &&
		a->n_tensors == b->n_tensors && a->n_rw == b->n_rw &&
		a->baseline_ns == b->baseline_ns && a->predicted_ns == b->predicted_ns &&
		a->error_ns == b->error_ns && a->bound_ns == b->bound_ns &&
		a->model_ns == b->model_ns && a->evaluations == b->evaluations &&
		a->peak_bytes == b->peak_bytes && a->complete == b->complete &&
		a->provenance.n == b->provenance.n &&
		(!a->provenance.n || !memcmp(a->provenance.p, b->provenance.p, a->provenance.n));

	for (size_t i = 0; same && i < a->n_tensors; i++)
		same = same_str(a->tensor[i].name, b->tensor[i].name) &&
		       a->tensor[i].bytes == b->tensor[i].bytes &&
		       a->tensor[i].set == b->tensor[i].set &&
		       a->tensor[i].estimated == b->tensor[i].estimated;
	for (size_t i = 0; same && i < a->n_rw; i++)
		same = same_rewrite(&a->rw[i], &b->rw[i]);
	return same;
}

static bool there_and_back(const struct pl_plan *p, plan_writer w)
{
	struct pl_buf b = { 0 };
	struct pl_plan back;
	bool same = false;

	written(p, w, &b);
	if (!last.code && read_bytes(b.p, b.n, &back) == 0) {
		same = same_plan(p, &back);
		pl_plan_fini(&back);
	}
	if (!same)
		printf("# %s\n%s\n", last.msg, w == plan_binary ? "" : (const char *)b.p);
	pl_buf_fini(&b);
	return same;
}

static void random_plans(void)
{
	int text = 0, binary = 0, n = 3000;

	for (int i = 0; i < n; i++) {
		struct pl_plan p;

		state = (uint64_t)i;
		any_plan(&p);
		text += there_and_back(&p, pl_plan_write_text);
		binary += there_and_back(&p, plan_binary);
		pl_plan_fini(&p);
		if (text <= i || binary <= i)
			break;
	}
	is_i64(text, n, "random plans through text");
	is_i64(binary, n, "random plans through binary");
}

/* ---- damage ------------------------------------------------------------------------------------
 */

static void damage(void)
{
	struct pl_buf b = { 0 };
	struct pl_plan p, q;
	size_t whole = 0, ends = 0;

	read_str(full, &p);
	written(&p, plan_binary, &b);
	for (size_t n = 0; n < b.n; n++)
		if (read_bytes(b.p, n, &q) == 0) {
			whole++;
			pl_plan_fini(&q);
		} else
			ends += last.code == PL_EDATA && last.msg[0];
	ok(!whole && ends == b.n, "a plan cut anywhere is refused");
	whole = 0;
	for (size_t i = 0; i < b.n; i++) {
		b.p[i] ^= 0x10;
		if (read_bytes(b.p, b.n, &q) == 0) {
			whole += !same_plan(&p, &q); /* deflate has bits that mean nothing */
			pl_plan_fini(&q);
		}
		b.p[i] ^= 0x10;
	}
	ok(!whole, "a plan with a bit flipped is refused, or the same");
	if (pl_buf_need(&b, b.n, &last) < 0)
		abort();
	memcpy(b.p + b.n, b.p, b.n);
	ok(read_bytes(b.p, 2 * b.n, &q) == PL_EDATA && strstr(last.msg, "second plan"),
	   "two plans in a row are refused");
	pl_buf_fini(&b);
	p.rw[4].k = 1;
	ok(written(&p, plan_binary, &b) == last.msg && strstr(last.msg, "line 19: accumulate"),
	   "nonsense is not written");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static void json(void)
{
	static const char want[] =
		"{\n  \"schema\": \"paceline.plan/1\",\n  \"base\": null,\n  \"ranks\": 4,\n"
		"  \"baseline_ns\": 10,\n  \"predicted_ns\": null,\n"
		"  \"error_ns\": null,\n  \"bound_ns\": null,\n  "
		"\"model_ns\": null,\n"
		"  \"evaluations\": null,\n  \"peak_bytes\": null,\n  \"complete\": true,\n"
		"  \"tensors\": [\n    {\n      \"name\": \"a\",\n      \"bytes\": 5,\n"
		"      \"estimated\": true\n    }\n  ],\n  \"rewrites\": [\n    {\n"
		"      \"op\": \"fuse-ops\",\n      \"operations\": [\n        \"m\",\n"
		"        \"n\"\n      ],\n      \"share\": 0.5,\n      \"saves_alone_ns\": 7,\n"
		"      \"saves_in_plan_ns\": null\n    },\n    {\n      \"op\": \"algorithm\",\n"
		"      \"algorithm\": \"ps\",\n      \"tensors\": [],\n      \"servers\": 2,\n"
		"      \"saves_alone_ns\": null,\n      \"saves_in_plan_ns\": null\n    }\n"
		"  ]\n}\n";
	struct pl_buf b = { 0 };
	struct pl_plan p;

	read_str(HEAD "workers 4\nbaseline 10\ntensor a 5 estimated\n"
		      "fuse-ops m n x 0.5 ; alone 7\nalgorithm ps k 2\n",
		 &p);
	is_str(written(&p, pl_plan_write_json, &b), want, "JSON");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
}

/* ---- sets ---------------------------------------------------------------------------------------
 */

/* Sets in order of issue, as "ab c/2 d". */
static const char *sets_from(const char *base, const char *rewrites)
{
	static char out[256];
	struct pl_buckets buckets;
	struct pl_plan p;
	char text[1024];
	size_t at = 0;

	snprintf(text, sizeof(text), HEAD "%s%s", base, rewrites);
	if (read_str(text, &p) < 0)
		return last.msg;
	if (pl_plan_buckets(&p, NULL, &buckets, &last) < 0) {
		pl_plan_fini(&p);
		return last.msg;
	}
	for (uint32_t b = 0; b < buckets.n_sets; b++) {
		at += (size_t)snprintf(out + at, sizeof(out) - at, b ? " " : "");
		for (size_t i = 0; i < p.n_tensors; i++)
			if (buckets.set[i] == b)
				out[at++] = p.tensor[i].name[0];
		out[at] = '\0';
		if (buckets.parts[b] > 1)
			at += (size_t)snprintf(out + at, sizeof(out) - at, "/%u", buckets.parts[b]);
	}
	pl_plan_buckets_fini(&buckets);
	pl_plan_fini(&p);
	return out;
}

static const char *sets_of(const char *rewrites)
{
	return sets_from("tensor a 10\ntensor b 20\ntensor c 30\ntensor d 40\ntensor e 50\n",
			 rewrites);
}

static void sets_of_the_base(void)
{
	static const char base[] = "tensor a 10 set 7\ntensor b 20\ntensor c 30 estimated set 0\n"
				   "tensor d 40 set 7\ntensor e 50 set 0\n";

	is_str(sets_from(base, ""), "b ad ce", "the base has sets");
	is_str(sets_from(base, "fuse-tensors b a\n"), "ab d ce", "one leaves the base's");
	is_str(sets_from(base, "partition-tensor c 2\n"), "b ad ce/2",
	       "a set of the base in parts");
	ok(strstr(sets_from("tensor a 10 set 2147483648\n", ""),
		  "set must be at least 0 and at most 2147483647"),
	   "a number that is none");
	ok(strstr(sets_from("tensor \"grad a\" 4\ntensor \"grad b\" 4\n",
			    "fuse-tensors b a\nfuse-tensors a \"grad a\"\n"),
		  "two of its names are one tensor"),
	   "a line that names one tensor in two ways");
	ok(strstr(sets_from("tensor a 10 set\n", ""), "set is missing behind \"set\""),
	   "a number that is missing");
	is_str(sets_from("tensor a 10 stage=1\ntensor b 20 stage=1\ntensor c 30\ntensor d 40\n",
			 "bucket-mb 1\n"),
	       "ab cd", "stages share no bucket that is filled");
	is_str(sets_from("tensor a 10\ntensor b 20\ntensor c 30\n",
			 "order c a\nbucket-mb 0.00001\n"),
	       "a b c", "... in the order of readiness again");
}

static void sets(void)
{
	is_str(sets_of(""), "a b c d e", "the base");
	is_str(sets_of("fuse-tensors a b\nfuse-tensors c d e\n"), "ab cde", "two sets");
	is_str(sets_of("fuse-tensors a b\nfuse-tensors d e\nfuse-tensors e a\n"), "b c d ae",
	       "tensors leave the sets that they belong to");
	is_str(sets_of("fuse-tensors a b c\nfuse-tensors b\n"), "b ac d e", "one by itself");
	is_str(sets_of("order e a\nfuse-tensors e c\n"), "b ce d a",
	       "the place of what was ordered is kept");
	is_str(sets_of("fuse-tensors a d\n"), "b c ad e", "a set that is no run");
	is_str(sets_of("fuse-tensors a b\npartition-tensor b 3\npartition-tensor e 2\n"),
	       "ab/3 c d e/2", "partitions");
	is_str(sets_of("partition-tensor b 3\npartition-tensor b 2\n"), "a b/2 c d e",
	       "the last number counts");
	is_str(sets_of("order d a c\n"), "d b a c e", "order among places");
	is_str(sets_of("order e a\nfuse-tensors b c\n"), "e bc d a", "order, then a fusion");
	is_str(sets_of("order e a\npriority a e\n"), "e b c d a", "priority changes no places");
	ok(strstr(sets_of("priority a z\n"), "the base has no tensor"), "but knows its names");
	ok(strstr(sets_of("partition-tensor b 3\nfuse-tensors a b\n"), "fuse first"),
	   "a partitioned tensor is not fused");
	ok(strstr(sets_of("fuse-tensors a b\norder a b\n"), "one set already"),
	   "two tensors of a set have no order");
	ok(strstr(sets_of("fuse-tensors a z\n"),
		  "line 7, column 16: fuse-tensors: the base has no tensor"),
	   "an unknown tensor, with its line");
}

/* Format 1.0, as a program of that time wrote it. */
static const uint8_t first_format[] = {
	0x1f, 0x8b, 0x08, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0x10, 0x00, 0x50, 0x4c, 0x0c,
	0x00, 0x48, 0x01, 0x00, 0x00, 0x51, 0x00, 0x00, 0x00, 0x50, 0x4c, 0x41, 0x4e, 0x01, 0x28,
	0x00, 0xd7, 0xff, 0x70, 0x61, 0x63, 0x65, 0x6c, 0x69, 0x6e, 0x65, 0x50, 0x4c, 0x41, 0x4e,
	0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x19, 0xde,
	0x0f, 0x64, 0x28, 0x00, 0x00, 0x00, 0x1f, 0x8b, 0x08, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00,
	0xff, 0x0c, 0x00, 0x50, 0x4c, 0x08, 0x00, 0x42, 0x01, 0x00, 0x00, 0x4a, 0x00, 0x00, 0x00,
	0x00, 0x10, 0x00, 0xef, 0xff, 0x50, 0x4c, 0x41, 0x4e, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x63, 0x60, 0x60, 0xfa, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0xff, 0xcf, 0x88, 0x8d, 0xc5, 0x88, 0xc4, 0x06, 0x00, 0xff, 0xe4, 0x5a,
	0x0b, 0x3d, 0x00, 0x00, 0x00, 0x1f, 0x8b, 0x08, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff,
	0x0c, 0x00, 0x50, 0x4c, 0x08, 0x00, 0x42, 0x01, 0x00, 0x00, 0x44, 0x00, 0x00, 0x00, 0x00,
	0x10, 0x00, 0xef, 0xff, 0x54, 0x4e, 0x53, 0x52, 0x01, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00,
	0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x0a, 0x00, 0xf5, 0xff, 0x04, 0x01, 0x61, 0x04, 0x00,
	0x04, 0x01, 0x62, 0x08, 0x00, 0xb3, 0x9a, 0x51, 0x48, 0x1a, 0x00, 0x00, 0x00, 0x1f, 0x8b,
	0x08, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0x0c, 0x00, 0x50, 0x4c, 0x08, 0x00, 0x42,
	0x01, 0x00, 0x00, 0x56, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0xef, 0xff, 0x52, 0x57, 0x52,
	0x54, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x1c,
	0x00, 0xe3, 0xff, 0x1b, 0x03, 0x00, 0x02, 0x01, 0x61, 0x01, 0x62, 0x00, 0x00, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0x01, 0x72, 0x6e, 0xb8, 0x95, 0x2c, 0x00, 0x00, 0x00, 0x1f, 0x8b, 0x08, 0x04, 0x00, 0x00,
	0x00, 0x00, 0x00, 0xff, 0x0c, 0x00, 0x50, 0x4c, 0x08, 0x00, 0x42, 0x01, 0x00, 0x00, 0x3c,
	0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0xef, 0xff, 0x54, 0x4f, 0x54, 0x4c, 0x01, 0x00, 0x00,
	0x00, 0x01, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x01, 0x02, 0x00, 0xfd, 0xff, 0x02,
	0x01, 0x9a, 0x9e, 0x57, 0x41, 0x12, 0x00, 0x00, 0x00, 0x1f, 0x8b, 0x08, 0x04, 0x00, 0x00,
	0x00, 0x00, 0x00, 0xff, 0x0c, 0x00, 0x50, 0x4c, 0x08, 0x00, 0x58, 0x01, 0x00, 0x00, 0x8a,
	0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0xef, 0xff, 0x49, 0x4e, 0x44, 0x58, 0x01, 0x00, 0x00,
	0x00, 0x04, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x63, 0x65, 0x80, 0x80, 0x50, 0x28,
	0x5d, 0x52, 0xc6, 0x55, 0x90, 0xe7, 0x13, 0xd8, 0x1f, 0xe0, 0xe3, 0xe8, 0xc7, 0xc8, 0xc0,
	0xc0, 0xc0, 0xc8, 0xc0, 0xc0, 0xa0, 0xcb, 0xc0, 0xc0, 0xf0, 0xff, 0x49, 0x14, 0x77, 0x88,
	0x5f, 0x70, 0x10, 0x23, 0x03, 0x03, 0x03, 0x13, 0x03, 0x03, 0x03, 0x17, 0x03, 0x03, 0xc3,
	0xe6, 0x59, 0x81, 0x1e, 0x41, 0xe1, 0x41, 0x21, 0x30, 0x75, 0x32, 0x0c, 0x0c, 0x0c, 0x45,
	0x79, 0x3b, 0xa6, 0x86, 0xf8, 0x87, 0xf8, 0xc0, 0xc4, 0x98, 0x18, 0x18, 0x18, 0x66, 0xcd,
	0x0b, 0x77, 0x04, 0x00, 0x69, 0x13, 0xeb, 0x87, 0x78, 0x00, 0x00, 0x00, 0x1f, 0x8b, 0x08,
	0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0x0c, 0x00, 0x50, 0x4c, 0x08, 0x00, 0x45, 0x01,
	0x00, 0x00, 0x22, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x00
};

static void versions(void)
{
	const size_t must_know = 65; /* of the header member: its last eight bytes of features */
	struct pl_buf b = { 0 };
	struct pl_plan p;

	is_i64(read_bytes(first_format, sizeof(first_format), &p), 0, "format 1.0 is read");
	ok(p.n_tensors == 2 && p.ranks == 2 && p.n_rw == 1 && p.rw[0].op == PL_RW_ORDER &&
		   p.rw[0].alone_ns == 7,
	   "... as it was meant");
	written(&p, plan_binary, &b);
	ok(b.n > must_know && !b.p[must_know], "older readers can read what they know");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	read_str(HEAD "priority a b\n", &p);
	written(&p, plan_binary, &b);
	ok(b.n > must_know && b.p[must_know] == 1, "and are told that they do not know priority");
	pl_buf_fini(&b);
	pl_plan_fini(&p);
}

static void names(void)
{
	bool all = true;

	for (int i = 0; i < PL_RW_COUNT_; i++)
		all &= pl_plan_rewrite_find(pl_plan_rewrite_name((unsigned)i)) == i;
	ok(all && pl_plan_rewrite_find("none") == -1, "names of rewrites");
}

int main(void)
{
	text_is_kept();
	commas_in_quotes();
	by_hand();
	errors();
	random_plans();
	damage();
	json();
	sets();
	sets_of_the_base();
	versions();
	names();
	return done_testing();
}
