/* The page: its sources, the report and the packed events. O(events); 10 bytes an event while it
 * packs. */
#include "report/html.h"
#include "report/page.h" /* made by the Makefile from page.html, page.css and page.js */

#define LEVEL                                                                                      \
	4 /* of deflate: half the size of level 1, in a tenth of a second a million events         \
	   */

/* ---- events ---------------------------------------------------------------------------------- */

static void put_head(const struct pl_picture *p, struct pl_writer *w)
{
	pl_write_format(w,
			"{\"span\":%lld,\"events\":%zu,\"path\":%zu,\"memory\":%zu,\"classes\":[",
			(long long)p->span, p->n_events, p->n_path, p->n_memory);
	for (int i = 0; i < PL_PICTURE_CLASSES_; i++)
		pl_write_format(w, "%s[\"%s\",\"%s\",\"%s\"]", i ? "," : "",
				pl_picture_classes[i].word, pl_picture_classes[i].light,
				pl_picture_classes[i].dark);
}

static void put_lists(const struct pl_picture *p, struct pl_writer *w)
{
	pl_write_text(w, "],\"names\":[");
	for (size_t i = 0; i < p->str.n; i++) {
		pl_write_text(w, i ? "," : "");
		pl_write_json_str(w, p->str.str[i], p->str.len[i]);
	}
	pl_write_text(w, "],\"styles\":[");
	for (size_t i = 0; i < p->n_styles; i++)
		pl_write_format(
			w, "%s[%u,%u,%lld]", i ? "," : "", p->style[i].class, p->style[i].name,
			p->style[i].module == PL_NONE ? -1LL : (long long)p->style[i].module);
	pl_write_text(w, "],\"rows\":[");
	for (size_t i = 0; i < p->n_rows; i++)
		pl_write_format(w, "%s[%d,%u,\"%s\"]", i ? "," : "", p->row[i].rank, p->row[i].name,
				pl_trace_track_type_name(p->row[i].type));
	pl_write_text(w, "],\"steps\":[");
	for (size_t i = 0; i < p->n_steps; i++)
		pl_write_format(w, "%s[%lld,%lld,%lld]", i ? "," : "",
				p->step[i].number == INT64_MIN ? -1LL
							       : (long long)p->step[i].number,
				(long long)p->step[i].start, (long long)p->step[i].end);
	pl_write_text(w, "],\"marks\":[");
	for (size_t i = 0; i < p->n_marks; i++)
		pl_write_format(w, "%s[%u,%zu]", i ? "," : "", p->mark[i].change, p->mark[i].n);
	pl_write_text(w, "]}\n");
}

/* A number in an event that comes before. */
#define EACH_EVENT(p, x, value)                                                                    \
	for (size_t i_ = 0; i_ < (p)->n_events; i_++) {                                            \
		const struct pl_picture_event *x = &(p)->event[i_];                                \
                                                                                                   \
		pl_io_put_varint(b, (uint64_t)(value));                                            \
	}

static void put_events(const struct pl_picture *p, struct pl_buf *b)
{
	for (size_t i = 0; i < p->n_rows; i++)
		pl_io_put_varint(b, p->row[i].n);
	for (size_t i = 0; i < p->n_rows; i++) {
		pl_ns end = 0;

		for (size_t k = p->row[i].first; k < p->row[i].first + p->row[i].n; k++) {
			pl_io_put_svarint(b, p->event[k].start - end);
			end = p->event[k].start + p->event[k].dur;
		}
	}
	EACH_EVENT(p, x, x->dur)
	EACH_EVENT(p, x, x->style)
	EACH_EVENT(p, x, (int64_t)x->mb + 1)
	EACH_EVENT(p, x, x->bytes + 1)
}

static void put_path(const struct pl_picture *p, struct pl_buf *b)
{
	pl_ns end = 0;

	for (size_t i = 0; i < p->n_path; i++)
		pl_io_put_varint(b, (uint32_t)(p->path[i].row + 1)); /* PL_NONE: 0 */
	for (size_t i = 0; i < p->n_path; i++)
		pl_io_put_varint(b, p->path[i].part);
	for (size_t i = 0; i < p->n_path; i++) {
		pl_io_put_svarint(b, p->path[i].start - end);
		end = p->path[i].start + p->path[i].dur;
	}
	for (size_t i = 0; i < p->n_path; i++)
		pl_io_put_varint(b, (uint64_t)p->path[i].dur);
}

static void put_memory(const struct pl_picture *p, struct pl_buf *b)
{
	pl_ns at = 0;

	for (size_t i = 0; i < p->n_memory; i++)
		pl_io_put_svarint(b, p->memory[i].rank);
	for (size_t i = 0; i < p->n_memory; i++) {
		pl_io_put_svarint(b, p->memory[i].at - at);
		at = p->memory[i].at;
	}
	for (size_t i = 0; i < p->n_memory; i++)
		pl_io_put_varint(b, (uint64_t)p->memory[i].bytes);
}

static void put_marks(const struct pl_picture *p, struct pl_buf *b)
{
	for (size_t i = 0; i < p->n_marks; i++)
		for (size_t k = 0; k < p->mark[i].n; k++)
			pl_io_put_varint(b, p->runs[p->mark[i].first + k]);
}

static int put_picture(const struct pl_picture *p, struct pl_writer *w, struct pl_err *err)
{
	struct pl_writer head = { 0 };
	struct pl_buf packed = { 0 };
	int rc;

	put_head(p, &head);
	put_lists(p, &head);
	PL_TRY(pl_write_check(&head, err));
	put_events(p, &head.b);
	put_path(p, &head.b);
	put_memory(p, &head.b);
	put_marks(p, &head.b);
	if (head.b.failed)
		PL_TRY(pl_fail(err, PL_ENOMEM, "out of memory for %zu events", p->n_events));
	PL_TRY(pl_io_deflate(head.b.p, head.b.n, LEVEL, &packed, err));
	pl_write_base64(w, packed.p, packed.n);
out:
	pl_write_fini(&head);
	pl_buf_fini(&packed);
	return rc;
}

/* ---- the page -------------------------------------------------------------------------------- */

/* JSON inside of HTML: no "</script>", no "<!--". '<' stands only in strings. */
static void put_json(const struct pl_buf *b, struct pl_writer *w)
{
	size_t from = 0;

	for (size_t i = 0; i < b->n; i++) {
		if (b->p[i] != '<')
			continue;
		pl_write(w, b->p + from, i - from);
		pl_write_text(w, "\\u003c");
		from = i + 1;
	}
	pl_write(w, b->p + from, b->n - from);
}

static void put_title(const char *s, struct pl_writer *w)
{
	for (; *s; s++) {
		if (*s == '<' || *s == '&' || (unsigned char)*s < 0x20)
			pl_write_format(w, "&#%d;", (unsigned char)*s < 0x20 ? '?' : *s);
		else
			pl_write_char(w, *s);
	}
}

/* What page.html marks as @NAME@ at the beginning of a line is put there. */
static int put_part(const struct pl_html *page, const char *mark, struct pl_writer *w,
		    struct pl_err *err)
{
	if (!strncmp(mark, "@TITLE@", 7))
		put_title(page->title, w);
	else if (!strncmp(mark, "@CSS@", 5))
		pl_write_text(w, page_css);
	else if (!strncmp(mark, "@JS@", 4))
		pl_write_text(w, page_js);
	else if (!strncmp(mark, "@REPORT@", 8))
		put_json(page->report, w);
	else if (page->picture)
		return put_picture(page->picture, w, err);
	return 0;
}

int pl_html_write(const struct pl_html *page, struct pl_out *out, struct pl_err *err)
{
	const char *s = page_html, *mark;
	struct pl_writer w;
	int rc = 0, end;

	pl_write_init(&w, out, 0);
	for (; (mark = strstr(s, "\n@")); s = strchr(mark + 2, '@') + 1) {
		pl_write(&w, s, (size_t)(mark - s));
		PL_TRY(put_part(page, mark + 1, &w, err));
	}
	pl_write_text(&w, s);
out:
	end = pl_write_end(&w, err);
	return rc < 0 ? rc : end;
}
