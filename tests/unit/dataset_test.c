/* Datasets: every kind of file, what is refused, normalisation, and which samples a step takes. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "data/dataset.h"
#include "tap.h"

static struct pl_err err;
static char folder[] = "/tmp/dataset.XXXXXX";

static const char *path(const char *name)
{
	static char text[4][256];
	static unsigned turn;
	char *s = text[turn++ % 4];

	snprintf(s, sizeof(text[0]), "%s/%s", folder, name);
	return s;
}

static void put(const char *name, const void *p, size_t n)
{
	FILE *f = fopen(path(name), "wb");

	if (!f || fwrite(p, 1, n, f) != n || fclose(f))
		abort();
}

static void put_str(const char *name, const char *s)
{
	put(name, s, strlen(s));
}

/* "%" in the description stands for the folder */
static int open_spec(const char *spec, struct pl_dataset *d)
{
	char text[1024] = "";
	size_t n = 0;

	for (; *spec; spec++)
		n += (size_t)(*spec == '%' ? snprintf(text + n, sizeof(text) - n, "%s/", folder)
					   : snprintf(text + n, sizeof(text) - n, "%c", *spec));
	memset(&err, 0, sizeof(err));
	return pl_dataset_open(text, 7, d, &err);
}

static void npy(const char *name, const char *descr, const char *shape, const void *p, size_t n)
{
	char head[256];
	int len =
		snprintf(head + 10, sizeof(head) - 10,
			 "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
	FILE *f = fopen(path(name), "wb");

	memcpy(head, "\x93NUMPY\x01\x00", 8);
	head[8] = (char)len;
	head[9] = 0;
	if (!f || fwrite(head, 1, (size_t)len + 10, f) != (size_t)len + 10 ||
	    (n && fwrite(p, 1, n, f) != n) || fclose(f))
		abort();
}

static void files(void)
{
	static const uint8_t images[] = { 0, 0, 8, 3, 0, 0, 0, 2, 0,   0,   0,	 2,   0,   0,
					  0, 3, 0, 1, 2, 3, 4, 5, 250, 251, 252, 253, 254, 255 };
	static const uint8_t labels[] = { 0, 0, 8, 1, 0, 0, 0, 2, 4, 0 };
	static const float x[] = { 1, 2, 3, 4, 5, 6 }, t[] = { 0.5f, -1, 2 };
	static const int64_t y[] = { 2, 0, 1 };
	static const uint16_t u16[] = { 5, 50256, 0 };
	struct pl_dataset d;

	put("images", images, sizeof(images));
	put("labels", labels, sizeof(labels));
	is_i64(open_spec("idx:%images,%labels", &d), 0, "idx");
	ok(d.n == 2 && d.n_dims == 3 && d.dim[0] == 1 && d.dim[1] == 2 && d.dim[2] == 3 &&
		   d.size == 6,
	   "images of one channel");
	ok(d.x[7] == 251 && d.y[0] == 4 && d.y[1] == 0 && d.classes == 5, "pixels and classes");
	pl_dataset_fini(&d);
	npy("x.npy", "<f4", "(3, 2)", x, sizeof(x));
	npy("y.npy", "<i8", "(3,)", y, sizeof(y));
	npy("t.npy", "<f4", "(3,)", t, sizeof(t));
	npy("u.npy", "<u2", "(3,)", u16, sizeof(u16));
	is_i64(open_spec("npy:%x.npy,%y.npy", &d), 0, "npy with classes");
	ok(d.n == 3 && d.n_dims == 1 && d.size == 2 && d.x[5] == 6 && d.y[0] == 2 &&
		   d.classes == 3 && !d.target,
	   "its samples");
	pl_dataset_fini(&d);
	is_i64(open_spec("npy:%x.npy,%t.npy", &d), 0, "npy with targets");
	ok(d.n_targets == 1 && d.target[1] == -1 && !d.y, "its targets");
	pl_dataset_fini(&d);
	is_i64(open_spec("tokens:%u.npy", &d), 0, "tokens of npy");
	ok(d.n == 3 && d.vocab == 50257 && d.token[1] == 50256 && !d.word, "its tokens");
	pl_dataset_fini(&d);
	put("t.bin", u16, sizeof(u16));
	is_i64(open_spec("tokens:%t.bin", &d), 0, "tokens of 16 bits");
	ok(d.n == 3 && d.vocab == 50257 && d.token[0] == 5, "its tokens");
	pl_dataset_fini(&d);
	put_str("text", "hello\nworld");
	is_i64(open_spec("tokens:%text", &d), 0, "a text");
	ok(d.n == 11 && d.vocab == 8 && d.token[5] == 0 && d.token[0] == 3, "bytes in their order");
	ok(d.n_words == 8 && !strcmp(d.word[0], "\n") && !strcmp(d.word[7], "w"),
	   "and their names");
	pl_dataset_fini(&d);
	is_i64(open_spec("tokens:%t.bin,type=bytes", &d), 0, "told to be a text");
	ok(d.n == 6, "six bytes");
	pl_dataset_fini(&d);
}

static void csv(void)
{
	struct pl_dataset d;

	put_str("a.csv", "a,b,kind\n1,2,rose\n3,4.5,\"daisy\"\n-5,6e1,rose\n");
	is_i64(open_spec("csv:%a.csv", &d), 0, "csv: the last column is the label");
	ok(d.n == 3 && d.size == 2 && d.x[3] == 4.5f && d.x[4] == -5, "its values");
	ok(d.classes == 2 && d.y[0] == 1 && d.y[1] == 0 && d.n_words == 2 &&
		   !strcmp(d.word[0], "daisy"),
	   "words are classes in their order");
	pl_dataset_fini(&d);
	put_str("b.csv", "y,a,z\n7,1,0.5\n2,3,1.5\n");
	is_i64(open_spec("csv:%b.csv,label=y", &d), 0, "a label by name");
	ok(d.classes == 8 && d.y[0] == 7 && d.size == 2 && d.x[1] == 0.5f && !d.word,
	   "numbers are classes");
	pl_dataset_fini(&d);
	is_i64(open_spec("csv:%b.csv,target=z,target=y", &d), 0, "two targets");
	ok(d.n_targets == 2 && d.target[0] == 7 && d.target[1] == 0.5f && d.size == 1 && !d.y,
	   "in the order of the columns");
	pl_dataset_fini(&d);
}

static void refused(void)
{
	static const struct {
		const char *spec;
		int code;
		const char *says;
	} bad[] = {
		{ "", PL_EUSAGE, "\"\" is no kind of data" },
		{ "mnist", PL_EUSAGE, "\"mnist\" is no kind of data; there are idx" },
		{ "idx:%images", PL_EUSAGE, "needs two files, as in idx:IMAGES,LABELS" },
		{ "npy:a,b,c", PL_EUSAGE, "needs two files, as in npy:" },
		{ "idx:%nothing,%labels", PL_EIO, "nothing" },
		{ "idx:%labels,%labels", PL_EDATA, "an array of 1 dimensions" },
		{ "idx:%images,%three", PL_EDATA, "three: 3 labels, but 2 samples in" },
		{ "idx:%behind,%labels", PL_EDATA, "byte 28: something behind the array" },
		{ "npy:%inf.npy,%y.npy", PL_EDATA, "value 1 of sample 2 is not finite" },
		{ "npy:%x.npy,%neg.npy", PL_EDATA, "label 1 is no class from 0" },
		{ "tokens:%t.npy", PL_EDATA, "element 0 is no token" },
		{ "tokens:%more.npy", PL_EDATA, "something behind the array" },
		{ "tokens:%odd.bin", PL_EDATA, "3 bytes are no 16-bit tokens" },
		{ "tokens:%one", PL_EDATA, "there is nothing to predict" },
		{ "tokens:%one,kind=u16", PL_EUSAGE, "needs a file" },
		{ "tokens:", PL_EUSAGE, "needs a file" },
		{ "csv:", PL_EUSAGE, "needs a file" },
		{ "csv:%a.csv,column=a", PL_EUSAGE, "\"column=a\" is no label=COLUMN" },
		{ "csv:%a.csv,label=a,target=b", PL_EUSAGE, "not both" },
		{ "csv:%a.csv,label=c", PL_EDATA, "line 1: no column \"c\" in the header" },
		{ "csv:%a.csv,target=kind", PL_EDATA,
		  "line 2: column 3 (kind): \"rose\" is no number" },
		{ "csv:%short.csv", PL_EDATA, "line 3: 1 columns, where the header has 2" },
		{ "csv:%twice.csv", PL_EDATA, "two columns are named \"a\"" },
		{ "csv:%head.csv", PL_EDATA, "no samples" },
		{ "csv:%one", PL_EDATA, "1 columns; 2 to 65536" },
		{ "csv:%empty.csv", PL_EDATA, "line 2: an empty label" },
		{ "csv:%zero.csv", PL_EDATA, "line 3: column 2 holds the byte 0" },
		{ "csv:%b.csv,target=a,target=y,target=z", PL_EDATA, "no column is left" },
		{ "synthetic:samples=0", PL_EUSAGE, "\"samples=0\" is none of" },
		{ "synthetic:dims=3x", PL_EUSAGE, "\"dims=3x\" is none of" },
		{ "synthetic:dims=1x1x1x1x1", PL_EUSAGE, "is none of" },
		{ "synthetic:noise=-1", PL_EUSAGE, "is none of" },
		{ "synthetic:tokens=5,classes=2", PL_EUSAGE, "not both" },
		{ "synthetic:classes=5,targets=2", PL_EUSAGE, "not both" },
		{ "synthetic:samples=2000000000,dims=1000", PL_EUSAGE, "more than 2^31" },
		{ "synthetic:samples=2000000,dims=1,targets=65536", PL_EUSAGE, "more than 2^31" },
	};
	static const uint8_t three[] = { 0, 0, 8, 1, 0, 0, 0, 3, 4, 0, 1 };
	static const uint8_t behind[] = { 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0,
					  3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3 };
	static const float inf[] = { 1, 2, 3, 4, 5, INFINITY };
	static const int64_t neg[] = { 1, -1, 1 };
	static const uint16_t more[] = { 5, 6, 7, 8 };

	put("three", three, sizeof(three));
	put("behind", behind, sizeof(behind));
	npy("inf.npy", "<f4", "(3, 2)", inf, sizeof(inf));
	npy("neg.npy", "<i8", "(3,)", neg, sizeof(neg));
	npy("more.npy", "<u2", "(3,)", more, sizeof(more));
	put_str("odd.bin", "abc");
	put_str("one", "a");
	put_str("short.csv", "a,b\n1,2\n3\n");
	put_str("twice.csv", "a,a\n1,2\n");
	put_str("head.csv", "a,b\n");
	put_str("empty.csv", "a,b\n1,\n");
	put("zero.csv", "a,b\n1,x\n2,x\0y\n", 14);
	for (size_t i = 0; i < PL_LEN(bad); i++) {
		struct pl_dataset d;
		int rc = open_spec(bad[i].spec, &d);

		if (!ok(rc == bad[i].code && strstr(err.msg, bad[i].says), "refused: %s: %s",
			bad[i].spec, bad[i].says))
			printf("# %d %s\n", rc, err.msg);
		ok(!d.x && !d.y && !d.token && !d.word, "and nothing is left");
	}
}

/* ---- made data ----------------------------------------------------------------------------------
 */

/* Share of the held-out samples that are nearest to the mean of their own class. */
static double nearest(const struct pl_dataset *d, size_t train)
{
	size_t hits = 0, c = (size_t)d->classes;
	double *mean = calloc(c * d->size, sizeof(*mean)), *n = calloc(c, sizeof(*n));

	for (size_t i = 0; i < train; i++) {
		n[d->y[i]]++;
		for (size_t k = 0; k < d->size; k++)
			mean[(size_t)d->y[i] * d->size + k] += (double)d->x[i * d->size + k];
	}
	for (size_t i = train; i < d->n; i++) {
		double best = INFINITY;
		size_t which = 0;

		for (size_t j = 0; j < c; j++) {
			double sum = 0;

			for (size_t k = 0; k < d->size; k++) {
				double v = mean[j * d->size + k] / n[j] -
					   (double)d->x[i * d->size + k];

				sum += v * v;
			}
			which = sum < best ? j : which;
			best = sum < best ? sum : best;
		}
		hits += (int32_t)which == d->y[i];
	}
	free(mean);
	free(n);
	return (double)hits / (double)(d->n - train);
}

static void synthetic(void)
{
	struct pl_dataset d, e;
	size_t count[10] = { 0 }, follows[64][64] = { { 0 } };
	double entropy = 0, squares = 0, spread = 0, right;
	bool even = true;

	is_i64(open_spec("synthetic:samples=2000,dims=1x12x12,classes=10,noise=0.5", &d), 0,
	       "images");
	is_i64(open_spec("synthetic:samples=2000,dims=1x12x12,classes=10,noise=0.5", &e), 0,
	       "again");
	ok(d.n == 2000 && d.size == 144 && d.classes == 10 && d.n_dims == 3, "their shape");
	ok(!memcmp(d.x, e.x, d.n * d.size * sizeof(*d.x)) && !memcmp(d.y, e.y, d.n * sizeof(*d.y)),
	   "the same seed, the same bits");
	pl_dataset_fini(&e);
	if (pl_dataset_open("synthetic:samples=2000,dims=1x12x12,classes=10,noise=0.5", 8, &e,
			    &err))
		abort();
	ok(memcmp(d.x, e.x, d.n * d.size * sizeof(*d.x)) != 0, "another seed, others");
	pl_dataset_fini(&e);
	for (size_t i = 0; i < d.n; i++)
		count[d.y[i]]++;
	for (size_t c = 0; c < 10; c++)
		even = even && count[c] > 140 && count[c] < 260;
	ok(even, "classes are about as frequent");
	right = nearest(&d, 1600);
	ok(right > 0.4, "they can be told apart (%.0f%% by their means)", 100 * right);
	pl_dataset_fini(&d);
	is_i64(open_spec("synthetic:samples=500,dims=8,targets=2", &d), 0, "targets");
	for (size_t i = 0; i < d.n; i++)
		squares += (double)d.target[2 * i] * (double)d.target[2 * i];
	ok(d.n_targets == 2 && !d.y && squares / 500 > 0.2 && squares / 500 < 5, "of some size");
	for (size_t i = 0; i < d.n * d.size; i++)
		spread += (double)d.x[i] * (double)d.x[i];
	ok(fabs(spread / (double)(d.n * d.size) - 1) < 0.1, "values of variance 1");
	pl_dataset_fini(&d);
	is_i64(open_spec("synthetic:tokens=200000,vocab=64", &d), 0, "tokens");
	for (size_t i = 1; i < d.n; i++)
		follows[d.token[i - 1]][d.token[i]]++;
	for (int a = 0; a < 64; a++) {
		double all = 0;

		for (int b = 0; b < 64; b++)
			all += (double)follows[a][b];
		for (int b = 0; b < 64; b++)
			if (follows[a][b])
				entropy -= (double)follows[a][b] / (double)(d.n - 1) *
					   log((double)follows[a][b] / all);
	}
	ok(d.vocab == 64 && fabs(entropy - 1.213) < 0.01, "that can be predicted to %.3f nats",
	   entropy);
	pl_dataset_fini(&d);
}

/* ---- normalisation, drawing ---------------------------------------------------------------------
 */

static void normalise(void)
{
	struct pl_dataset d;

	put_str("n.csv", "a,b,c,y\n1,5,7,0\n3,5,9,1\n9,8,1,0\n");
	is_i64(open_spec("csv:%n.csv", &d), 0, "three columns");
	pl_dataset_normalise(&d, 2);
	ok(d.x[0] == -1 && d.x[3] == 1 && d.x[2] == -1, "columns, over the training part");
	ok(d.x[1] == 0 && d.x[4] == 0 && d.x[7] == 0, "what does not vary is 0");
	ok(d.x[6] == 7, "the rest by the same");
	pl_dataset_fini(&d);
	put_str("far.csv", "a,y\n-3.4e38,0\n3.4e38,1\n");
	is_i64(open_spec("csv:%far.csv", &d), 0, "values as far apart as they can be");
	pl_dataset_normalise(&d, 2);
	ok(d.x[0] == -1 && d.x[1] == 1, "are not too far");
	pl_dataset_fini(&d);
	is_i64(open_spec("synthetic:samples=300,dims=3x8x8,classes=4", &d), 0, "images");
	for (size_t i = 0; i < d.n * d.size; i++)
		d.x[i] = d.x[i] * (float)(1 + i % d.size / 64) + 5;
	pl_dataset_normalise(&d, 200);
	for (size_t c = 0; c < 3; c++) {
		double sum = 0, squares = 0;

		for (size_t i = 0; i < 200; i++)
			for (size_t k = 0; k < 64; k++) {
				double v = (double)d.x[i * d.size + c * 64 + k];

				sum += v;
				squares += v * v;
			}
		ok(fabs(sum / 12800) < 1e-5 && fabs(squares / 12800 - 1) < 1e-4, "channel %zu", c);
	}
	ok(pl_dataset_train(&d, 0.8) == 240 && pl_dataset_train(&d, 1) == 300 &&
		   pl_dataset_train(&d, 0.9999) == 299 && pl_dataset_train(&d, 1e-9) == 1,
	   "how many are trained on");
	pl_dataset_fini(&d);
}

/* ---- a file of samples to hold out --------------------------------------------------------------
 */

/* Opens both, and joins them. */
static int join(const char *spec, const char *held, struct pl_dataset *d)
{
	struct pl_dataset h;
	int rc;

	if (open_spec(held, &h) < 0 || open_spec(spec, d) < 0)
		abort();
	memset(&err, 0, sizeof(err));
	rc = pl_dataset_join(d, &h, held, &err);
	pl_dataset_fini(&h);
	return rc;
}

static void joined(void)
{
	static const struct {
		const char *train, *held, *says;
	} bad[] = {
		{ "csv:%j.csv", "csv:%new.csv", "has the class \"worm\", which" },
		{ "csv:%j.csv", "csv:%swapped.csv", "names of columns" },
		{ "csv:%j.csv", "csv:%numbers.csv", "words or numbers" },
		{ "csv:%numbers.csv", "csv:%numbers.csv,target=y", "classes or targets" },
		{ "tokens:%j.txt", "tokens:%new.txt", "has the byte \"x\", which" },
		{ "tokens:%j.txt", "csv:%j.csv", "tokens or numbers" },
		{ "synthetic:samples=9,dims=2x3", "synthetic:samples=9,dims=3x2",
		  "shape of a sample" },
		{ "synthetic:samples=9,dims=2,targets=1", "synthetic:samples=9,dims=2,targets=2",
		  "number of targets" },
	};
	static const int32_t classes[] = { 2, 0, 1, 1, 2 }, tokens[] = { 0, 1, 2, 1, 2, 2, 1 };
	struct pl_dataset d;

	put_str("j.csv", "a,b,y\n1,2,cow\n3,4,ant\n5,6,bee\n");
	put_str("held.csv", "a,b,y\n7,8,bee\n9,0,cow\n");
	put_str("new.csv", "a,b,y\n7,8,worm\n");
	put_str("swapped.csv", "b,a,y\n8,7,bee\n");
	put_str("numbers.csv", "a,b,y\n7,8,1\n");
	put_str("j.txt", "abcb");
	put_str("held.txt", "ccb");
	put_str("new.txt", "cxb");
	is_i64(join("csv:%j.csv", "csv:%held.csv", &d), 0, "samples to hold out are joined");
	ok(d.n == 5 && d.train == 3 && pl_dataset_train(&d, 1) == 3 && d.classes == 3 &&
		   d.x[6] == 7 && d.x[9] == 0,
	   "... behind those to train on");
	ok(!memcmp(d.y, classes, sizeof(classes)), "... with the classes of their words");
	pl_dataset_normalise(&d, pl_dataset_train(&d, 1));
	ok(fabs((double)d.x[2]) < 1e-6 && d.x[6] > 2, "... and the scale of the others");
	pl_dataset_fini(&d);
	is_i64(join("tokens:%j.txt", "tokens:%held.txt", &d), 0, "a text");
	ok(d.n == 7 && d.train == 4 && d.vocab == 3 && !memcmp(d.token, tokens, sizeof(tokens)),
	   "... with the numbers of its bytes");
	pl_dataset_fini(&d);
	is_i64(join("synthetic:samples=9,dims=2,classes=2", "synthetic:samples=30,dims=2,classes=5",
		    &d),
	       0, "classes without words");
	ok(d.classes == 5, "... are as many as the greater number");
	pl_dataset_fini(&d);
	for (size_t i = 0; i < PL_LEN(bad); i++) {
		int rc = join(bad[i].train, bad[i].held, &d);

		ok(rc == PL_EDATA && strstr(err.msg, bad[i].says), "refused: %s", err.msg);
		pl_dataset_fini(&d);
	}
}

/* Samples from any number on are those that steps of any size take. */
static void draw_from(void)
{
	struct pl_dataset d = { .n = 50 };
	size_t all[120], some[30];
	bool same = true;

	pl_dataset_draw(&d, 0, 50, 5, 0, 0, 1, 120, 0, all);
	for (uint64_t at = 0; at < 90; at += 7) {
		pl_dataset_draw_from(&d, 0, 50, 5, at, 30, 0, some);
		same &= !memcmp(some, all + at, sizeof(some));
	}
	ok(same, "samples from a number on");
}

static void draw(void)
{
	enum { N = 103, FIRST = 7, B = 6 };
	struct pl_dataset d = { .n = 200 }, t = { .n = 200 };
	int32_t token[200];
	size_t one[4 * B], many[B], seen[200] = { 0 };
	bool same = true, once = true, inside = true;
	size_t moved = 0;

	for (int64_t step = 0; step < 40; step++) {
		pl_dataset_draw(&d, FIRST, N, 5, step, 0, 1, 4 * B, 0, one);
		for (int r = 0; r < 4; r++) {
			pl_dataset_draw(&d, FIRST, N, 5, step, r, 4, B, 0, many);
			same = same && !memcmp(many, one + r * B, sizeof(many));
		}
	}
	ok(same, "ranks take parts of the same step");
	for (int64_t step = 0; step < 3 * N; step++) {
		pl_dataset_draw(&d, FIRST, N, 5, step, 0, 1, 1, 0, one);
		inside = inside && one[0] >= FIRST && one[0] < FIRST + N;
		seen[one[0]]++;
		moved += one[0] != FIRST + (size_t)step % N;
		for (size_t i = FIRST; i < FIRST + N && step % N == N - 1; i++)
			once = once && seen[i] == (size_t)(step / N) + 1;
	}
	ok(inside, "all of them in the part");
	ok(once, "each once an epoch");
	ok(moved > 2 * N, "in another order");
	pl_dataset_draw(&d, 0, 1, 5, 3, 0, 1, 2, 0, one);
	ok(one[0] == 0 && one[1] == 0, "one sample");
	t.token = token;
	for (int32_t i = 0; i < 200; i++)
		token[i] = i;
	memset(seen, 0, sizeof(seen));
	inside = same = true;
	for (int64_t step = 0; step < 400; step++) {
		pl_dataset_draw(&t, 20, 50, 5, step, 0, 1, 2 * B, 8, one);
		pl_dataset_draw(&t, 20, 50, 5, step, 1, 2, B, 8, many);
		same = same && !memcmp(many, one + B, sizeof(many));
		for (int i = 0; i < 2 * B; i++) {
			inside = inside && one[i] >= 20 && one[i] + 8 < 70;
			seen[one[i]]++;
		}
	}
	ok(inside, "places in a text leave room for what follows");
	ok(seen[20] && seen[61], "the first and the last place among them");
	ok(same, "and ranks take parts of the same step");
}

static void batch(void)
{
	static float x[] = { 1, 2, 3, 4, 5, 6 }, target[] = { 7, 8, 9 };
	static int32_t y[] = { 1, 0, 2 }, token[] = { 10, 11, 12, 13, 14 };
	static const size_t index[] = { 2, 0 };
	struct pl_dataset d = {
		.n = 3, .size = 2, .x = x, .y = y, .target = target, .n_targets = 1
	};
	struct pl_dataset t = { .n = 5, .token = token };
	float bx[4], bt[2];
	int32_t ids[4], by[4];

	pl_dataset_batch(&d, index, 2, 0, bx, NULL, by, bt);
	ok(bx[0] == 5 && bx[3] == 2 && by[0] == 2 && by[1] == 1 && bt[0] == 9 && bt[1] == 7,
	   "samples");
	pl_dataset_batch(&t, index, 2, 2, NULL, ids, by, NULL);
	ok(ids[0] == 12 && ids[1] == 13 && by[0] == 13 && by[1] == 14 && ids[2] == 10 &&
		   by[3] == 12,
	   "tokens and those that follow");
}

int main(void)
{
	char command[300];

	if (!mkdtemp(folder))
		return 1;
	files();
	csv();
	refused();
	synthetic();
	normalise();
	joined();
	draw_from();
	draw();
	batch();
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command) || done_testing();
}
