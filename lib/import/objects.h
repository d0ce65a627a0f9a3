/*
 * objects.h - documents that are a sequence of small JSON objects: lines of JSON, arrays of events,
 * and documents with an array "traceEvents". For importers whose events need to be understood as a
 * whole, before they become rows. Memory is that of the window.
 */
#ifndef PL_OBJECTS_H
#define PL_OBJECTS_H

#include "import/internal.h"

#define PL_OBJECT_MEMBERS 128 /* members that are looked at */

struct pl_object_member {
	uint64_t head; /* the first eight bytes of the key; zeros behind a shorter one */
	const char *key, *s;
	uint32_t n_key, n; /* of s: a text without its quotes, the raw text of anything else */
	char type;	   /* '"' text, '0' a number or word, '[' an array, '{' an object: n is 0 */
};
struct pl_object {
	struct pl_object_member m[PL_OBJECT_MEMBERS]; /* those of objects inside follow their key */
	unsigned n;
	int64_t at; /* byte of the input */
};

/*
 * Calls one() for each object of the input. Whatever is between objects is passed over: brackets,
 * commas, line ends. What is no object is reported, and reading goes on at the next line or object.
 * A missing end is reported as such.
 */
int pl_import_objects(struct pl_src *s, struct pl_report *r,
		      int (*one)(void *arg, const struct pl_object *o, struct pl_err *err),
		      void *arg, struct pl_err *err) PL_MUST;

/*
 * The same for objects deep inside of a document. enter() is asked for the section of each value:
 * of a member of an object in `section`, or of an element (key NULL) of an array in `section`;
 * first of the document itself. Objects whose section has PL_OBJECTS_WHOLE go to one(), right after
 * enter(). A negative section is of no interest.
 */
#define PL_OBJECTS_TOP	 (-2)
#define PL_OBJECTS_WHOLE 0x100
int pl_import_objects_within(struct pl_src *s, struct pl_report *r,
			     int (*enter)(void *arg, int section, const char *key, size_t n),
			     int (*one)(void *arg, const struct pl_object *o, struct pl_err *err),
			     void *arg, struct pl_err *err) PL_MUST;

/* The key as a number, which compilers know where the key is a constant. */
static inline uint64_t pl_objects_head(const char *key, size_t n)
{
	uint8_t b[8] = { 0 };

	memcpy(b, key, n < 8 ? n : 8);
	return pl_le64_get(b);
}
const struct pl_object_member *pl_objects_find(const struct pl_object *o, uint64_t head,
					       const char *key, size_t n);
/* The first member with this key, at any depth. NULL: none. */
static inline const struct pl_object_member *pl_objects_get(const struct pl_object *o,
							    const char *key)
{
	return pl_objects_find(o, pl_objects_head(key, strlen(key)), key, strlen(key));
}
static inline int64_t pl_objects_int(const struct pl_object *o, const char *key, int64_t none)
{
	const struct pl_object_member *m = pl_objects_get(o, key);
	int64_t v;

	return m && m->type != '[' && pl_json_i64(m->s, m->n, &v) ? v : none;
}
/* A text as it stands in the input (escapes are not decoded); NULL: none. Also for numbers. */
static inline const char *pl_objects_text(const struct pl_object *o, const char *key, size_t *n)
{
	const struct pl_object_member *m = pl_objects_get(o, key);

	*n = m ? m->n : 0;
	return m ? m->s : NULL;
}
/* The text, or as much of it as there is room for; empty if there is none. */
void pl_objects_copy(const struct pl_object *o, const char *key, char *to, size_t size);
/* The text as a string of the segment, decoded; PL_NONE: no such member, or a failure (rows.rc). */
pl_id pl_objects_string(struct pl_rows *r, const struct pl_object *o, const char *key);
static inline bool pl_objects_is(const struct pl_object *o, const char *key, const char *text)
{
	const struct pl_object_member *m = pl_objects_get(o, key);

	return m && m->n == strlen(text) && !memcmp(m->s, text, strlen(text));
}
/* The first letter of the phase of a Chrome event, "ph"; 0: it has none of one letter. */
static inline char pl_objects_phase(const struct pl_object *o)
{
	const struct pl_object_member *m = pl_objects_get(o, "ph");

	return m && m->n == 1 ? *m->s : 0;
}
/* A number of units of `unit_ns`; false: there is none. */
bool pl_objects_time(const struct pl_object *o, const char *key, int64_t unit_ns, pl_ns *ns);

/* ---- tracks of importers that know what their tracks are ------------------------------------ */

/* What a track is, apart from its number in the segment. Unused members are 0. */
struct pl_lane {
	uint8_t type;
	int64_t process, number;
	const char *name; /* NULL: "NUMBER" */
	int32_t rank;
};
struct pl_lane_seen {
	struct pl_lane lane;
	char name[80];
	pl_id track; /* + 1; 0: none */
};
struct pl_lanes {
	struct pl_rows *rows;
	struct pl_lane_seen seen[8]; /* of the segment, the latest by hash */
	struct pl_intern key;	     /* of the segment's tracks */
	struct pl_intern known;	     /* of all: tracks keep their numbers from segment to segment */
};
/* What every importer of objects has. */
struct pl_objects_in {
	const struct pl_import_opts *o;
	struct pl_report report;
	struct pl_src src;
	struct pl_rows rows;
	struct pl_lanes lanes;
};
/* finish(arg) completes the tracks before each segment ends. To be ended in every case. */
int pl_objects_open(struct pl_objects_in *x, struct pl_in *in, const struct pl_import_opts *o,
		    struct pl_sink *sink, struct pl_import_stats *st, const char *format,
		    int (*finish)(void *arg, struct pl_err *err), void *arg,
		    struct pl_err *err) PL_MUST;
void pl_objects_fini(struct pl_objects_in *x);
/* The segment is of this rank: metadata of the job. world 0: its size is unknown. */
int pl_objects_job(struct pl_objects_in *x, int32_t rank, int64_t world,
		   struct pl_err *err) PL_MUST;
/* The track in this segment, made at its first use. */
int pl_import_lane(struct pl_lanes *l, const struct pl_lane *lane, pl_id *track,
		   struct pl_err *err) PL_MUST;

/* "WHAT NUMBER", which is a name of a lane; cut where there is no room. */
void pl_import_lane_name(char *to, size_t size, const char *what, int64_t number);

/* ---- rows ----------------------------------------------------------------------------------- */

void pl_import_put_int(struct pl_rows *r, uint8_t role, const char *key, int64_t v);
void pl_import_put_text(struct pl_rows *r, uint8_t role, const char *key, const char *s, size_t n);
/* A member of the object as an argument under its own key: a number, a text or a list. */
void pl_import_put_member(struct pl_rows *r, const struct pl_object *o, const char *key);

#endif
