/*
 * predict --measure: tensor programs of the operations of models, by random schedules, or those of
 * a file, and how long they take here.
 *
 * The programs of an operation are compiled, and each is compared with the program without a
 * schedule before it is timed. While programs are timed nothing is compiled. Shared objects stay
 * loaded, because threads of OpenMP may be in the library that came with them.
 *
 * A machine that others share is slower for seconds at a time. The yardstick shows it: a fixed
 * computation, which is timed before and after each program.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/progress.h"
#include "core/sort.h"
#include "program.h"
#include "tprog/tprog.h"

#define UNIT	  16		    /* programs of one source */
#define GROUP	  256		    /* programs of a file that are compiled together */
#define PATH_MOST 1024		    /* bytes, of files in the folder for sources */
#define FILE_MOST ((size_t)1 << 30) /* bytes: no reader of programs takes more */
#define PROGRAMS  100		    /* of an operation, unless --programs says otherwise */
#define RUNS	  15		    /* of a program at most, */
#define LEAST	  3		    /* and at least, */
#define ENOUGH	  30000000	    /* ns: unless they took so long together */
#define DISTURBED 1.25		    /* the median by the least time: measured again, */
#define AGAIN	  2		    /* so often at most */
#define SLOW	  1.08	   /* the yardstick by its least time: the machine is slower than before */
#define FORGET	  1.0005   /* by which the least time grows each time: clocks may stay lower */
#define WAITED	  0.25	   /* of all time, at most, for a machine that is slow */
#define NAP	  50000000 /* ns */
#define SHORT	  50000	   /* ns: shorter calls are timed together */
#define ATTEMPTS  8	   /* for a schedule that none before it has */
#define NEAR	  1e-3	   /* of the greatest result: by so much may a result differ */

extern char **environ;

typedef void program(float *const *buffer);
typedef float yardstick(void);

struct unit { /* a source, and the shared object that is made of it */
	char source[PATH_MOST], object[PATH_MOST];
	pid_t compiler;
	void *library;
};
struct bench {
	const struct work *w;
	struct pl_err *err;
	struct pl_tprog_tasks tasks;
	const struct pl_tprog_task *task; /* NULL: programs come from a file */
	char folder[PATH_MOST - 64];
	struct pl_tprog *program; /* [n]; the first one's result is right */
	size_t n, cap;
	struct unit *unit;
	size_t n_units;
	float **buffer; /* parameters of the task */
	float *right;	/* the result of the first program */
	size_t n_buffers;
	uint64_t state; /* of the generator */
	size_t wrong, all, sources;
	yardstick *yardstick;
	double quick;	     /* its least time, ns */
	pl_ns begin, waited; /* since when programs are measured; for a faster machine */
	size_t slow;	     /* programs that were measured on a slow machine */
};

/* ---- programs -------------------------------------------------------------------------------- */

static int parse(struct bench *b, const struct pl_buf *text, struct pl_tprog *p)
{
	struct pl_in *in = pl_in_open_mem("program", text->p, text->n, b->err);
	struct pl_tprog_reader *r = NULL;

	if (in && pl_tprog_reader_new(in, &r, b->err) >= 0 && pl_tprog_next(r, p, b->err) == 0)
		pl_fail(b->err, PL_EINTERNAL, "a program without a text");
	pl_tprog_reader_free(r);
	pl_in_close(in);
	return b->err->code;
}

/* A program that differs from those before it. `seen`: their texts. */
static int add_program(struct bench *b, size_t number, struct pl_intern *seen)
{
	const char *model = b->task->model;
	struct pl_buf text = { 0 };
	struct pl_tprog p = { .name = NULL };
	int rc = 0;

	for (int i = 0; i < ATTEMPTS; i++) {
		size_t before = seen->n, head;
		pl_id id;

		text.n = 0;
		PL_TRY(pl_buf_printf(&text, b->err,
				     "paceline-tprog %d\nprogram o%zu.p%zu%s%s op=%s\n",
				     PL_TPROG_MAJOR, number, b->n, *model ? " model=" : "", model,
				     pl_tprog_task_op(b->task)));
		head = text.n;
		PL_TRY(pl_tprog_generate(b->task, b->n ? pl_rng_next(&b->state) | 1 : 0, &text,
					 b->err));
		PL_TRY(pl_intern_add(seen, (const char *)text.p + head, text.n - head, &id,
				     b->err));
		if (seen->n == before)
			continue;
		PL_TRY(parse(b, &text, &p));
		PL_TRY(pl_append(&b->program, &b->n, &b->cap, &p, sizeof(p), b->err));
		p = (struct pl_tprog){ .name = NULL };
		break;
	}
out:
	pl_tprog_fini(&p);
	pl_buf_fini(&text);
	return rc < 0 ? rc : 0;
}

/* ---- compilation ----------------------------------------------------------------------------- */

static int write_source(struct bench *b, struct unit *u, size_t first, size_t n)
{
	struct pl_out *out = pl_out_open(u->source, false, b->err);
	struct pl_writer w;
	int rc;

	if (!out)
		return b->err->code;
	pl_write_init(&w, out, 0);
	pl_tprog_write_c_header(&w);
	for (size_t i = first; i < first + n; i++) {
		char name[32];

		snprintf(name, sizeof(name), "p%zu", i);
		pl_tprog_write_c(&b->program[i], name, &w);
	}
	rc = pl_write_end(&w, b->err);
	pl_write_fini(&w);
	return pl_out_finish(out, rc, b->err);
}

static int start_compiler(struct bench *b, struct unit *u)
{
	const char *cc = getenv("CC");
	const char *const word[] = { cc && *cc ? cc : "cc",
				     "-O2",
				     "-fno-tree-vectorize",
				     "-march=native",
				     "-ffast-math",
				     "-fopenmp",
				     "-fPIC",
				     "-shared",
				     "-w",
				     "-o",
				     u->object,
				     u->source,
				     "-lm" };
	char text[PL_LEN(word)][PATH_MOST], *argv[PL_LEN(word) + 1] = { NULL };
	int status;

	for (size_t i = 0; i < PL_LEN(word); i++) {
		snprintf(text[i], sizeof(text[i]), "%s", word[i]);
		argv[i] = text[i];
	}
	status = posix_spawnp(&u->compiler, argv[0], NULL, NULL, argv, environ);
	if (!status)
		return 0;
	u->compiler = 0;
	return pl_fail(b->err, PL_EABSENT, "%s: %s; a compiler of C is needed (CC names it)",
		       argv[0], strerror(status));
}

static int end_compiler(struct bench *b, struct unit *u)
{
	int status = 0;

	if (u->compiler)
		waitpid(u->compiler, &status, 0);
	u->compiler = 0;
	if (status)
		return pl_fail(b->err, PL_EABSENT,
			       "the compiler failed with status %d; its messages are above",
			       WIFEXITED(status) ? WEXITSTATUS(status) : status);
	return 0;
}

/* All sources, as many at a time as there are processors. */
static int compile(struct bench *b)
{
	size_t at_once = (size_t)pl_processors();
	int rc = 0;

	b->n_units = (b->n + UNIT - 1) / UNIT;
	PL_CHECK(pl_alloc(&b->unit, b->n_units, sizeof(*b->unit), b->err));
	for (size_t i = 0; i < b->n_units + at_once && rc >= 0; i++) {
		if (i >= at_once)
			rc = end_compiler(b, &b->unit[i - at_once]);
		if (i >= b->n_units || rc < 0)
			continue;
		/* a name that was loaded once means what was loaded then */
		snprintf(b->unit[i].source, sizeof(b->unit[i].source), "%s/%zu.c", b->folder,
			 b->sources);
		snprintf(b->unit[i].object, sizeof(b->unit[i].object), "%s/%zu.so", b->folder,
			 b->sources++);
		rc = write_source(b, &b->unit[i], i * UNIT, pl_min_size(UNIT, b->n - i * UNIT));
		if (rc >= 0)
			rc = start_compiler(b, &b->unit[i]);
	}
	return rc;
}

/* NULL: dlerror() says why. */
static void *find_symbol(struct unit *u, const char *name)
{
	if (!u->library)
		u->library = dlopen(u->object, RTLD_NOW | RTLD_LOCAL);
	return u->library ? dlsym(u->library, name) : NULL;
}

static program *find_program(struct bench *b, size_t i)
{
	program *p = NULL;
	char name[32];
	void *symbol;

	snprintf(name, sizeof(name), "p%zu", i);
	symbol = find_symbol(&b->unit[i / UNIT], name);
	memcpy(&p, &symbol, sizeof(p));
	return p;
}

/* ---- the yardstick --------------------------------------------------------------------------- */

/* Sums that do not wait for one another, on all threads: another process on a processor, or on the
 * other half of its core, slows them down, and so does a lower clock. */
static const char yardstick_source[] =
	"typedef float vector __attribute__((vector_size(32)));\n"
	"#define NEXT(x) x = x * 0.999f + 0.5f\n"
	"float yardstick(void)\n"
	"{\n"
	"\tfloat sum = 0;\n\n"
	"#pragma omp parallel reduction(+ : sum)\n"
	"\t{\n"
	"\t\tvector a = { 1 }, b = { 2 }, c = { 3 }, d = { 4 }, e = { 5 }, f = { 6 };\n\n"
	"\t\tfor (int i = 0; i < 50000; i++) {\n"
	"\t\t\tNEXT(a);\n\t\t\tNEXT(b);\n\t\t\tNEXT(c);\n"
	"\t\t\tNEXT(d);\n\t\t\tNEXT(e);\n\t\t\tNEXT(f);\n"
	"\t\t}\n"
	"\t\tsum += a[0] + b[0] + c[0] + d[0] + e[0] + f[0];\n"
	"\t}\n"
	"\treturn sum;\n"
	"}\n";

static int make_yardstick(struct bench *b)
{
	struct unit u = { .compiler = 0 };
	struct pl_writer w;
	struct pl_out *out;
	void *symbol;
	int rc;

	snprintf(u.source, sizeof(u.source), "%s/yardstick.c", b->folder);
	snprintf(u.object, sizeof(u.object), "%s/yardstick.so", b->folder);
	out = pl_out_open(u.source, false, b->err);
	if (!out)
		return b->err->code;
	pl_write_init(&w, out, 0);
	pl_write_text(&w, yardstick_source);
	rc = pl_write_end(&w, b->err);
	pl_write_fini(&w);
	PL_CHECK(pl_out_finish(out, rc, b->err));
	PL_CHECK(start_compiler(b, &u));
	PL_CHECK(end_compiler(b, &u));
	symbol = find_symbol(&u, "yardstick");
	if (!symbol)
		return pl_fail(b->err, PL_EABSENT, "%s: %s", u.object, dlerror());
	memcpy(&b->yardstick, &symbol, sizeof(b->yardstick));
	b->begin = pl_now_ns();
	return 0;
}

static bool is_slow(struct bench *b)
{
	int64_t ns[3];
	double now;

	for (size_t i = 0; i < PL_LEN(ns); i++) {
		pl_ns begin = pl_now_ns();

		(void)b->yardstick();
		ns[i] = pl_now_ns() - begin;
	}
	now = (double)pl_median_i64(ns, PL_LEN(ns));
	b->quick = b->quick > 0 ? fmin(b->quick * FORGET, now) : now;
	return now > SLOW * b->quick;
}

/* Wait until the machine is as fast as before, unless that takes too long. Is it still slow? */
static bool wait_for_speed(struct bench *b)
{
	const struct timespec nap = { .tv_nsec = NAP };

	while (is_slow(b)) {
		pl_ns begin = pl_now_ns();

		if ((double)b->waited + NAP > WAITED * (double)(begin - b->begin))
			return true;
		nanosleep(&nap, NULL);
		b->waited += pl_now_ns() - begin;
	}
	return false;
}

/* ---- time ------------------------------------------------------------------------------------ */

static int make_buffers(struct bench *b)
{
	const struct pl_tprog *p = &b->program[0];

	b->n_buffers = 0;
	PL_CHECK(pl_alloc(&b->buffer, p->n_buffers + 1, sizeof(*b->buffer), b->err));
	for (size_t i = 0; i < p->n_buffers; i++) {
		size_t n = (size_t)p->buffer[i].n;
		float *v;

		if (p->buffer[i].node != PL_NONE)
			continue;
		v = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
		if (!v)
			return pl_fail(b->err, PL_ENOMEM, "out of memory (buffers of a program)");
		for (size_t k = 0; k < n; k++)
			v[k] = (float)((double)(pl_rng_next(&b->state) >> 11) * 0x1p-52 - 1);
		b->buffer[b->n_buffers++] = v;
	}
	return pl_alloc(&b->right, (size_t)p->buffer[b->n_buffers - 1].n, sizeof(float), b->err);
}

/* The result is the last parameter. */
static size_t result_size(const struct bench *b)
{
	return (size_t)b->program[0].buffer[b->n_buffers - 1].n;
}

static bool is_right(const struct bench *b)
{
	const float *x = b->buffer[b->n_buffers - 1];
	size_t n = result_size(b);
	float most = 0;

	for (size_t i = 0; i < n; i++)
		if (isfinite(b->right[i]))
			most = fmaxf(most, fabsf(b->right[i]));
	for (size_t i = 0; i < n; i++)
		if (x[i] != b->right[i] && !(isnan(x[i]) && isnan(b->right[i])) &&
		    !(fabsf(x[i] - b->right[i]) <= (float)NEAR * most))
			return false;
	return true;
}

/* first: ns that a call took before. */
static struct pl_tprog_measured time_once(const struct bench *b, program *f, int64_t first)
{
	struct pl_tprog_measured m = { .device = b->w->device_name };
	int64_t ns[RUNS], all = 0, calls = 1;
	pl_ns begin;

	if (first < SHORT) {
		begin = pl_now_ns();
		f(b->buffer);
		calls = SHORT / pl_max_i64(pl_now_ns() - begin, 100) + 1;
	}
	while (m.runs < RUNS && (m.runs < LEAST || all < ENOUGH)) {
		begin = pl_now_ns();
		for (int64_t i = 0; i < calls; i++)
			f(b->buffer);
		ns[m.runs] = (pl_now_ns() - begin) / calls;
		all += ns[m.runs++] * calls;
	}
	m.least = INFINITY;
	for (int64_t i = 0; i < m.runs; i++)
		m.least = fmin(m.least, (double)pl_max_i64(ns[i], 1));
	m.median = fmax(m.least, (double)pl_median_i64(ns, (size_t)m.runs));
	return m;
}

/* Again, if something else disturbed the runs; the least disturbed time counts. */
static struct pl_tprog_measured time_program(struct bench *b, program *f, int64_t first)
{
	struct pl_tprog_measured best = { .median = INFINITY };
	bool slow = true;

	for (int i = 0; i <= AGAIN && (slow || best.median > DISTURBED * best.least); i++) {
		bool before = wait_for_speed(b);
		struct pl_tprog_measured m = time_once(b, f, first);
		bool now = is_slow(b) || before;

		if (now < slow || (now == slow && m.median < best.median)) {
			best = m;
			slow = now;
		}
	}
	b->slow += slow;
	return best;
}

static void forget_device(struct pl_tprog *p, const char *device)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n_measured; i++)
		if (strcmp(p->measured[i].device, device) != 0)
			p->measured[n++] = p->measured[i];
	p->n_measured = n;
}

static int measure_all(struct bench *b, struct pl_writer *out)
{
	for (size_t i = 0; i < b->n; i++) {
		struct pl_tprog *p = &b->program[i];
		float *result = b->buffer[b->n_buffers - 1];
		struct pl_tprog_measured m;
		program *f = find_program(b, i);
		pl_ns begin;
		int64_t first;

		if (!f)
			return pl_fail(b->err, PL_EABSENT, "%s: %s", b->unit[i / UNIT].object,
				       dlerror());
		memset(result, 0, result_size(b) * sizeof(*result));
		begin = pl_now_ns();
		f(b->buffer);
		first = pl_now_ns() - begin;
		if (!i)
			memcpy(b->right, result, result_size(b) * sizeof(*result));
		b->all++;
		if (!is_right(b)) {
			b->wrong++;
			continue;
		}
		m = time_program(b, f, first);
		forget_device(p, m.device);
		PL_CHECK(pl_append(&p->measured, &p->n_measured, &p->cap_measured, &m, sizeof(m),
				   b->err));
		pl_tprog_write(p, out);
	}
	return 0;
}

static void forget_programs(struct bench *b)
{
	for (size_t i = 0; i < b->n; i++)
		pl_tprog_fini(&b->program[i]);
	b->n = 0;
}

static void end_task(struct bench *b)
{
	for (size_t i = 0; i < b->n_units; i++) {
		struct pl_err ignored = { 0 };

		if (b->unit[i].compiler)
			end_compiler(&(struct bench){ .err = &ignored }, &b->unit[i]);
		unlink(b->unit[i].source);
		unlink(b->unit[i].object);
	}
	for (size_t i = 0; i < b->n_buffers; i++)
		free(b->buffer[i]);
	forget_programs(b);
	pl_free(b->buffer);
	pl_free(b->right);
	pl_free(b->unit);
	b->buffer = NULL;
	b->right = NULL;
	b->unit = NULL;
	b->n_units = b->n_buffers = 0;
}

/* The programs that b has, which it then has no more. */
static int measure_group(struct bench *b, struct pl_writer *out)
{
	int rc = compile(b);

	if (rc >= 0 && !b->yardstick)
		rc = make_yardstick(b);
	if (rc >= 0)
		rc = make_buffers(b);
	if (rc >= 0)
		rc = measure_all(b, out);
	end_task(b);
	return rc;
}

/* The first n programs of operation i. */
static int add_programs(struct bench *b, const char *file, size_t i, int64_t n)
{
	struct pl_intern seen = { 0 };
	int rc = 0;

	b->task = &b->tasks.v[i];
	for (int64_t k = 0; k < n && rc >= 0; k++)
		rc = add_program(b, i, &seen);
	pl_intern_fini(&seen);
	if (rc == PL_EDATA || rc == PL_ELIMIT)
		pl_wrap(b->err, "%s: operation %zu, %s", file, i + 1, pl_tprog_task_op(b->task));
	return rc;
}

static int measure_tasks(struct bench *b, struct pl_in *in, struct pl_writer *out)
{
	int64_t programs = b->w->c->programs == PROGRAMS_UNSET ? PROGRAMS : b->w->c->programs;
	const char *file = pl_in_name(in);
	int rc = pl_tprog_tasks_read(in, &b->tasks, b->err);

	/* sizes that no program can have are found before anything is measured */
	for (size_t i = 0; i < b->tasks.n && rc >= 0; i++) {
		rc = add_programs(b, file, i, 1);
		forget_programs(b);
	}
	for (size_t i = 0; i < b->tasks.n && rc >= 0; i++) {
		pl_progress("operation %zu of %zu", i + 1, b->tasks.n);
		rc = add_programs(b, file, i, programs);
		if (rc >= 0)
			rc = measure_group(b, out);
	}
	return rc;
}

/* Do both compute the same operation of the same parameters? What stands before a point in their
 * names numbers the operation. */
static bool is_alike(const struct pl_tprog *a, const struct pl_tprog *b)
{
	size_t n = 0;

	if (strcmp(a->op, b->op) != 0 || strcmp(a->model, b->model) != 0 ||
	    strcspn(a->name, ".") != strcspn(b->name, ".") ||
	    strncmp(a->name, b->name, strcspn(a->name, ".")) != 0)
		return false;
	for (;; n++) {
		const struct pl_tprog_buffer *x = n < a->n_buffers ? &a->buffer[n] : NULL,
					     *y = n < b->n_buffers ? &b->buffer[n] : NULL;
		bool more = x && x->node == PL_NONE;

		if (more != (y && y->node == PL_NONE))
			return false;
		if (!more)
			return true;
		if (strcmp(x->name, y->name) != 0 || x->n_dims != y->n_dims ||
		    memcmp(x->dim, y->dim, (size_t)x->n_dims * sizeof(*x->dim)) != 0)
			return false;
	}
}

/* What cannot be measured. */
static int check_program(const struct pl_tprog *p, struct pl_err *err)
{
	if (pl_tprog_is_cuda(p))
		return pl_fail(err, PL_EDATA,
			       "program %s, which line %u begins: its loops are bound to the "
			       "blocks and threads of a GPU, and programs are measured on "
			       "processors only; \"predict -O cuda\" writes its source",
			       p->name, p->line);
	if (!p->n_buffers || p->buffer[0].node != PL_NONE)
		return pl_fail(err, PL_EDATA, "program %s, which line %u begins, has no parameters",
			       p->name, p->line);
	return pl_tprog_check(p, err);
}

/* What is wrong further behind is found before anything is measured, which takes long. */
static int check_file(const struct pl_buf *text, const char *file, struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem(file, text->p, text->n, err);
	struct pl_tprog_reader *r = NULL;
	int more = in ? pl_tprog_reader_new(in, &r, err) : err->code;

	while (more >= 0) {
		struct pl_tprog p = { .name = NULL };

		more = pl_tprog_next(r, &p, err);
		if (more > 0 && check_program(&p, err) < 0)
			more = pl_wrap(err, "%s", file);
		pl_tprog_fini(&p);
		if (more == 0)
			break;
	}
	pl_tprog_reader_free(r);
	pl_in_close(in);
	return more;
}

/* Neighbours that compute the same are compiled and compared together. */
static int measure_programs_of(struct bench *b, struct pl_tprog_reader *r, struct pl_writer *out)
{
	for (size_t n = 0;; n++) {
		struct pl_tprog p = { .name = NULL };
		int more = pl_tprog_next(r, &p, b->err), rc = more < 0 ? more : 0;

		if (rc >= 0 && b->n && (!more || b->n >= GROUP || !is_alike(&b->program[0], &p))) {
			pl_progress("program %zu", n);
			rc = measure_group(b, out);
		}
		if (rc >= 0 && more > 0)
			rc = pl_append(&b->program, &b->n, &b->cap, &p, sizeof(p), b->err);
		if (rc < 0)
			pl_tprog_fini(&p);
		if (rc < 0 || !more)
			return rc;
	}
}

static int measure_file(struct bench *b, struct pl_in *in, struct pl_writer *out)
{
	struct pl_tprog_reader *r = NULL;
	struct pl_in *again = NULL;
	struct pl_buf text = { 0 };
	int rc;

	PL_TRY(pl_in_read_all(in, FILE_MOST, &text, b->err));
	PL_TRY(check_file(&text, pl_in_name(in), b->err));
	again = pl_in_open_mem(pl_in_name(in), text.p, text.n, b->err);
	PL_TRY(again ? pl_tprog_reader_new(again, &r, b->err) : b->err->code);
	rc = measure_programs_of(b, r, out);
out:
	pl_tprog_reader_free(r);
	pl_in_close(again);
	pl_buf_fini(&text);
	return rc;
}

/* Are there programs in the file, and not operations? */
static bool has_programs(struct pl_in *in, struct pl_err *err)
{
	static const char first[] = "paceline-tprog ";
	const uint8_t *p;
	int64_t n = pl_in_peek(in, 4096, &p, err), i = 0;

	while (i < n && (isspace(p[i]) || p[i] == '#'))
		if (p[i++] == '#')
			while (i < n && p[i] != '\n')
				i++;
	return n - i >= (int64_t)sizeof(first) && !memcmp(p + i, first, sizeof(first) - 1);
}

int measure_programs(const struct work *w, struct pl_out *out, struct pl_err *err)
{
	struct bench b = { .w = w, .err = err, .state = (uint64_t)w->c->c.seed };
	const char *set = getenv("TMPDIR"), *tmp = set && *set ? set : "/tmp";
	struct pl_in *in = pl_in_open_any(w->c->measure, err);
	struct pl_writer to;
	bool known; /* programs, not operations */
	int rc = in ? 0 : err->code;

	pl_write_init(&to, out, 0);
	PL_TRY(rc);
	if (snprintf(b.folder, sizeof(b.folder), "%s/paceline-XXXXXX", tmp) >=
	    (int)sizeof(b.folder)) {
		b.folder[0] = '\0';
		PL_TRY(pl_fail(err, PL_EUSAGE, "TMPDIR has %zu bytes: it is too long",
			       strlen(tmp)));
	}
	if (!mkdtemp(b.folder)) {
		rc = pl_fail_sys(err, "%s", b.folder);
		b.folder[0] = '\0';
		goto out;
	}
	/* Each thread has a processor of its own: two of them on one for a slice of time, while the
	 * other processor idles, make a short program twice to sixty times as long. */
	if (setenv("OMP_PROC_BIND", "true", 0)) {
		rc = pl_fail_sys(err, "OMP_PROC_BIND");
		goto out;
	}
	pl_tprog_write_header(&to);
	known = has_programs(in, err);
	if (known && w->c->programs != PROGRAMS_UNSET)
		PL_TRY(pl_fail(err, PL_EUSAGE,
			       "%s holds programs, and all of them are measured: leave out "
			       "--programs",
			       w->c->measure));
	if (known)
		PL_TRY(measure_file(&b, in, &to));
	else
		PL_TRY(err->code < 0 ? err->code : measure_tasks(&b, in, &to));
	if (b.wrong)
		pl_say(&w->c->c.log, PL_LOG_WARN,
		       "%zu of %zu programs left out: their results differ from those of the "
		       "first program of the operation",
		       b.wrong, b.all);
	if (b.slow)
		pl_say(&w->c->c.log, PL_LOG_WARN,
		       "%zu of %zu programs were measured while the machine was slower than "
		       "before, so their times are too long; measure when nothing else runs",
		       b.slow, b.all);
	rc = pl_write_end(&to, err);
out:
	if (b.folder[0])
		pl_remove_folder(b.folder);
	pl_write_fini(&to);
	end_task(&b);
	pl_free(b.program);
	pl_tprog_tasks_fini(&b.tasks);
	pl_in_close(in);
	return rc;
}
