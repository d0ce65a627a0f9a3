/*
 * Logs of a training, in their three forms. Records and events are read back here by their
 * definitions: a CRC by a table, the fields of protobuf one after another.
 */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "io/tfrecord.h"
#include "tap.h"
#include "train/log.h"

static struct pl_err err;

static const char *path(const char *name)
{
	static char p[1024];
	const char *tmp = getenv("TMP");

	snprintf(p, sizeof(p), "%s/%s", tmp ? tmp : "/tmp", name);
	return p;
}

/* ---- an independent reader ------------------------------------------------------------------- */

/* CRC-32C by division of polynomials, a byte at a time through a table. */
static uint32_t slow_crc(const uint8_t *p, size_t n)
{
	uint32_t table[256], crc = 0xffffffff;

	for (uint32_t i = 0; i < 256; i++) {
		table[i] = i;
		for (int k = 0; k < 8; k++)
			table[i] = table[i] & 1 ? 0x82f63b78 ^ table[i] >> 1 : table[i] >> 1;
	}
	while (n--)
		crc = table[(crc ^ *p++) & 0xff] ^ crc >> 8;
	return crc ^ 0xffffffff;
}

static bool crc_is(const uint8_t *stored, const uint8_t *p, size_t n)
{
	uint32_t turned = pl_le32_get(stored) - 0xa282ead8;

	return (turned >> 17 | turned << 15) == slow_crc(p, n);
}

struct field {
	uint32_t number, type;
	uint64_t value;	  /* of a varint, or of 4 or 8 bytes */
	const uint8_t *p; /* of bytes */
	size_t n;
};

static uint64_t varint(const uint8_t **p)
{
	uint64_t v = 0;

	for (int shift = 0;; shift += 7) {
		uint8_t b = *(*p)++;

		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
}

static bool next_field(const uint8_t **p, const uint8_t *end, struct field *f)
{
	uint64_t tag;

	if (*p >= end)
		return false;
	*f = (struct field){ 0 };
	tag = varint(p);
	f->number = (uint32_t)(tag >> 3);
	f->type = (uint32_t)(tag & 7);
	if (f->type == 0) {
		f->value = varint(p);
	} else if (f->type == 1 || f->type == 5) {
		f->value = f->type == 1 ? pl_le64_get(*p) : pl_le32_get(*p);
		*p += f->type == 1 ? 8 : 4;
	} else {
		f->n = (size_t)varint(p);
		f->p = *p;
		*p += f->n;
	}
	return true;
}

/* Appends "step tag=value " of each scalar of an event, or "version TEXT ". */
static void say_event(const uint8_t *p, size_t n, double *wall, char *text, size_t room)
{
	const uint8_t *end = p + n;
	long long step = 0;
	struct field f, v, s;

	while (next_field(&p, end, &f)) {
		size_t at = strlen(text);

		if (f.number == 1 && f.type == 1)
			memcpy(wall, &f.value, sizeof(*wall));
		if (f.number == 2 && f.type == 0)
			step = (long long)f.value;
		if (f.number == 3 && f.type == 2)
			snprintf(text + at, room - at, "version %.*s ", (int)f.n,
				 (const char *)f.p);
		for (const uint8_t *q = f.p; f.number == 5 && next_field(&q, f.p + f.n, &v);) {
			at = strlen(text);
			snprintf(text + at, room - at, "%lld ", step);
			for (const uint8_t *r = v.p; next_field(&r, v.p + v.n, &s);) {
				uint32_t bits = (uint32_t)s.value;
				float x;

				memcpy(&x, &bits, sizeof(x));
				at = strlen(text);
				if (s.number == 1 && s.type == 2)
					snprintf(text + at, room - at, "%.*s=", (int)s.n,
						 (const char *)s.p);
				if (s.number == 2 && s.type == 5)
					snprintf(text + at, room - at, "%g ", (double)x);
			}
		}
	}
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void crc(void)
{
	uint8_t zeros[32] = { 0 }, ones[32], rising[32];

	memset(ones, 0xff, sizeof(ones));
	for (int i = 0; i < 32; i++)
		rising[i] = (uint8_t)i;
	/* RFC 3720, B.4 */
	is_i64(pl_tfrecord_crc(zeros, 32), 0x8a9136aa, "CRC of zeros");
	is_i64(pl_tfrecord_crc(ones, 32), 0x62a8ab43, "CRC of ones");
	is_i64(pl_tfrecord_crc(rising, 32), 0x46dd794e, "CRC of rising bytes");
	is_i64(pl_tfrecord_crc("123456789", 9), 0xe3069283, "CRC of digits");
	is_i64(pl_tfrecord_crc("", 0), 0, "CRC of nothing");
}

static const struct pl_train_row rows[] = {
	{ .at = 1500000000,
	  .step = 1,
	  .samples = 64,
	  .loss = 2.5,
	  .accuracy = 0.25,
	  .lr = 0.125,
	  .grad_norm = 3 },
	{ .at = 2000000000,
	  .step = 300,
	  .samples = 19200,
	  .loss = 0.5,
	  .accuracy = (double)NAN,
	  .lr = 0.0625,
	  .grad_norm = (double)NAN,
	  .heterogeneity = 1.5,
	  .note = "tau is 4, not 8" },
	{ .at = 2000000000,
	  .step = 300,
	  .samples = 19200,
	  .loss = 0.75,
	  .accuracy = 0.5,
	  .lr = (double)NAN,
	  .grad_norm = (double)NAN,
	  .eval = true },
};

static bool write_log(const char *name)
{
	struct pl_train_log *l;
	bool good;

	memset(&err, 0, sizeof(err));
	if (pl_train_log_open(path(name), false, &l, &err) < 0)
		return false;
	good = true;
	for (size_t i = 0; i < PL_LEN(rows); i++)
		good &= pl_train_log_row(l, &rows[i], 1000000000, &err) == 0;
	return pl_train_log_close(l, &err) == 0 && good;
}

static void read_file(const char *name, struct pl_buf *b)
{
	struct pl_in *in = pl_in_open(name, &err);

	*b = (struct pl_buf){ 0 };
	if (!in || pl_in_read_all(in, 1 << 20, b, &err) < 0 || pl_buf_put(b, "", 1, &err) < 0)
		abort();
	pl_in_close(in);
}

static void texts(void)
{
	struct pl_buf b;

	ok(write_log("log.csv"), "CSV");
	read_file(path("log.csv"), &b);
	is_str((char *)b.p,
	       "time_s,step,samples,loss,eval_loss,accuracy,lr,grad_norm,heterogeneity,note\n"
	       "0.500000,1,64,2.5,,0.25,0.125,3,,\n"
	       "1.000000,300,19200,0.5,,,0.0625,,1.5,\"tau is 4, not 8\"\n"
	       "1.000000,300,19200,,0.75,0.5,,,,\n",
	       "... a row each, empty where nothing is known");
	pl_buf_fini(&b);
	ok(write_log("log.jsonl"), "JSON lines");
	read_file(path("log.jsonl"), &b);
	is_str((char *)b.p,
	       "{\"time_s\":0.5,\"step\":1,\"samples\":64,\"loss\":2.5,\"accuracy\":0.25,"
	       "\"lr\":0.125,\"grad_norm\":3}\n"
	       "{\"time_s\":1,\"step\":300,\"samples\":19200,\"loss\":0.5,\"lr\":0.0625,"
	       "\"heterogeneity\":1.5,\"note\":\"tau is 4, not 8\"}\n"
	       "{\"time_s\":1,\"step\":300,\"samples\":19200,\"eval_loss\":0.75,"
	       "\"accuracy\":0.5}\n",
	       "... an object each, without what is not known");
	pl_buf_fini(&b);
}

/* The one file of events of a folder; NULL: there is none, or several. */
static const char *events_of(const char *folder)
{
	static char found[1500];
	DIR *d = opendir(folder);
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)))
		if (!strncmp(e->d_name, "events.out.tfevents.", 20)) {
			snprintf(found, sizeof(found), "%s/%s", folder, e->d_name);
			n++;
		}
	if (d)
		closedir(d);
	return n == 1 ? found : NULL;
}

static void events(void)
{
	char text[1000] = "";
	bool framed = true;
	double wall = 0, first = 0;
	const char *file;
	struct pl_buf b;
	size_t at = 0, n;
	int records = 0;

	ok(write_log("runs/first/"), "events in a folder that is made, with the one above it");
	file = events_of(path("runs/first"));
	if (!ok(file != NULL, "... one file"))
		return;
	read_file(file, &b);
	n = b.n - 1;
	while (framed && n - at >= 16) {
		uint64_t length = pl_le64_get(b.p + at);

		framed = length <= n - at - 16 && crc_is(b.p + at + 8, b.p + at, 8) &&
			 crc_is(b.p + at + 12 + length, b.p + at + 12, length);
		if (framed)
			say_event(b.p + at + 12, length, &wall, text, sizeof(text));
		first = records++ ? first : wall;
		at += length + 16;
	}
	ok(framed && at == n, "... of records whose CRCs are right");
	is_i64(records, 4, "... a version and three rows");
	is_str(text,
	       "version brain.Event:2 1 train/loss=2.5 1 train/accuracy=0.25 1 train/lr=0.125 "
	       "1 train/grad_norm=3 300 train/loss=0.5 300 train/lr=0.0625 "
	       "300 train/heterogeneity=1.5 300 eval/loss=0.75 "
	       "300 eval/accuracy=0.5 ",
	       "... with the scalars that are known");
	ok(first > 1.7e9 && wall >= first && wall < first + 3600, "... and the time of the day");
	pl_buf_fini(&b);
	ok(write_log("runs"), "events in a folder that is there, without a slash");
	ok(events_of(path("runs")) != NULL, "... are in it");
	ok(!write_log("log.csv/x") && strstr(err.msg, "log.csv/x: opening"), "no log: %s", err.msg);
	ok(!write_log("log.csv/x/") && strstr(err.msg, "making the folder"), "no folder: %s",
	   err.msg);
}

int main(void)
{
	crc();
	texts();
	events();
	return done_testing();
}
