/*
 * The batches of a rank: the samples that the data set draws for a step, gathered into one batch.
 *
 * The first `split` of the samples are trained on, the others held out. Of a text the places from
 * which a context and its successors fit into each part count.
 */
#include "train/worker.h"

static size_t places(const struct pl_feed *f, size_t n)
{
	return !f->tokens ? n : n > f->sample_size ? n - f->sample_size : 0;
}

static int text_fits(const struct pl_dataset *d, const struct pl_net_shape *s, size_t sample_size,
		     struct pl_err *err)
{
	if (d->vocab > s->vocab)
		return pl_fail(err, PL_EDATA, "the model knows %d tokens, the data have %d",
			       s->vocab, d->vocab);
	if (d->vocab > s->classes)
		return pl_fail(
			err, PL_EDATA,
			"the model distinguishes %d tokens, the data have %d; its last layer "
			"should have one output for each",
			s->classes, d->vocab);
	if ((size_t)s->rows != sample_size)
		return pl_fail(err, PL_EDATA,
			       "the model predicts a token at %d places, a text has one behind "
			       "each of the %zu that it takes",
			       s->rows, sample_size);
	return 0;
}

/* Can the network take these data? All later code relies on the sizes. */
static int fits(const struct pl_engine_opts *o, const struct pl_net_shape *s, size_t sample_size,
		struct pl_err *err)
{
	const struct pl_dataset *d = o->data;
	size_t have = 1;

	if (!d->token != !s->vocab)
		return pl_fail(err, PL_EDATA, "the model takes %s, the data are %s",
			       s->vocab ? "tokens" : "numbers", d->token ? "tokens" : "numbers");
	if (d->token)
		return text_fits(d, s, sample_size, err);
	for (int i = 0; i < d->n_dims; i++)
		have *= (size_t)d->dim[i];
	if (have != sample_size)
		return pl_fail(err, PL_EDATA,
			       "the model takes samples of %zu numbers, %.200s has %zu",
			       sample_size, o->job->data, have);
	if (s->classes ? !d->y || d->classes > s->classes
		       : !d->target || d->n_targets != s->targets)
		return pl_fail(err, PL_EDATA, "the model gives %d %s, %.200s has %d %s",
			       s->classes ? s->classes : s->targets,
			       s->classes ? "classes" : "targets", o->job->data,
			       d->y ? d->classes : d->n_targets, d->y ? "classes" : "targets");
	if (s->classes && s->rows != 1)
		return pl_fail(err, PL_EDATA,
			       "the model gives a class at each of %d places of a sample, the data "
			       "have one for all of it; flatten before the last layer",
			       s->rows);
	return 0;
}

int pl_train_feed_init(struct pl_feed *f, const struct pl_engine_opts *o, struct pl_net *net,
		       int batch, struct pl_err *err)
{
	const struct pl_dataset *d = o->data;
	const struct pl_net_shape shape = pl_net_view(net).shape;
	size_t b = (size_t)batch, y = b;

	f->d = d;
	f->batch = batch;
	f->rank = pl_engine_rank(o);
	f->ranks = pl_engine_ranks(o);
	f->seed = (uint64_t)o->job->seed;
	f->tokens = d->token != NULL;
	f->fetched = -1;
	f->sample_size = 1;
	for (int i = 0; i < shape.n_dims; i++)
		f->sample_size *= (size_t)shape.dim[i];
	PL_CHECK(fits(o, &shape, f->sample_size, err));
	if (!strcmp(o->job->monitor, "accuracy") && !d->token && !d->y)
		return pl_fail(err, PL_EDATA,
			       "monitor accuracy, but these data have no classes; write: monitor "
			       "loss");
	f->n_train = places(f, pl_dataset_train(d, o->job->split));
	if (f->n_train < b * (size_t)f->ranks)
		return pl_fail(err, PL_EDATA,
			       "a step takes %zu samples (batch %d times ranks %d), there are %zu "
			       "to train on; a smaller batch may do",
			       b * (size_t)f->ranks, batch, f->ranks, f->n_train);
	PL_CHECK(pl_alloc(&f->index, b, sizeof(*f->index), err));
	if (f->tokens) {
		y *= f->sample_size;
		PL_CHECK(pl_alloc(&f->ids, y, sizeof(*f->ids), err));
	} else {
		PL_CHECK(pl_alloc(&f->x, b * f->sample_size, sizeof(*f->x), err));
	}
	if (f->tokens || d->y)
		PL_CHECK(pl_alloc(&f->y, y, sizeof(*f->y), err));
	if (d->target)
		PL_CHECK(pl_alloc(&f->target, b * (size_t)d->n_targets, sizeof(*f->target), err));
	return 0;
}

void pl_train_feed_fini(struct pl_feed *f)
{
	pl_free(f->index);
	pl_free(f->x);
	pl_free(f->target);
	pl_free(f->ids);
	pl_free(f->y);
}

/* Samples index[0 .. n - 1] into the rows of the batch. */
static void gather(struct pl_feed *f, int n)
{
	pl_dataset_batch(f->d, f->index, n, (int)f->sample_size, f->x, f->ids, f->y, f->target);
}

/* The first sample that is held out. */
static size_t held_out(const struct pl_feed *f)
{
	return f->tokens ? f->n_train + f->sample_size : f->n_train;
}

int64_t pl_train_feed_samples(const struct pl_feed *f, int ranks, int64_t step)
{
	int64_t each = (int64_t)f->batch * ranks;

	return step < f->first_step ? step * each : f->first_sample + (step - f->first_step) * each;
}

void pl_train_feed_step(struct pl_feed *f, int64_t step)
{
	int64_t at = pl_train_feed_samples(f, f->ranks, step) + (int64_t)f->rank * f->batch;

	if (f->fetched == step)
		return;
	f->fetched = step;
	pl_dataset_draw_from(f->d, 0, held_out(f), f->seed, (uint64_t)at, f->batch,
			     f->tokens ? (int)f->sample_size : 0, f->index);
	gather(f, f->batch);
}

/* A text is evaluated in pieces that follow one another, each with the token behind it. */
size_t pl_train_feed_held_out(const struct pl_feed *f)
{
	size_t n = f->d->n - held_out(f);

	return f->tokens && n ? (n - 1) / f->sample_size : n;
}

void pl_train_feed_eval(struct pl_feed *f, size_t first, int n)
{
	size_t from = held_out(f);

	f->fetched = -1;
	for (size_t i = 0; i < (size_t)n; i++)
		f->index[i] = from + (first + i) * (f->tokens ? f->sample_size : 1);
	gather(f, n);
}

struct pl_batch_io pl_train_feed_rows(const struct pl_feed *f, int from, int n)
{
	size_t at = (size_t)from, e = f->sample_size;

	return (struct pl_batch_io){
		.x = f->x ? f->x + at * e : NULL,
		.ids = f->ids ? f->ids + at * e : NULL,
		.y = f->y ? f->y + at * (f->tokens ? e : 1) : NULL,
		.target = f->target ? f->target + at * (size_t)f->d->n_targets : NULL,
		.n = n,
	};
}

int64_t pl_train_feed_classified(const struct pl_feed *f)
{
	return f->tokens ? (int64_t)f->sample_size : f->y ? 1 : 0;
}
