/*
 * Data sheets of devices: read from JSON, found by name.
 *
 * Programs write the name of a device with blanks ("NVIDIA A100-PCIE-40GB") and files without
 * ("NVIDIA_A100-PCIE-40GB.json"), so names are compared without regard to such differences.
 */
#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>

#include "io/json.h"
#include "kernel/device.h"

#define SHEET_MAX 65535 /* bytes */

enum member { /* of a data sheet */
	      MEMORY,
	      BANDWIDTH,
	      SMS,
	      LANES,
	      CLOCK,
	      FLOPS,
	      FLOPS_MATRIX,
	      FLOPS_VECTOR,
	      HALF,
	      L2,
	      POWER,
	      CAPABILITY,
	      IS_CPU,
	      HOST,
	      HOST_LOW,
	      HOST_HIGH,
	      MEMBERS
};
static const struct {
	const char *key;
	double unit;	 /* 1 of it in our unit */
	bool need, zero; /* it must be there; it may be 0 */
} members[MEMBERS] = {
	[MEMORY] = { "Dev_Mem", 1e9, false, false },
	[BANDWIDTH] = { "Mem_Bw", 1, true, false },
	[SMS] = { "Num_Sm", 1, true, false },
	[LANES] = { "Core_Per_SM", 1, false, false },
	[CLOCK] = { "Freq", 1e-3, false, false },
	[FLOPS] = { "SingleFLOPs", 1, false, false },
	[FLOPS_MATRIX] = { "SingleFLOPsMM", 1, false, false },
	[FLOPS_VECTOR] = { "SingleFLOPsVEC", 1, false, false },
	[HALF] = { "HalfTensorFLOPs", 1, false, false },
	[L2] = { "L2Cache", 1048576, false, false },
	[POWER] = { "Power", 1, false, false },
	[CAPABILITY] = { "Capability", 1, false, false },
	[IS_CPU] = { "CPU", 1, false, true },
	[HOST] = { "Host_Launch", 1e3, false, false },
	[HOST_LOW] = { "Host_Launch_Low", 1e3, false, false },
	[HOST_HIGH] = { "Host_Launch_High", 1e3, false, false },
};

void pl_device_fini(struct pl_devices *d)
{
	pl_free(d->v);
	pl_arena_fini(&d->arena);
	memset(d, 0, sizeof(*d));
}

/* ---- one data sheet -------------------------------------------------------------------------- */

static int get_number(const struct pl_json *j, enum member k, double *v, struct pl_err *err)
{
	char text[64];

	if (j->len < sizeof(text)) {
		memcpy(text, j->text, j->len);
		text[j->len] = '\0';
		if (pl_decimal(text, v) && (*v > 0 || (members[k].zero && *v == 0)))
			return 0;
	}
	return pl_fail(err, PL_EDATA, "%s must be a number %s, not %.*s", members[k].key,
		       members[k].zero ? "from 0 on" : "above 0", (int)pl_min_size(j->len, 40),
		       j->text);
}

static int get_text(struct pl_devices *d, const struct pl_json *j, char **out, struct pl_err *err)
{
	char *text = pl_arena_take(&d->arena, j->len + 1);

	if (!text)
		return pl_fail(err, PL_ENOMEM, "out of memory (data sheets)");
	text[pl_json_unescape(j->text, j->len, text)] = '\0';
	*out = text;
	return 0;
}

/* The members of the object into v; NAN: not there. */
static int get_members(struct pl_devices *d, struct pl_json *j, double *v, char **title,
		       struct pl_err *err)
{
	enum pl_json_type t;

	if (pl_json_next(j) != PL_JSON_OBJECT)
		return pl_fail(err, PL_EDATA, "a data sheet is a JSON object");
	while ((t = pl_json_next(j)) == PL_JSON_KEY) {
		size_t k = 0;
		char key[64];

		snprintf(key, sizeof(key), "%.*s", (int)pl_min_size(j->len, sizeof(key) - 1),
			 j->text);
		while (k < MEMBERS && strcmp(members[k].key, key) != 0)
			k++;
		if (k == MEMBERS && strcmp(key, "Device") != 0) {
			const char *text;
			size_t n;

			PL_CHECK(pl_json_skip(j, &text, &n) < 0
					 ? pl_fail(err, PL_EDATA, "%s is not valid JSON", key)
					 : 0);
			continue;
		}
		t = pl_json_next(j);
		if (t == PL_JSON_ERROR)
			break;
		if (k < MEMBERS ? t != PL_JSON_NUMBER && t != PL_JSON_STRING : t != PL_JSON_STRING)
			return pl_fail(err, PL_EDATA, "%s must be a %s", key,
				       k < MEMBERS ? "number above 0" : "text");
		if (k == MEMBERS)
			PL_CHECK(get_text(d, j, title, err));
		else
			PL_CHECK(get_number(j, (enum member)k, &v[k], err));
	}
	if (t == PL_JSON_OBJECT_END && pl_json_next(j) != PL_JSON_END)
		return pl_fail(err, PL_EDATA, "something follows the data sheet at byte %zu",
			       (size_t)(j->p - j->start));
	if (t != PL_JSON_OBJECT_END)
		return pl_fail(err, PL_EDATA, "not valid JSON at byte %zu%s%s",
			       (size_t)(j->p - j->start), j->what ? ": " : "",
			       j->what ? j->what : "");
	return 0;
}

static double or_else(double v, double other)
{
	return isnan(v) ? other : v;
}

/* The time of a launch, and its interval, which may be left out. */
static int take_host(struct pl_device *x, const double *v, struct pl_err *err)
{
	x->host_ns = v[HOST];
	x->host_low_ns = or_else(v[HOST_LOW], v[HOST]);
	x->host_high_ns = or_else(v[HOST_HIGH], v[HOST]);
	if (isnan(x->host_ns) && (!isnan(v[HOST_LOW]) || !isnan(v[HOST_HIGH])))
		return pl_fail(err, PL_EDATA,
			       "Host_Launch is missing; Host_Launch_Low and Host_Launch_High are "
			       "its interval");
	if (x->host_low_ns > x->host_ns || x->host_high_ns < x->host_ns)
		return pl_fail(err, PL_EDATA,
			       "Host_Launch %g is not between Host_Launch_Low %g and "
			       "Host_Launch_High %g",
			       x->host_ns / 1e3, x->host_low_ns / 1e3, x->host_high_ns / 1e3);
	if (x->host_high_ns >= PL_DEVICE_HOST_MOST)
		return pl_fail(err, PL_EDATA, "%s %g must be below %g us",
			       isnan(v[HOST_HIGH]) ? "Host_Launch" : "Host_Launch_High",
			       x->host_high_ns / 1e3, PL_DEVICE_HOST_MOST / 1e3);
	return 0;
}

int pl_device_add(struct pl_devices *d, const char *name, const char *json, size_t n,
		  struct pl_err *err)
{
	double v[MEMBERS], watts = NAN, capability = NAN;
	struct pl_device x = { .name = pl_arena_dup(&d->arena, name, strlen(name)) };
	struct pl_json j;

	for (size_t i = 0; i < MEMBERS; i++)
		v[i] = NAN;
	x.title = x.name;
	if (!x.name)
		return pl_fail(err, PL_ENOMEM, "out of memory (data sheets)");
	pl_json_init(&j, json, n);
	PL_CHECK(get_members(d, &j, v, &x.title, err));
	for (size_t i = 0; i < MEMBERS; i++)
		if (members[i].need && isnan(v[i]))
			return pl_fail(err, PL_EDATA, "%s is missing", members[i].key);
		else if (!isnan(v[i]))
			v[i] *= members[i].unit;
	v[FLOPS] = or_else(v[FLOPS], or_else(v[FLOPS_MATRIX], v[FLOPS_VECTOR]));
	if (isnan(v[FLOPS]) && isnan(v[LANES] * v[CLOCK]))
		return pl_fail(err, PL_EDATA, "SingleFLOPs is missing");
	x.sms = v[SMS];
	x.lanes = or_else(v[LANES], 64);
	x.flops = or_else(v[FLOPS], 2 * x.sms * v[LANES] * v[CLOCK]);
	x.clock_ghz = or_else(v[CLOCK], x.flops / 2 / x.sms / x.lanes);
	x.memory_bytes = v[MEMORY];
	x.bandwidth = v[BANDWIDTH];
	x.half_flops = v[HALF];
	x.l2_bytes = v[L2];
	pl_device_board(x.title, &watts, &capability);
	x.watts = or_else(v[POWER], watts);
	x.capability = or_else(v[CAPABILITY], capability);
	x.cpu = v[IS_CPU] > 0 ? v[IS_CPU] : NAN;
	PL_CHECK(take_host(&x, v, err));
	return pl_append(&d->v, &d->n, &d->cap, &x, sizeof(x), err);
}

int pl_device_copy(struct pl_devices *d, const struct pl_device *x, uint32_t *at,
		   struct pl_err *err)
{
	struct pl_device copy = *x;

	copy.name = pl_arena_dup(&d->arena, x->name, strlen(x->name));
	copy.title = pl_arena_dup(&d->arena, x->title, strlen(x->title));
	if (x->file)
		copy.file = pl_arena_dup(&d->arena, x->file, strlen(x->file));
	if (!copy.name || !copy.title || (x->file && !copy.file))
		return pl_fail(err, PL_ENOMEM, "out of memory (data sheets)");
	*at = (uint32_t)d->n;
	return pl_append(&d->v, &d->n, &d->cap, &copy, sizeof(copy), err);
}

/* ---- a folder of them ------------------------------------------------------------------------ */

static int read_sheet(struct pl_devices *d, const char *folder, const char *file,
		      struct pl_err *err)
{
	size_t stem = strlen(file) - strlen(".json");
	char *text, path[4096], name[256];
	int n, rc;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	snprintf(name, sizeof(name), "%.*s", (int)pl_min_size(stem, sizeof(name) - 1), file);
	if (pl_device_named(d, name) != PL_NONE) /* that of an earlier folder counts */
		return 0;
	text = pl_malloc(SHEET_MAX + 2);
	if (!text)
		return pl_fail(err, PL_ENOMEM, "out of memory (data sheets)");
	n = pl_read_small(path, text, SHEET_MAX + 2);
	rc = n < 0	     ? pl_fail_sys(err, "%s", path)
	     : n > SHEET_MAX ? pl_fail(err, PL_EDATA, "larger than %d bytes", SHEET_MAX)
			     : pl_device_add(d, name, text, (size_t)n, err);
	if (rc == PL_EDATA)
		pl_wrap(err, "%s", path);
	if (rc >= 0) {
		d->v[d->n - 1].file = pl_arena_dup(&d->arena, path, strlen(path));
		if (!d->v[d->n - 1].file)
			rc = pl_fail(err, PL_ENOMEM, "out of memory (data sheets)");
	}
	pl_free(text);
	return rc;
}

static int is_sheet(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return n > 5 && n < 256 && !strcmp(e->d_name + n - 5, ".json") && e->d_name[0] != '.';
}

int pl_device_read(struct pl_devices *d, const char *folder, struct pl_err *err)
{
	struct dirent **v;
	int n = scandir(folder, &v, is_sheet, alphasort), rc = 0;

	if (n < 0)
		return pl_fail_sys(err, "%s", folder);
	if (!n)
		rc = pl_fail(err, PL_EDATA, "%s has no data sheet NAME.json", folder);
	for (int i = 0; i < n; i++) {
		if (rc >= 0)
			rc = read_sheet(d, folder, v[i]->d_name, err);
		free(v[i]);
	}
	free(v);
	return rc;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A letter of a name as it is compared; 0: the end. */
static int letter(const char *s)
{
	return *s == ' ' || *s == '-' ? '_' : tolower((unsigned char)*s);
}

static bool same(const char *a, const char *b)
{
	while (letter(a) && letter(a) == letter(b)) {
		a++;
		b++;
	}
	return letter(a) == letter(b);
}

static bool ends_with(const char *s, const char *word)
{
	size_t n = strlen(s), k = strlen(word);

	return k && k < n && letter(s + n - k - 1) == '_' && same(s + n - k, word);
}

static bool is_end(const struct pl_device *x, const char *name)
{
	return ends_with(x->name, name) || ends_with(x->title, name);
}

/* Of that name or title. Of several the one that was measured counts, else the first. */
static uint32_t find_alike(const struct pl_devices *d, const char *name, bool title)
{
	uint32_t found = PL_NONE;

	for (uint32_t i = 0; i < d->n; i++) {
		if (!same(title ? d->v[i].title : d->v[i].name, name))
			continue;
		if (d->v[i].measured)
			return i;
		found = found == PL_NONE ? i : found;
	}
	return found;
}

uint32_t pl_device_find(const struct pl_devices *d, const char *name)
{
	uint32_t found = pl_device_named(d, name);

	if (found == PL_NONE) /* a file's name can be another's title */
		found = find_alike(d, name, false);
	if (found == PL_NONE)
		found = find_alike(d, name, true);
	if (found != PL_NONE)
		return found;
	for (uint32_t i = 0; i < d->n; i++) {
		if (!is_end(&d->v[i], name))
			continue;
		if (found != PL_NONE)
			return PL_NONE;
		found = i;
	}
	return found;
}

uint32_t pl_device_named(const struct pl_devices *d, const char *name)
{
	for (uint32_t i = 0; i < d->n; i++)
		if (!strcmp(d->v[i].name, name))
			return i;
	return PL_NONE;
}

/* Their names, or of those that end with `name`; how many. */
static size_t list(const struct pl_devices *d, const char *name, const char *between, char *all,
		   size_t size)
{
	size_t at = 0, n = 0;

	all[0] = '\0';
	for (size_t i = 0; i < d->n && at < size; i++)
		if (!name || is_end(&d->v[i], name))
			at += (size_t)snprintf(all + at, size - at, "%s%s", n++ ? between : "",
					       d->v[i].name);
	return n;
}

int pl_device_missing(const struct pl_devices *d, const char *name, struct pl_err *err)
{
	char all[600];

	if (list(d, name, " or ", all, sizeof(all)) > 1)
		return pl_fail(err, PL_EDATA, "\"%.100s\" may be %s; give the whole name", name,
			       all);
	if (!list(d, NULL, ", ", all, sizeof(all)))
		return pl_fail(err, PL_EDATA,
			       "there is no data sheet of \"%.100s\"; --devices names their folder",
			       name);
	return pl_fail(err, PL_EDATA,
		       "there is no data sheet of \"%.100s\"; there are %s; --devices names a "
		       "folder with more",
		       name, all);
}

/* ---- those of a model ------------------------------------------------------------------------ */

/* The first number of which times depend that is another one; NULL: none is. */
static const char *difference(const struct pl_device *a, const struct pl_device *b)
{
	const struct {
		enum member member;
		double a, b;
	} v[] = {
		{ BANDWIDTH, a->bandwidth, b->bandwidth },
		{ SMS, a->sms, b->sms },
		{ FLOPS, a->flops, b->flops },
		{ CLOCK, a->clock_ghz, b->clock_ghz },
		{ HALF, a->half_flops, b->half_flops },
		{ L2, a->l2_bytes, b->l2_bytes },
		{ POWER, a->watts, b->watts },
		{ IS_CPU, a->cpu, b->cpu },
		{ CAPABILITY, a->capability, b->capability },
	};

	for (size_t i = 0; i < PL_LEN(v); i++)
		if (isnan(v[i].a) ? !isnan(v[i].b) : v[i].a != v[i].b)
			return members[v[i].member].key;
	return NULL;
}

/* x becomes the sheet of the model, and has the name that the model knows. */
static int prefer(struct pl_devices *d, struct pl_device *x, const struct pl_device *measured,
		  const struct pl_log *log, struct pl_err *err)
{
	const char *other = difference(x, measured);
	const struct pl_device own = *x;
	char *name = pl_arena_dup(&d->arena, measured->name, strlen(measured->name));

	if (!name)
		return pl_fail(err, PL_ENOMEM, "out of memory (data sheets)");
	if (other)
		pl_say(log, PL_LOG_WARN,
		       "%s: its %s is not that of the data sheet in the model, which was measured "
		       "on %s: that of the model counts",
		       x->file ? x->file : x->name, other, name);
	*x = *measured;
	x->name = name;
	x->title = own.title;
	x->file = own.file;
	if (isnan(own.host_ns))
		return 0;
	x->host_ns = own.host_ns;
	x->host_low_ns = own.host_low_ns;
	x->host_high_ns = own.host_high_ns;
	return 0;
}

/* The sheet of a measured device: of just that name, else of one that is equal to it. */
static uint32_t sheet_of(const struct pl_devices *d, const char *name)
{
	uint32_t at = pl_device_named(d, name);

	for (uint32_t i = 0; i < d->n && at == PL_NONE; i++)
		at = !d->v[i].measured && same(d->v[i].name, name) ? i : PL_NONE;
	return at;
}

int pl_device_add_measured(struct pl_devices *d, const struct pl_devices *measured,
			   const struct pl_log *log, struct pl_err *err)
{
	for (size_t i = 0; i < measured->n; i++) {
		const struct pl_device *x = &measured->v[i];
		uint32_t at = sheet_of(d, x->name);

		if (at == PL_NONE)
			PL_CHECK(pl_device_copy(d, x, &at, err));
		else
			PL_CHECK(prefer(d, &d->v[at], x, log, err));
		d->v[at].measured = true;
	}
	return 0;
}
