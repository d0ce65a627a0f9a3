'use strict';
/*
 * The page of a report. First what the report says, as text and tables; then the timeline. The timeline
 * draws a lane pixel by pixel: an event that is narrower than a pixel is drawn together with its
 * neighbours, and the first event of the next pixel is found by bisection. So a drawing takes time for
 * each pixel of the visible lanes, not for each event.
 */
const $ = (id) => document.getElementById(id);
const report = JSON.parse($('report').textContent);
let pic = null; /* the timeline's data */

/* ---- words ---- */

function ns(t) {
	const a = Math.abs(t);
	const [unit, name] = a >= 1e9 ? [1e9, 's'] : a >= 1e6 ? [1e6, 'ms'] : a >= 1e3 ? [1e3, 'us'] : [1, 'ns'];
	const x = t / unit, digits = Math.abs(x) < 10 ? 2 : Math.abs(x) < 100 ? 1 : 0;
	return (unit === 1 ? Math.round(x) : x.toFixed(digits)) + ' ' + name;
}
/* A time on an axis whose marks are `step` apart: as many digits as tell two of them apart. */
function mark(t, step) {
	if (!t) return '0';
	const a = Math.abs(t), [unit, name] = a >= 1e9 ? [1e9, 's'] : a >= 1e6 ? [1e6, 'ms'] : a >= 1e3 ? [1e3, 'us'] : [1, 'ns'];
	return (t / unit).toFixed(Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9))) + ' ' + name;
}
function size(b) {
	for (const [unit, name] of [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']])
		if (b >= unit) return (b / unit).toFixed(b < 10 * unit ? 2 : 1) + ' ' + name;
	return b + ' B';
}
/* "thread 7 (python)": what is in parentheses says more; two of a rank with the same name keep their number. */
function laneNames(d) {
	const parts = d.rows.map(([rank, word]) => [rank, /^(.*?)(\d*) \(([^()]+)\)$/.exec(d.names[word]) || [0, '', '', d.names[word]]]);
	const same = parts.map(([rank, m]) => rank + ' ' + m[3]), seen = (k) => same.indexOf(k) !== same.lastIndexOf(k);
	return parts.map(([, m], i) => m[3] + (m[2] && seen(same[i]) ? ' ' + m[2] : ''));
}
/* As much of the text as has at most n letters, with its begin and its end. */
const middle = (s, n) => (s.length > n ? s.slice(0, n >> 1) + '\u2026' + s.slice(s.length - (n >> 1) + 1) : s);
const percent = (x, digits = 1) => (100 * x).toFixed(digits).replace('-', '\u2212') + ' %';
const signed = (x, digits = 1) => (x > 0 ? '+' : '') + percent(x, digits);

function el(tag, text, more) {
	const e = document.createElement(tag);
	if (text !== undefined && text !== null) e.textContent = text;
	return Object.assign(e, more);
}
function show(id) {
	$(id).hidden = false;
	return $(id);
}

/* A table: columns are [title, is a number, function of the row]. */
function table(title, rows, columns, most = 20) {
	if (!rows || !rows.length) return;
	const section = el('section'), t = el('table'), head = el('tr'), body = el('tbody');
	section.append(el('h2', title));
	for (const [name, number] of columns) head.append(el('th', name, { className: number ? 'n' : '', scope: 'col' }));
	t.append(el('thead'));
	t.tHead.append(head);
	t.append(body);
	const fill = (n) => {
		body.textContent = '';
		for (const row of rows.slice(0, n)) {
			const tr = el('tr');
			for (const [, number, value] of columns) {
				const v = value(row);
				const td = el('td', v instanceof Node ? undefined : v, { className: number ? 'n' : 'name' });
				if (v instanceof Node) td.append(v);
				tr.append(td);
			}
			body.append(tr);
		}
	};
	fill(most);
	section.append(t);
	if (rows.length > most) {
		const more = el('button', 'Show all ' + rows.length);
		more.onclick = () => { fill(rows.length); more.remove(); };
		section.append(more);
	}
	$('tables').append(section);
}

/* ---- the report ---- */

/* Where recorded steps overlap, the report has the time from step to step, which is what counts. */
const mean = (which) => report[which + '_period_mean_ns'] ?? report[which + '_mean_ns'];
const end = (which) => report['predicted_period_' + which + '_ns'] ?? report['predicted_' + which + '_ns'];
function answer() {
	const r = report, steps = (r.steps || []).length, n = (r.ranks || []).length;
	let text = 'A step takes ' + ns(mean('recorded')) + (r.recorded_period_mean_ns ? ' from its start to that of the next' : '') +
		(steps > 1 ? ' (mean of ' + steps + ')' : '') + '; the replay takes ' + ns(mean('replayed')) + ' (' +
		signed(mean('replayed') / mean('recorded') - 1, 2) + '). ';
	if (mean('predicted'))
		text += 'With the changes it is predicted to take ' + ns(mean('predicted')) + ' (' + signed(mean('predicted') / mean('replayed') - 1) +
			(end('low') ? '; ' + ns(end('low')) + ' to ' + ns(end('high')) : '') + '). ';
	$('answer').textContent = text + n + (n === 1 ? ' rank; ' : ' ranks; ') + percent(r.unexplained_share || 0) + ' of the critical path is unexplained.';
	if (r.changes) show('changed').textContent = 'Changed: ' + r.changes.map((c) => c.change).join('; ');
}

/* Is the difference of two jobs more than that of their steps? `step`: of A. */
function likely(step) {
	const r = report;
	return r.difference_lo_ns === null ? '' : ' With 90 % certainty the difference is ' + ns(r.difference_lo_ns) + ' to ' + ns(r.difference_hi_ns) +
		' (' + signed(r.difference_lo_ns / step) + ' to ' + signed(r.difference_hi_ns / step) + ')' +
		(r.may_be_chance ? ', which holds 0: it may be chance, and what follows too.' : '.');
}
/* replay A B */
function difference() {
	const { a, b } = report, slower = [], faster = [], step = a.step_mean_ns;
	const where = (p) => [p.phase === '-' ? '' : p.phase, p.module, p.operator].filter(Boolean).join(' ');
	$('answer').textContent = 'A step of B takes ' + ns(b.step_mean_ns) + ', ' + (report.difference_ns >= 0 ? ns(report.difference_ns) + ' more' :
		ns(-report.difference_ns) + ' less') + ' than one of A (' + ns(step) + '): ' + signed(report.difference_ns / step) + '.' + likely(step);
	show('changed').textContent = [['A', a], ['B', b]].map(([k, s]) => k + ' is ' + s.file + ': ' + s.steps + ' steps, ' + s.ranks + ' ranks, ' +
		percent(s.unexplained_share) + ' unexplained' + (s.trust ? ', trust ' + s.trust.level +
		(s.trust.reasons.length ? ' (' + s.trust.reasons.join('; ') + ')' : '') : '')).join('. ') + '.' +
		(report.changes ? ' Changed in both: ' + report.changes.map((c) => c.change).join('; ') + '.' : '');
	for (const p of report.places)
		if (Math.abs(p.contribution_ns) > 0.002 * step) (p.contribution_ns > 0 ? slower : faster).push(p);
	const columns = [['on the path', true, (p) => change(p.contribution_ns)], ['where', false, where], ['why', false, (p) => p.why],
		['A, a rank', true, (p) => ns(p.a_rank_ns)], ['B', true, (p) => ns(p.b_rank_ns)]];
	table('Slower in B, a step', slower, columns, 10);
	table('Faster in B, a step', faster, columns, 10);
	table('Classes of time, mean of the ranks', report.classes, [['class', false, (c) => c.class], ['A', true, (c) => ns(c.a_ns)],
		['B', true, (c) => ns(c.b_ns)], ['difference', true, (c) => change(c.difference_ns)]], 20);
	table('Operations, a step', report.operations, [['on the path', true, (o) => change(o.contribution_ns)], ['A', true, (o) => ns(o.a_path_ns)],
		['B', true, (o) => ns(o.b_path_ns)], ['kind', false, (o) => o.kind], ['operation', false, (o) => o.name]], 20);
}
function change(t) {
	return el('span', (t > 0 ? '+' : '') + ns(t), { className: t > 0 ? 'up' : t < 0 ? 'down' : '' });
}

/* The causes that are not small, as the text report has them: what can be changed, computation, the rest. */
function verdict() {
	const found = report.verdict || [], work = report.computation, other = found.find((v) => v.cause === 'other');
	const rest = other && (!work || other.share < work.share) ? other : null;
	const rows = found.filter((v) => v !== rest).slice(0, 5);
	if (work && found.length && !rows.some((v) => v.cause === 'compute')) rows.push(work);
	if (rest) rows.push(rest);
	for (const [i, v] of rows.entries())
		if (!i || v.share >= 0.03) show('verdict').querySelector('ol').append(el('li', v.text, { title: v.cause + ', ' + percent(v.share) }));
	for (const w of report.waits || []) show('waits').querySelector('ul').append(el('li', w.text));
	for (const a of report.would_help || [])
		show('help').querySelector('ul').append(el('li', (a.at_most ? 'at most ' : '') + signed(-a.share) + interval(a) + ': ' + a.what));
	if (found.length) causes(rows);
	else $('verdict').querySelector('h2').textContent = 'Trust';
	if (report.trust) {
		show('verdict').dataset.trust = report.trust.level;
		show('trust').textContent = 'Trust: ' + report.trust.level +
			((report.trust.reasons || []).length ? ' (' + report.trust.reasons.join('; ') + ')' : '');
	}
}

/* The 90 % interval of what a change saves. */
function interval(a) {
	return a.share_lo === undefined ? '' : ' (' + signed(-a.share_hi) + ' to ' + signed(-a.share_lo) +
		(report.trust && report.trust.level === 'low' ? ', not reliable' : '') + ')';
}
/* The critical path by cause, as a bar. */
const causeColours = { compute: '#5b8fd6', 'exposed-communication': '#e0843b', 'pipeline-bubble': '#b9bfc8', input: '#c2a83e',
	'launch-bound': '#a9c0dd', 'slow-rank': '#c0699b', 'slow-link': '#b3572a', imbalance: '#d59bbb', contention: '#59b3a6',
	'host-synchronisation': '#9d7cc9', 'memory-stall': '#8a6d4f', checkpoint: '#7d8c3c', 'garbage-collection': '#b7c46b',
	evaluation: '#5aa0b5', compilation: '#c46b6b', other: '#dcd6c8' };
function causes(rows) {
	const bar = show('causes').querySelector('.parts'), left = 1 - rows.reduce((sum, v) => sum + v.share, 0);
	for (const v of rows.concat(left > 0.005 ? [{ cause: 'smaller causes', share: left, text: 'smaller causes ' + percent(left, 0) }] : [])) {
		const x = el('i', v.share >= 0.05 ? percent(v.share, 0) : '', { title: v.text }), k = el('span'), box = el('i');
		x.style.width = 100 * v.share + '%';
		x.style.background = box.style.background = causeColours[v.cause] || '#e6e8ec';
		bar.append(x);
		k.append(box, v.cause.replace(/-/g, ' '));
		$('causes').querySelector('.key').append(k);
	}
	bar.setAttribute('role', 'img');
	bar.setAttribute('aria-label', rows.map((v) => v.text).join('; '));
}

/* The changes that were simulated: those of the verdict, and those that save most; each once. */
function changes(base) {
	const helpful = (report.would_help || []).filter((a) => a.change).map((a) => ({ change: a.change, what: a.what, share: a.share,
		saves_ns: a.share * base, saves_lo_ns: a.share_lo * base, saves_hi_ns: a.share_hi * base }));
	return helpful.concat((report.worth_most || []).filter((c) => !helpful.some((a) => Math.abs(a.share - c.share) < 1e-9)));
}
function whatIf() {
	const base = mean('predicted') || mean('replayed');
	if (report.trust && report.trust.level === 'low') $('doubt').hidden = false;
	for (const c of changes(base)) {
		const b = el('button');
		b.append(el('span', middle(c.change, 36)), el('b', signed(-c.share)));
		b.title = c.change + (c.what ? ': ' + c.what : '');
		b.setAttribute('aria-pressed', 'false');
		b.onclick = () => {
			const on = b.getAttribute('aria-pressed') !== 'true';
			for (const other of $('buttons').children) other.setAttribute('aria-pressed', 'false');
			b.setAttribute('aria-pressed', String(on));
			effect(on ? c : null, base);
		};
		show('whatif').querySelector('#buttons').append(b);
	}
}

function effect(c, base) {
	const e = $('effect');
	e.textContent = '';
	if (pic) pic.chosen(c ? c.change : '');
	if (!c) return;
	const after = base - c.saves_ns;
	const between = c.saves_lo_ns !== undefined && c.saves_hi_ns !== undefined
		? ', with 90 % certainty ' + ns(base - c.saves_hi_ns) + ' to ' + ns(base - c.saves_lo_ns) : '';
	for (const [name, t, now] of [['now ', base, true], ['then ', after, false]]) {
		const bar = el('div', undefined, { className: now ? 'bar now' : 'bar' }), i = el('i');
		i.style.width = 100 * t / base + '%';
		bar.append(i);
		e.append(el('div', name + ns(t) + (now ? '' : ', ' + ns(c.saves_ns) + ' a step less' + between)), bar);
	}
	if (c.what) e.append(el('p', c.what));
	const p = el('p', 'The whole report of it: ', { className: 'quiet' });
	p.append(el('code', "replay --what-if '" + c.change.replace(/'/g, "'\\''") + "' GRAPH"));
	e.append(p);
}

/* The parts of a rank's time, as in the text report: key, words, colour. */
const parts = [['compute_ns', 'computation', '#5b8fd6'], ['comm_overlapped_ns', 'overlapped communication', '#59b3a6'],
	['comm_exposed_ns', 'exposed communication', '#e0843b'], ['copy_ns', 'copies', '#c0699b'], ['host_ns', 'host', '#c9b458'],
	['unexplained_ns', 'unexplained', '#e07a7a'], ['wait', 'waiting for other ranks', '#b9bfc8'],
	['launch', 'launch latency', '#d3c08a'], ['nothing', 'nothing to do', '#e6e8ec']];
function partOf(rank, i) {
	return i < 6 ? rank[parts[i][0]] : ((rank.idle || [])[i - 6] || { ns: 0 }).ns;
}
function ranks() {
	const all = report.ranks || [];
	if (!all.length) return;
	const section = show('ranks'), body = section.querySelector('tbody'), more = section.querySelector('.more');
	for (const [i, [, word, colour]] of parts.entries()) {
		if (!all.some((r) => partOf(r, i))) continue;
		const s = el('span'), box = el('i');
		box.style.background = colour;
		s.append(box, word);
		section.querySelector('.key').append(s);
	}
	const add = (some) => {
		for (const r of some) {
			const tr = el('tr'), bar = el('div', undefined, { className: 'parts' });
			const said = [];
			for (const [i, [, word, colour]] of parts.entries()) {
				const share = r.span_ns ? partOf(r, i) / r.span_ns : 0;
				if (share <= 0) continue;
				const x = el('i', share >= 0.06 ? percent(share, 0) : '');
				x.style.width = 100 * share + '%';
				x.style.background = colour;
				x.title = word + ': ' + percent(share) + ', ' + ns(partOf(r, i));
				said.push(x.title);
				bar.append(x);
			}
			bar.setAttribute('role', 'img');
			bar.setAttribute('aria-label', 'rank ' + r.rank + ': ' + said.join('; '));
			tr.append(el('td', 'rank ' + r.rank), el('td'),
				el('td', r.waits_for === null || !r.waits_for_ns ? '' : 'waits most for rank ' + r.waits_for, { className: 'quiet' }));
			tr.cells[1].append(bar);
			body.append(tr);
		}
	};
	add(all.slice(0, 32));
	if (all.length > 32) {
		more.hidden = false;
		more.onclick = () => { add(all.slice(32)); more.hidden = true; };
	}
	for (const s of report.slowest || []) $('slow').append(el('li', 'Rank ' + s.rank + ' ' + s.why));
}

function tables() {
	const r = report;
	table('Critical path', r.critical_path, [['share', true, (x) => percent(x.share)], ['time', true, (x) => ns(x.ns)],
		['count', true, (x) => x.count], ['kind', false, (x) => x.kind], ['rank', true, (x) => x.rank ?? ''],
		...((r.critical_path || []).some((x) => 'device' in x) ? [['device', true, (x) => x.device ?? '']] : []),
		['operation', false, (x) => findButton(x.name)]], 12);
	const period = (r.steps || []).some((x) => x.period_ns !== null) ? [['period', true, (x) => (x.period_ns === null ? '' : ns(x.period_ns))]] : [];
	if ((r.steps || []).length > 1)
		table('Steps', r.steps, [['step', true, (x) => x.step], ['recorded', true, (x) => ns(x.recorded_ns)], ...period,
			['replayed', true, (x) => ns(x.replayed_ns)], ['error', true, (x) => signed(x.error, 3)]]
			.concat(r.predicted_mean_ns ? [['predicted', true, (x) => ns(x.predicted_ns)]] : []), 10);
}
function findButton(name) {
	if (!pic) return name;
	const b = el('button', name, { title: 'Find it in the timeline', className: 'link' });
	b.onclick = () => {
		$('find').value = name;
		pic.search(name);
		$('timeline').scrollIntoView();
	};
	return b;
}

/* ---- data of the timeline ---- */

async function unpack() {
	const text = $('events').textContent.trim();
	if (!text) return null;
	const raw = atob(text), bytes = new Uint8Array(raw.length);
	for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
	$('events').textContent = '';
	const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
	const b = new Uint8Array(await new Response(stream).arrayBuffer());
	const end = b.indexOf(10), d = JSON.parse(new TextDecoder().decode(b.subarray(0, end)));
	let at = end + 1;
	const number = () => {
		let c = b[at++], v = c & 127;
		for (let by = 128; c > 127; by *= 128) {
			c = b[at++];
			v += (c & 127) * by;
		}
		return v;
	};
	const signedNumber = () => {
		const u = number();
		return u % 2 ? -(u + 1) / 2 : u / 2;
	};
	const list = (n, type, next) => {
		const v = new type(n);
		for (let i = 0; i < n; i++) v[i] = next();
		return v;
	};
	const n = d.events;
	d.count = list(d.rows.length, Uint32Array, number);
	d.start = list(n, Float64Array, signedNumber);
	d.end = list(n, Float64Array, number);
	for (let r = 0, i = 0; r < d.rows.length; r++)
		for (let k = 0, last = 0; k < d.count[r]; k++, i++) {
			d.start[i] += last;
			d.end[i] = last = d.start[i] + d.end[i];
		}
	d.style = list(n, Uint32Array, number);
	d.mb = list(n, Int32Array, () => number() - 1);
	d.bytes = list(n, Float64Array, () => number() - 1);
	d.p = { row: list(d.path, Int32Array, () => number() - 1), part: list(d.path, Uint8Array, number),
		start: list(d.path, Float64Array, signedNumber), end: list(d.path, Float64Array, number) };
	for (let i = 0, last = 0; i < d.path; i++) {
		d.p.start[i] += last;
		d.p.end[i] = last = d.p.start[i] + d.p.end[i];
	}
	d.m = { rank: list(d.memory, Int32Array, signedNumber), at: list(d.memory, Float64Array, signedNumber),
		bytes: list(d.memory, Float64Array, number) };
	for (let i = 1; i < d.memory; i++) d.m.at[i] += d.m.at[i - 1];
	d.marks = new Map(d.marks.map(([line, runs]) => [d.names[line], list(runs, Uint32Array, number)]));
	return d;
}

/*
 * Lanes: the events of a row that do not overlap. Most rows have one; events inside of others lie on the
 * next. In a lane starts and ends ascend. `sum` is the time of the events before each.
 */
const LEVELS = 8;
function lanes(d) {
	const all = [];
	for (let r = 0, first = 0; r < d.rows.length; first += d.count[r], r++) {
		const level = [];
		const end = [];
		for (let i = first, depth = 0; i < first + d.count[r]; i++) {
			while (depth && d.start[i] >= end[depth - 1]) depth--;
			if (depth >= LEVELS) continue;
			end[depth] = d.end[i];
			(level[depth] = level[depth] || []).push(i);
			depth++;
		}
		for (let k = 0; k < level.length; k++) {
			const event = Uint32Array.from(level[k]), sum = new Float64Array(event.length + 1);
			for (let i = 0; i < event.length; i++) sum[i + 1] = sum[i] + d.end[event[i]] - d.start[event[i]];
			all.push({ row: r, level: k, event, sum });
		}
	}
	return all;
}
/* The first i of [from, to) with values[index[i]] above t, or to. */
function after(values, index, from, to, t) {
	while (from < to) {
		const middle = (from + to) >> 1;
		if (values[index ? index[middle] : middle] > t) to = middle;
		else from = middle + 1;
	}
	return from;
}

/* ---- the timeline ---- */

function timeline(d) {
	const AXIS = 34, GAP = 8, RANK = 66, label = laneNames(d);
	const canvas = $('rows'), c = canvas.getContext('2d'), box = $('view'), strip = $('overview'), s = strip.getContext('2d');
	const lane = lanes(d), HIGH = lane.length <= 24 ? 22 : 16, dark = matchMedia('(prefers-color-scheme: dark)');
	let from = 0, to = d.span || 1, width = 0, height = 0, colours, ink, match = null, selected = -1, onPath = -1, wanted = 0;
	c.font = '10px system-ui, sans-serif';
	const LEFT = Math.min(260, Math.ceil(RANK + 12 + label.reduce((most, t) => Math.max(most, c.measureText(t).width), 72)));
	let total = AXIS;
	const rowTop = [], laneOf = [];
	for (const [i, l] of lane.entries()) {
		if (i && d.rows[lane[i - 1].row][0] !== d.rows[l.row][0]) total += GAP;
		l.y = total;
		if (!l.level) rowTop[l.row] = total;
		(laneOf[l.row] = laneOf[l.row] || []).push(i);
		total += HIGH;
	}
	total += 6;
	const rowOf = (event) => after(firsts, null, 0, firsts.length, event) - 1;
	const firsts = new Float64Array(d.rows.length);
	for (let r = 1; r < d.rows.length; r++) firsts[r] = firsts[r - 1] + d.count[r - 1];
	const x = (t) => LEFT + (t - from) / (to - from) * (width - LEFT);
	const time = (px) => from + (px - LEFT) / (width - LEFT) * (to - from);
	const name = (event) => d.names[d.styles[d.style[event]][1]];

	function look() {
		const css = getComputedStyle(document.documentElement);
		ink = Object.fromEntries(['back', 'panel', 'text', 'quiet', 'line', 'accent', 'path'].map((k) => [k, css.getPropertyValue('--' + k).trim()]));
		colours = d.classes.map((k) => k[dark.matches ? 2 : 1]);
		$('legend').textContent = '';
		const used = new Set(d.styles.map((st) => st[0]));
		for (const [i, k] of d.classes.entries()) {
			if (!used.has(i)) continue;
			const e = el('span'), b = el('i');
			b.style.background = colours[i];
			e.append(b, k[0]);
			$('legend').append(e);
		}
		for (const [k, text] of [['path', 'critical path'], ['accent', 'begin of a step']]) {
			const e = el('span'), b = el('i', undefined, { className: k === 'path' ? 'across' : 'down' });
			b.style.background = ink[k];
			e.append(b, text);
			$('legend').append(e);
		}
	}
	function fit() {
		const scale = devicePixelRatio || 1;
		width = box.clientWidth;
		height = Math.min(total, Math.floor(innerHeight * 0.66));
		box.style.height = height + 2 + 'px';
		$('space').style.height = total + 'px';
		for (const [e, ctx, h] of [[canvas, c, height], [strip, s, 40]]) {
			e.style.height = h + 'px';
			e.width = Math.round(e.clientWidth * scale);
			e.height = Math.round(h * scale);
			ctx.setTransform(scale, 0, 0, scale, 0, 0);
		}
	}

	/* -- drawing -- */

	function axis(ctx, h, bottom) {
		let step = 1;
		for (let i = 0; (to - from) / step > Math.max(2, (width - LEFT) / 110); i++) step *= i % 3 === 1 ? 2.5 : 2;
		ctx.font = '11px system-ui, sans-serif';
		ctx.textAlign = 'center';
		for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
			ctx.fillStyle = ink.line;
			ctx.fillRect(Math.round(x(t)), h, 1, bottom - h);
			ctx.fillStyle = ink.quiet;
			if (bottom === AXIS) ctx.fillText(mark(t, step), x(t), 12);
		}
		ctx.textAlign = 'left';
	}
	/* The text, or its begin if that says something, in w pixels. */
	function cut(text, w) {
		const n = Math.floor(text.length * w / c.measureText(text).width);
		return n >= text.length ? text : n > 4 ? text.slice(0, n - 1) + '\u2026' : '';
	}
	function dim(event) {
		return match && !match[event] ? 0.15 : 1;
	}
	/* The longest of some events of [i, j) of a lane: it gives a pixel its colour. One that is searched wins. */
	function longest(l, i, j) {
		let best = -1, most = -1;
		for (let k = i, by = Math.max(1, Math.floor((j - i) / 24)); k < j; k += by) {
			const e = l.event[k], t = (d.end[e] - d.start[e]) * (dim(e) < 1 ? 1e-6 : 1);
			if (t > most) {
				most = t;
				best = e;
			}
		}
		return best;
	}
	function drawLane(l, y) {
		const n = l.event.length, perPixel = (to - from) / (width - LEFT);
		let i = after(d.end, l.event, 0, n, from);
		while (i < n && d.start[l.event[i]] < to) {
			const e = l.event[i], x0 = Math.max(LEFT, x(d.start[e])), x1 = Math.min(width, x(d.end[e]));
			if (x1 - x0 >= 1) {
				const w = Math.max(1, x1 - x0 - (x1 - x0 > 3 ? 0.6 : 0)), st = d.styles[d.style[e]];
				c.globalAlpha = dim(e);
				c.fillStyle = colours[st[0]];
				c.fillRect(x0, y, w, HIGH - 2);
				if (w > 34 && c.globalAlpha === 1) {
					const text = (d.mb[e] >= 0 ? d.mb[e] + ' ' : '') + d.names[st[1]];
					c.fillStyle = dark.matches && st[0] > 9 ? ink.text : '#14181d';
					c.fillText(cut(text, w - 6), x0 + 3, y + HIGH / 2 + 2.5);
				}
				i++;
				continue;
			}
			const column = Math.floor(x0), edge = time(column + 1);
			const j = Math.max(i + 1, after(d.end, l.event, i, n, edge));
			const best = longest(l, i, j);
			c.globalAlpha = Math.min(1, 0.35 + (l.sum[j] - l.sum[i]) / perPixel) * dim(best);
			c.fillStyle = colours[d.styles[d.style[best]][0]];
			c.fillRect(column, y, 1, HIGH - 2);
			i = j;
		}
		c.globalAlpha = 1;
	}
	function drawPath(top) {
		const p = d.p, n = d.path;
		if (!n || !$('showpath').checked) return;
		c.save();
		c.beginPath();
		c.rect(LEFT, AXIS, width - LEFT, height - AXIS);
		c.clip();
		c.strokeStyle = ink.path;
		c.lineWidth = 1.6;
		c.globalAlpha = 0.8;
		c.beginPath();
		let at = null, turned = -9;
		for (let i = after(p.end, null, 0, n, from); i < n && p.start[i] < to;) {
			const x1 = x(p.end[i]), column = time(Math.floor(x(p.start[i])) + 1);
			const y = p.row[i] < 0 || rowTop[p.row[i]] === undefined ? at : rowTop[p.row[i]] - top + HIGH - 2;
			if (y !== null) {
				/* where it goes to and fro all the time, its turns would hide the rows */
				const x0 = x(p.start[i]), turns = y !== at && at !== null && x0 - turned >= 5;
				if (turns) c.lineTo(turned = x0, y);
				else if (y !== at) c.moveTo(x0, y);
				c.lineTo(x1, y);
				at = y;
			}
			/* of many parts in one pixel some are drawn */
			const next = p.end[i] < column ? after(p.end, null, i + 1, n, column) : i + 1;
			i = Math.max(i + 1, i + Math.ceil((next - i) / 12));
		}
		c.stroke();
		c.restore();
	}
	function outline(event, top) {
		const l = lane.find((q) => q.row === rowOf(event) && q.event.includes(event));
		if (!l) return;
		c.strokeStyle = ink.text;
		c.lineWidth = 2;
		const x0 = Math.max(LEFT - 4, x(d.start[event])), x1 = Math.min(width + 4, x(d.end[event]));
		c.strokeRect(x0 - 1, l.y - top - 1, Math.max(2, x1 - x0) + 2, HIGH);
	}
	function labels(top) {
		c.fillStyle = ink.back;
		c.fillRect(0, AXIS, LEFT - 2, height);
		c.fillStyle = ink.panel;
		for (const [i, l] of lane.entries()) {
			const y = l.y - top;
			if (y < AXIS - HIGH || y > height || l.level) continue;
			const [rank] = d.rows[l.row], first = !i || d.rows[lane[i - 1].row][0] !== rank;
			c.save();
			c.beginPath();
			c.rect(0, AXIS, LEFT - 4, height);
			c.clip();
			c.font = '12px system-ui, sans-serif';
			c.fillStyle = ink.text;
			if (rank >= 0 && first) c.fillText('rank ' + rank, 6, y + HIGH / 2 + 3);
			c.font = '10px system-ui, sans-serif';
			c.fillStyle = ink.quiet;
			c.fillText(label[l.row], rank >= 0 ? RANK : 6, y + HIGH / 2 + 3);
			c.restore();
		}
	}
	function draw() {
		wanted = 0;
		const top = box.scrollTop;
		c.fillStyle = ink.back;
		c.fillRect(0, 0, width, height);
		axis(c, AXIS, height);
		c.font = '10px system-ui, sans-serif';
		c.save();
		c.beginPath();
		c.rect(LEFT, AXIS, width - LEFT, height);
		c.clip();
		for (const st of d.steps) {
			if (st[2] < from || st[1] > to) continue;
			c.fillStyle = ink.accent;
			c.fillRect(Math.round(x(st[1])), AXIS, 1, height);
		}
		for (const l of lane) if (l.y - top > -HIGH && l.y - top < height) drawLane(l, l.y - top);
		c.restore();
		drawPath(top);
		if (selected >= 0) outline(selected, top);
		labels(top);
		c.fillStyle = ink.back;
		c.fillRect(0, 0, width, AXIS);
		axis(c, 16, AXIS);
		for (const st of d.steps) {
			const a = Math.max(LEFT, x(st[1]));
			if (st[2] < from || st[1] > to || x(st[2]) - a < 46) continue;
			c.fillStyle = ink.accent;
			c.font = '10px system-ui, sans-serif';
			if (st[0] >= 0 && d.steps.length > 1) c.fillText('step ' + st[0], a + 3, AXIS - 6);
			c.fillRect(a, AXIS - 14, 1, 14);
		}
		drawStrip();
		drawCurves(d, ink, from, to, LEFT);
		document.documentElement.dataset.drawn = String(+(document.documentElement.dataset.drawn || 0) + 1);
	}
	const again = () => { wanted = wanted || requestAnimationFrame(draw); };

	/* -- the strip: how busy all rows are, by class, and the part that is shown -- */

	let busy = null;
	function measure(n) {
		busy = { n, v: new Float32Array(n * d.classes.length), most: 0 };
		for (const l of lane) {
			if (l.level) continue;
			for (const e of l.event) {
				const cls = d.styles[d.style[e]][0];
				if (cls === 0 || cls > 8) continue;
				let a = d.start[e] / d.span * n;
				const b = d.end[e] / d.span * n;
				for (let i = Math.floor(a); i < n && a < b; i++) {
					const until = Math.min(b, i + 1);
					busy.v[i * d.classes.length + cls] += until - a;
					a = until;
				}
			}
		}
		for (let i = 0; i < n; i++) {
			let sum = 0;
			for (let k = 0; k < d.classes.length; k++) sum += busy.v[i * d.classes.length + k];
			busy.most = Math.max(busy.most, sum);
		}
	}
	function drawStrip() {
		const w = strip.clientWidth, h = 40, left = LEFT, n = Math.max(1, Math.min(600, w - left));
		if (!busy || busy.n !== n) measure(n);
		s.fillStyle = ink.back;
		s.fillRect(0, 0, w, h);
		s.fillStyle = ink.quiet;
		s.font = '11px system-ui, sans-serif';
		s.fillText('all ranks, ' + ns(d.span), 6, 24);
		for (let i = 0; i < n; i++) {
			let y = h;
			for (let k = 0; k < d.classes.length; k++) {
				const v = busy.v[i * d.classes.length + k] / (busy.most || 1) * (h - 2);
				if (!v) continue;
				s.fillStyle = colours[k];
				s.fillRect(left + i * (w - left) / n, y - v, (w - left) / n + 0.5, v);
				y -= v;
			}
		}
		const a = left + from / d.span * (w - left), b = left + to / d.span * (w - left);
		s.fillStyle = ink.back;
		s.globalAlpha = 0.6;
		s.fillRect(left, 0, a - left, h);
		s.fillRect(b, 0, w - b, h);
		s.globalAlpha = 1;
		s.strokeStyle = ink.accent;
		s.strokeRect(a + 0.5, 0.5, Math.max(2, b - a - 1), h - 1);
	}

	/* -- moving -- */

	function set(a, b) {
		const least = 50, most = d.span * 1.02 + 1;
		let n = Math.min(most, Math.max(least, b - a));
		const middle = (a + b) / 2;
		from = Math.max(-d.span * 0.01, Math.min(middle - n / 2, d.span * 1.01 - n));
		to = from + n;
		again();
	}
	const zoom = (by, at) => set(at - (at - from) * by, at + (to - at) * by);
	const pan = (by) => set(from + by * (to - from), to + by * (to - from));
	function goStep(by) {
		const middle = (from + to) / 2, at = d.steps.findIndex((st) => st[1] <= middle && middle < st[2]);
		const inside = at >= 0 && d.steps[at][2] - d.steps[at][1] > (to - from) * 0.5;
		const st = d.steps[Math.max(0, Math.min(d.steps.length - 1, at < 0 ? 0 : inside ? at + by : at))];
		if (st) set(st[1] - (st[2] - st[1]) * 0.02, st[2] + (st[2] - st[1]) * 0.02);
	}
	const acts = { in: () => zoom(0.5, (from + to) / 2), out: () => zoom(2, (from + to) / 2), left: () => pan(-0.25), right: () => pan(0.25),
		all: () => set(0, d.span), before: () => goStep(-1), after: () => goStep(1) };
	for (const b of document.querySelectorAll('.tools button')) b.onclick = acts[b.dataset.do];
	$('showpath').onchange = again;

	/* -- events -- */

	function eventAt(px, py) {
		const y = py + box.scrollTop, l = lane.find((q) => y >= q.y && y < q.y + HIGH);
		if (!l || px < LEFT || py < AXIS) return -1;
		const t = time(px), near = 2 * (to - from) / (width - LEFT);
		const i = Math.min(l.event.length - 1, after(d.end, l.event, 0, l.event.length, t - near));
		return i >= 0 && d.start[l.event[i]] <= t + near ? l.event[i] : -1;
	}
	function tell(e) {
		const st = d.styles[d.style[e]], row = d.rows[rowOf(e)], box2 = $('detail');
		let onCritical = 0;
		for (let i = after(d.p.end, null, 0, d.path, d.start[e]); i < d.path && d.p.start[i] < d.end[e]; i++)
			if (d.p.row[i] === rowOf(e)) onCritical += Math.min(d.p.end[i], d.end[e]) - Math.max(d.p.start[i], d.start[e]);
		box2.textContent = '';
		box2.append(el('b', d.names[st[1]]), ' \u00b7 ' + d.classes[st[0]][0] + (st[2] >= 0 ? ' \u00b7 ' + d.names[st[2]] : '') +
			(row[0] >= 0 ? ' \u00b7 rank ' + row[0] : '') + ' \u00b7 ' + d.names[row[1]] + ' \u00b7 ' + ns(d.end[e] - d.start[e]) + ' from ' + ns(d.start[e]) +
			(d.mb[e] >= 0 ? ' \u00b7 microbatch ' + d.mb[e] : '') + (d.bytes[e] >= 0 ? ' \u00b7 ' + size(d.bytes[e]) : '') +
			(onCritical > 0 ? ' \u00b7 ' + ns(onCritical) + ' on the critical path' : ''));
	}
	function select(e, bring) {
		selected = e;
		if (e >= 0) {
			tell(e);
			if (bring) {
				const n = Math.min(to - from, Math.max(20 * (d.end[e] - d.start[e]), (to - from) / 1e9));
				if (d.start[e] < from || d.end[e] > to || (d.end[e] - d.start[e]) / (to - from) * width < 3) {
					const middle = (d.start[e] + d.end[e]) / 2;
					set(middle - n / 2, middle + n / 2);
				}
				const y = rowTop[rowOf(e)];
				if (y - box.scrollTop < AXIS || y + HIGH - box.scrollTop > height) box.scrollTop = y - height / 2;
			}
		}
		again();
	}
	function beside(by) {
		if (selected < 0) return;
		const l = lane.find((q) => q.row === rowOf(selected) && q.event.includes(selected));
		const i = l.event.indexOf(selected) + by;
		if (i >= 0 && i < l.event.length) select(l.event[i], true);
	}
	function nextOfPath() {
		const t = selected >= 0 ? d.end[selected] : from;
		for (onPath = after(d.p.start, null, 0, d.path, t - 1); onPath < d.path; onPath++) {
			const r = d.p.row[onPath];
			if (r < 0 || d.p.part[onPath]) continue;
			for (const i of laneOf[r] || []) {
				const l = lane[i], k = after(d.end, l.event, 0, l.event.length, d.p.start[onPath]);
				if (k < l.event.length && d.start[l.event[k]] <= d.p.start[onPath] && l.event[k] !== selected) return select(l.event[k], true);
			}
		}
	}

	/* -- search -- */

	/* Which events are marked: those whose style passes the test. */
	function matches(test) {
		const of = test ? Uint8Array.from(d.styles, test) : null;
		let n = 0, sum = 0;
		match = of ? new Uint8Array(d.events) : null;
		if (!of) return [0, 0];
		for (let i = 0; i < d.events; i++)
			if (of[d.style[i]]) {
				match[i] = 1;
				n++;
				sum += d.end[i] - d.start[i];
			}
		return [n, sum];
	}
	function search(text) {
		const t = text.trim().toLowerCase();
		const has = d.names.map((w) => w.toLowerCase().includes(t));
		const [n, sum] = matches(t ? (st) => (has[st[1]] || (st[2] >= 0 && has[st[2]]) ? 1 : 0) : null);
		$('found').textContent = t ? n + (n === 1 ? ' operation, ' : ' operations, ') + ns(sum) : '';
		again();
	}
	/* What a change selects. Of changes that select nothing, such as settings, nothing is marked. */
	function chosen(change) {
		const runs = d.marks.get(change);
		match = runs ? new Uint8Array(d.events) : null;
		for (let k = 0, at = 0; runs && k < runs.length; at += runs[k++])
			if (k % 2) match.fill(1, at, at + runs[k]);
		again();
	}
	function nextMatch() {
		if (!match) return;
		let best = -1;
		const t = selected >= 0 ? d.start[selected] : -1;
		const later = (i) => d.start[i] > t || (d.start[i] === t && i > selected);
		for (const round of [later, () => true]) {
			for (let i = 0; i < d.events; i++)
				if (match[i] && round(i) && (best < 0 || d.start[i] < d.start[best])) best = i;
			if (best >= 0) return select(best, true);
		}
	}
	$('find').oninput = () => search($('find').value);
	$('find').onkeydown = (ev) => {
		if (ev.key === 'Enter') nextMatch();
		if (ev.key === 'Escape') { $('find').value = ''; search(''); canvas.focus(); }
	};

	/* -- keys, wheel, pointer -- */

	const keys = { '+': acts.in, '=': acts.in, '-': acts.out, ArrowLeft: () => pan(-0.1), ArrowRight: () => pan(0.1),
		ArrowUp: () => { box.scrollTop -= 3 * HIGH; }, ArrowDown: () => { box.scrollTop += 3 * HIGH; }, Home: acts.all, '[': acts.before, ']': acts.after,
		',': () => beside(-1), '.': () => beside(1), p: nextOfPath, n: nextMatch, '/': () => $('find').focus(), Escape: () => select(-1),
		Enter: () => { if (selected >= 0) set(d.start[selected] - (d.end[selected] - d.start[selected]), d.end[selected] * 2 - d.start[selected]); } };
	canvas.onkeydown = (ev) => {
		if (!keys[ev.key] || ev.ctrlKey || ev.metaKey || ev.altKey) return;
		ev.preventDefault();
		keys[ev.key]();
	};
	document.addEventListener('keydown', (ev) => {
		if (ev.key === '/' && !/INPUT/.test(document.activeElement.tagName)) {
			ev.preventDefault();
			$('find').focus();
		}
	});
	canvas.addEventListener('wheel', (ev) => {
		if (ev.offsetX < LEFT) return; /* the names scroll */
		ev.preventDefault();
		if (ev.shiftKey || Math.abs(ev.deltaX) > Math.abs(ev.deltaY)) pan((ev.deltaX || ev.deltaY) / 600);
		else zoom(Math.exp(Math.max(-240, Math.min(240, ev.deltaY)) / 400), time(ev.offsetX));
	}, { passive: false });
	box.onscroll = again;
	let hold = null;
	canvas.onpointerdown = (ev) => {
		canvas.setPointerCapture(ev.pointerId);
		hold = { x: ev.offsetX, y: ev.offsetY, from, to, top: box.scrollTop, moved: false, part: ev.offsetY < AXIS || ev.shiftKey };
	};
	canvas.onpointermove = (ev) => {
		if (!hold) {
			const e = eventAt(ev.offsetX, ev.offsetY);
			canvas.style.cursor = e >= 0 ? 'pointer' : ev.offsetY < AXIS ? 'crosshair' : 'grab';
			if (e >= 0 && selected < 0) tell(e);
			return;
		}
		hold.moved = hold.moved || Math.abs(ev.offsetX - hold.x) + Math.abs(ev.offsetY - hold.y) > 4;
		if (!hold.moved) return;
		if (hold.part) {
			draw();
			c.fillStyle = ink.accent;
			c.globalAlpha = 0.25;
			c.fillRect(Math.min(hold.x, ev.offsetX), 0, Math.abs(ev.offsetX - hold.x), height);
			c.globalAlpha = 1;
		} else {
			const by = (hold.x - ev.offsetX) / (width - LEFT) * (hold.to - hold.from);
			set(hold.from + by, hold.to + by);
			box.scrollTop = hold.top + hold.y - ev.offsetY;
		}
	};
	canvas.onpointerup = (ev) => {
		const h = hold;
		hold = null;
		if (!h) return;
		if (!h.moved) select(eventAt(ev.offsetX, ev.offsetY));
		else if (h.part) set(time(Math.min(h.x, ev.offsetX)), time(Math.max(h.x, ev.offsetX)));
	};
	canvas.ondblclick = (ev) => {
		const e = eventAt(ev.offsetX, ev.offsetY);
		if (e >= 0) set(d.start[e] - (d.end[e] - d.start[e]) * 0.2, d.end[e] + (d.end[e] - d.start[e]) * 0.2);
	};
	let brush = null;
	const stripTime = (px) => Math.max(0, (px - LEFT) / (strip.clientWidth - LEFT)) * d.span;
	strip.onpointerdown = (ev) => {
		strip.setPointerCapture(ev.pointerId);
		brush = ev.offsetX;
	};
	strip.onpointermove = (ev) => {
		if (brush !== null && Math.abs(ev.offsetX - brush) > 3) set(stripTime(Math.min(brush, ev.offsetX)), stripTime(Math.max(brush, ev.offsetX)));
	};
	strip.onpointerup = (ev) => {
		if (brush !== null && Math.abs(ev.offsetX - brush) <= 3) {
			const half = (to - from) / 2, t = stripTime(ev.offsetX);
			set(t - half, t + half);
		}
		brush = null;
	};

	show('timeline');
	look();
	fit();
	new ResizeObserver(() => {
		if (box.clientWidth === width) return;
		fit(); /* clears what is drawn */
		draw();
	}).observe(box.parentElement);
	dark.addEventListener('change', () => { look(); again(); });
	set(0, d.span);
	draw();
	return { search, chosen, set, view: () => [from, to], marked: () => match, data: d, name, label };
}

/* ---- memory ---- */

const rankColour = (n) => 'hsl(' + (210 + 67 * n) % 360 + ' 60% 52%)';
function drawCurves(d, ink, from, to, left) {
	const canvas = $('curves');
	if (!d.memory) return;
	if ($('memory').hidden) show('memory');
	const scale = devicePixelRatio || 1, w = canvas.clientWidth, h = 150, c = canvas.getContext('2d');
	canvas.width = Math.round(w * scale);
	canvas.height = Math.round(h * scale);
	c.setTransform(scale, 0, 0, scale, 0, 0);
	const most = d.m.bytes.reduce((a, b) => Math.max(a, b), 1), y = (b) => h - 4 - b / most * (h - 22);
	const x = (t) => left + (t - from) / (to - from) * (w - left);
	c.font = '11px system-ui, sans-serif';
	for (let i = 0; i <= 4; i++) {
		c.fillStyle = ink.line;
		c.fillRect(left, Math.round(y(most * i / 4)), w - left, 1);
		c.fillStyle = ink.quiet;
		c.fillText(size(Math.round(most * i / 4)), left - 76, y(most * i / 4) + 3);
	}
	c.beginPath();
	c.rect(left, 0, w - left, h);
	c.clip();
	for (let i = 0, n = 0; i < d.memory; n++) {
		const rank = d.m.rank[i];
		c.strokeStyle = rankColour(n);
		c.beginPath();
		let last = null;
		for (; i < d.memory && d.m.rank[i] === rank; i++) {
			if (last !== null) c.lineTo(x(d.m.at[i]), y(last));
			c.lineTo(x(d.m.at[i]), y(last = d.m.bytes[i]));
		}
		c.stroke();
	}
}
function peaks() {
	for (const [i, m] of (report.memory || []).slice(0, 16).entries()) {
		const e = el('span'), b = el('i');
		b.style.background = rankColour(i);
		e.append(b, 'rank ' + m.rank + ' at most ' + size(m.peak_bytes) + (m.estimated === 'yes' ? ' (estimated)' : ''));
		$('peaks').append(e);
	}
	if ((report.memory || []).length) show('memory');
}

/* ---- everything ---- */

async function main() {
	const begin = performance.now();
	if (report.schema === 'paceline.replay-difference/1') return difference();
	answer();
	verdict();
	whatIf();
	ranks();
	const d = await unpack();
	if (d && d.events) pic = timeline(d);
	else if (d) $('answer').textContent += ' There are no operations to draw.';
	peaks();
	tables();
	if (!d || !d.memory) $('curves').hidden = true;
	window.paceline = pic; /* for tests */
	document.documentElement.dataset.ready = String(Math.round(performance.now() - begin));
}
main().catch((e) => { $('answer').textContent = 'This page cannot be shown: ' + e.message; });
