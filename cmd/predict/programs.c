/*
 * predict --measure: tensor programs of the operations of models, by random schedules, and how long
 * they take here; and --cross of such programs.
 *
 * The programs of an operation are compiled, and each is compared with the program without a
 * schedule before it is timed. While programs are timed nothing is compiled. Shared objects stay
 * loaded, because threads of OpenMP may be in the library that came with them.
 */
#include <dlfcn.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/progress.h"
#include "core/sort.h"
#include "program.h"
#include "tprog/cost.h"

#define UNIT	 16	  /* programs of one source */
#define RUNS	 15	  /* of a program at most, */
#define LEAST	 3	  /* and at least, */
#define ENOUGH	 60000000 /* ns: unless they took so long together */
#define SHORT	 50000	  /* ns: shorter calls are timed together */
#define ATTEMPTS 8	  /* for a schedule that none before it has */
#define NEAR	 1e-3	  /* of the greatest result: by so much may a result differ */

extern char **environ;

typedef void program(float *const *buffer);

struct unit { /* a source, and the shared object that is made of it */
	char source[256], object[256];
	pid_t compiler;
	void *library;
};
struct bench {
	const struct work *w;
	struct pl_err *err;
	const struct pl_tprog_task *task;
	char folder[128];
	struct pl_tprog *program; /* [n]; the first is the one without a schedule */
	size_t n, cap;
	struct unit *unit;
	size_t n_units;
	float **buffer; /* parameters of the task */
	float *right;	/* the result of the first program */
	size_t n_buffers;
	uint64_t state; /* of the generator */
	size_t wrong, all, sources;
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
	pl_write_text(&w, "#include <math.h>\n");
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
				     "-ftree-vectorize",
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
	char text[PL_LEN(word)][256], *argv[PL_LEN(word) + 1] = { NULL };
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

static program *find_program(struct bench *b, size_t i)
{
	struct unit *u = &b->unit[i / UNIT];
	program *p = NULL;
	char name[32];
	void *symbol;

	if (!u->library)
		u->library = dlopen(u->object, RTLD_NOW | RTLD_LOCAL);
	snprintf(name, sizeof(name), "p%zu", i);
	symbol = u->library ? dlsym(u->library, name) : NULL;
	memcpy(&p, &symbol, sizeof(p));
	return p;
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
		most = fmaxf(most, fabsf(b->right[i]));
	for (size_t i = 0; i < n; i++)
		if (!(fabsf(x[i] - b->right[i]) <= (float)NEAR * most))
			return false;
	return true;
}

static struct pl_tprog_measured time_program(const struct bench *b, program *f)
{
	struct pl_tprog_measured m = { .device = b->w->device_name };
	int64_t ns[RUNS], all = 0, calls = 1;
	pl_ns begin = pl_now_ns();

	f(b->buffer);
	if (pl_now_ns() - begin < SHORT)
		calls = SHORT / pl_max_i64(pl_now_ns() - begin, 100) + 1;
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

static int measure_all(struct bench *b, struct pl_writer *out)
{
	for (size_t i = 0; i < b->n; i++) {
		struct pl_tprog *p = &b->program[i];
		float *result = b->buffer[b->n_buffers - 1];
		struct pl_tprog_measured m;
		program *f = find_program(b, i);

		if (!f)
			return pl_fail(b->err, PL_EABSENT, "%s: %s", b->unit[i / UNIT].object,
				       dlerror());
		memset(result, 0, result_size(b) * sizeof(*result));
		f(b->buffer);
		if (!i)
			memcpy(b->right, result, result_size(b) * sizeof(*result));
		b->all++;
		if (!is_right(b)) {
			b->wrong++;
			continue;
		}
		m = time_program(b, f);
		PL_CHECK(pl_append(&p->measured, &p->n_measured, &p->cap_measured, &m, sizeof(m),
				   b->err));
		pl_tprog_write(p, out);
	}
	return 0;
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
	for (size_t i = 0; i < b->n; i++)
		pl_tprog_fini(&b->program[i]);
	pl_free(b->buffer);
	pl_free(b->right);
	pl_free(b->unit);
	b->buffer = NULL;
	b->right = NULL;
	b->unit = NULL;
	b->n = b->n_units = b->n_buffers = 0;
}

static int measure_task(struct bench *b, size_t number, struct pl_writer *out)
{
	struct pl_intern seen = { 0 };
	int rc = 0;

	for (int64_t i = 0; i < b->w->c->programs && rc >= 0; i++)
		rc = add_program(b, number, &seen);
	pl_intern_fini(&seen);
	PL_CHECK(rc);
	PL_CHECK(compile(b));
	PL_CHECK(make_buffers(b));
	return measure_all(b, out);
}

int measure_programs(const struct work *w, struct pl_out *out, struct pl_err *err)
{
	struct bench b = { .w = w, .err = err, .state = (uint64_t)w->c->c.seed };
	const char *tmp = getenv("TMPDIR");
	struct pl_tprog_tasks tasks = { .n = 0 };
	struct pl_in *in = pl_in_open(w->c->measure, err);
	struct pl_writer to;
	int rc = in ? 0 : err->code;

	pl_write_init(&to, out, 0);
	PL_TRY(rc);
	PL_TRY(pl_tprog_tasks_read(in, &tasks, err));
	snprintf(b.folder, sizeof(b.folder), "%.100s/paceline-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(b.folder)) {
		rc = pl_fail_sys(err, "%s", b.folder);
		b.folder[0] = '\0';
		goto out;
	}
	pl_tprog_write_header(&to);
	for (size_t i = 0; i < tasks.n; i++) {
		pl_progress("operation %zu of %zu", i + 1, tasks.n);
		b.task = &tasks.v[i];
		rc = measure_task(&b, i, &to);
		end_task(&b);
		PL_TRY(rc);
	}
	if (b.wrong)
		pl_say(&w->c->c.log, PL_LOG_WARN,
		       "%zu of %zu programs left out: their results differ from those of the "
		       "program without a schedule",
		       b.wrong, b.all);
	rc = pl_write_end(&to, err);
out:
	if (b.folder[0])
		pl_remove_folder(b.folder);
	pl_write_fini(&to);
	pl_free(b.program);
	pl_tprog_tasks_fini(&tasks);
	pl_in_close(in);
	return rc;
}

/* ---- errors of cost models ------------------------------------------------------------------- */

static int read_programs(const struct work *w, struct pl_tprog_set *set, struct pl_err *err)
{
	for (int i = 0; i < w->argc; i++) {
		struct pl_in *in = pl_in_open_any(w->argv[i], err);
		int rc = in ? pl_tprog_set_read(set, in, err) : err->code;

		pl_in_close(in);
		PL_CHECK(rc);
	}
	if (!set->n)
		return pl_fail(err, PL_EDATA, "no program in these files was measured");
	return 0;
}

/* The measurements as samples, for the tables of errors. */
static int as_samples(const struct pl_tprog_set *set, struct pl_samples *s, struct pl_err *err)
{
	struct pl_devices devices = { .n = 0 };
	int rc = 0;

	for (size_t i = 0; i < set->n && rc >= 0; i++) {
		const struct pl_tprog_row *r = &set->v[i];
		char name[160];
		struct pl_device d = { .name = name, .title = name };
		struct pl_measure m = { .k = { .family = PL_KERNEL_OTHER, .dim = { 1, 1, 1, 1 } },
					.known = true,
					.op = set->names.str[r->op],
					.model = set->names.str[r->model],
					.ns = r->ns };

		snprintf(name, sizeof(name), "%s", set->names.str[r->device]);
		m.device = pl_device_named(&devices, name);
		if (m.device == PL_NONE)
			rc = pl_device_copy(&devices, &d, &m.device, err);
		if (rc >= 0)
			rc = pl_samples_add(s, &m, &devices, err);
	}
	pl_device_fini(&devices);
	return rc;
}

int cross_programs(const struct work *w, struct pl_samples *s, struct pl_out *out,
		   struct pl_err *err)
{
	/* in the order of --learner; trees need the vectors anyway, so there is no "raw" */
	static const uint8_t learner[] = { PL_TPROG_TREES, PL_TPROG_NEAREST, PL_TPROG_TREES,
					   PL_TPROG_WORK, PL_TPROG_NET };
	const struct pl_tprog_fit_opts o = { .learner = learner[w->c->learner],
					     .threads = (int)w->c->c.threads,
					     .seed = (uint64_t)w->c->c.seed,
					     .pool = w->pool };
	struct pl_kernel_time *t = NULL;
	struct pl_tprog_set set = { .n = 0 };
	pl_id *group = NULL;
	double *ns = NULL;
	int rc;

	PL_TRY(read_programs(w, &set, err));
	PL_TRY(as_samples(&set, s, err));
	PL_TRY(pl_alloc(&group, set.n, sizeof(*group), err));
	PL_TRY(pl_alloc(&ns, set.n, sizeof(*ns), err));
	PL_TRY(pl_alloc(&t, set.n, sizeof(*t), err));
	for (size_t i = 0; i < set.n; i++)
		group[i] = w->c->cross == PL_EVAL_MODEL	   ? set.v[i].model
			   : w->c->cross == PL_EVAL_DEVICE ? set.v[i].device
							   : set.v[i].op;
	PL_TRY(pl_tprog_cross(&set, group, &o, ns, err));
	for (size_t i = 0; i < set.n; i++)
		t[i] = (struct pl_kernel_time){ .ns = ns[i], .lo_ns = NAN, .hi_ns = NAN };
	rc = write_errors(w, s, t, out, err);
out:
	pl_tprog_set_fini(&set);
	pl_free(group);
	pl_free(ns);
	pl_free(t);
	return rc;
}
