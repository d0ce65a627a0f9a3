# The page of replay -O html in headless Chromium, where that is: it opens, zooms, searches and shows what changes
# would save, without a request to a network. runner: alone, threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

not_under any "the page is the same with and without a sanitizer"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ] || ! command -v python3 >/dev/null; then
	skip "the page in a browser" "no Chromium or no python3"
	done_testing
	exit
fi
"$GEN/ggen" --ranks=8 --ops=1000000 --steps=5 -o "$TMP/big.graph"
"$BIN/replay" -O html -o "$TMP/big.html" "$TMP/big.graph"

# Chromium's protocol over a pipe: JSON that ends with a zero byte.
cat >"$TMP/browse.py" <<'END'
import json, os, subprocess, sys, time

browser, page, other, sample, profile = sys.argv[1:]
to_r, to_w = os.pipe()
from_r, from_w = os.pipe()

def ends():
    os.dup2(to_r, 13)
    os.dup2(from_w, 14)
    os.dup2(13, 3)
    os.dup2(14, 4)

child = subprocess.Popen([browser, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
                          "--window-size=1400,1000", "--user-data-dir=" + profile, "about:blank"], preexec_fn=ends, close_fds=False,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.close(to_r)
os.close(from_w)
pending, number, requests, errors, session = b"", 0, [], [], None

def send(method, **params):
    global pending, number
    number += 1
    message = {"id": number, "method": method, "params": params}
    if session:
        message["sessionId"] = session
    os.write(to_w, json.dumps(message).encode() + b"\0")
    while True:
        while b"\0" not in pending:
            got = os.read(from_r, 1 << 16)
            assert got, "the browser ended"
            pending += got
        text, pending = pending.split(b"\0", 1)
        answer = json.loads(text)
        if answer.get("method") == "Network.requestWillBeSent":
            requests.append(answer["params"]["request"]["url"])
        if answer.get("method") == "Runtime.exceptionThrown":
            errors.append(answer["params"])
        if answer.get("id") == number:
            assert "error" not in answer, answer
            return answer["result"]

def value(expression):
    result = send("Runtime.evaluate", expression=expression, returnByValue=True)
    assert "exceptionDetails" not in result, result
    return result["result"].get("value")

def until(expression, limit=30):
    begin = time.monotonic()
    while not value(expression):
        assert time.monotonic() - begin < limit, expression
        time.sleep(0.005)
    return time.monotonic() - begin

try:
    target = [t for t in send("Target.getTargets")["targetInfos"] if t["type"] == "page"][0]
    session = send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
    for domain in "Page", "Runtime", "Network":
        send(domain + ".enable")
    begin = time.monotonic()
    send("Page.navigate", url="file://" + page)
    until("document.documentElement && document.documentElement.dataset.ready")
    opened = time.monotonic() - begin
    assert value("paceline.data.events") > 900000
    x, y = value("(r => [r.x + 600, r.y + 80])(document.getElementById('rows').getBoundingClientRect())")
    worst = 0
    for _ in range(10):
        drawn = value("+document.documentElement.dataset.drawn")
        begin = time.monotonic()
        send("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-240)
        until("+document.documentElement.dataset.drawn > %d" % drawn)
        worst = max(worst, time.monotonic() - begin)
    a, b = value("paceline.view()")
    assert b - a < value("paceline.data.span") / 50, "the wheel zooms in"
    value("document.getElementById('rows').focus()")
    send("Input.dispatchKeyEvent", type="keyDown", key="Home")
    assert value("paceline.view()[1] - paceline.view()[0] >= paceline.data.span"), "Home shows everything"
    value("document.querySelector('#buttons button').click()")
    assert "a step less, with 90 % certainty " in value("document.getElementById('effect').textContent")
    marked = value("""[...document.querySelectorAll('#buttons button')].map((b) => {
        b.click();
        const m = paceline.marked();
        b.click();
        return m ? m.reduce((n, i) => n + i, 0) : -1;
    })""")
    assert max(marked) > 0 and 0 not in marked, marked
    value("document.querySelector('#buttons button').click()")
    bar = value("document.querySelector('#causes .parts').getBoundingClientRect().width")
    parts = value("[...document.querySelectorAll('#causes .parts i')].map(i => i.getBoundingClientRect().width)")
    assert parts and abs(sum(parts) - bar) < 2, (parts, bar)
    value("(f => { f.value = 'gemm'; f.oninput(); })(document.getElementById('find'))")
    assert value("document.getElementById('found').textContent").split()[1] == "operations,"
    value("document.getElementById('find').onkeydown({ key: 'Enter' })")
    assert "gemm" in value("document.getElementById('detail').textContent")
    send("Page.navigate", url="file://" + other)
    until("document.documentElement && document.documentElement.dataset.ready")
    waits = value("[...document.querySelectorAll('#waits li')].map(i => i.textContent)")
    assert waits and waits == value("report.waits.map(w => w.text)"), waits
    assert value("getComputedStyle(document.getElementById('waits')).display") != "none"
    rows = value("[...document.querySelectorAll('#verdict ol li')].map(i => i.textContent)")
    assert rows and value("report.computation.text") in rows, rows
    send("Page.navigate", url="file://" + sample)
    until("document.documentElement && document.documentElement.dataset.ready")
    lanes = value("paceline.data.rows.map((r, i) => r[0] + ' ' + paceline.label[i])")
    assert len(set(lanes)) == len(lanes) > 8, lanes
    assert any(" python 75" in lane for lane in lanes), "two threads of a rank that are called python"
    head = value("[...document.querySelectorAll('#tables section:last-child th')].map(i => i.textContent)")
    assert head == ["step", "recorded", "period", "replayed", "error"], head
    for width in 1400, 500:
        send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        sizes = value("[...document.querySelectorAll('#buttons button')].map(i => i.getBoundingClientRect()).map(r => r.width + 'x' + r.height)")
        assert len(sizes) > 3 and len(set(sizes)) == 1, sizes
        assert value("document.documentElement.scrollWidth <= innerWidth"), "the page is as wide as the window"
    legend = value("[...document.querySelectorAll('#legend span')].map(i => i.textContent)")
    assert "critical path" in legend and "begin of a step" in legend, legend
    assert not errors, errors
    assert all(u.startswith("file://") and u.endswith(".html") for u in requests), requests
    print("# opens in %.2f s, zooms in %.2f s" % (opened, worst))
    print(opened, worst)
finally:
    child.kill()
    child.wait()
END
mkdir "$TMP/waits"
awk -v dir="$TMP/waits" -f "$SRC/tests/gen/unrecorded.awk"
"$BIN/replay" -q -O html -o "$TMP/waits.html" "$TMP/waits"
status 0 "a million operations in a browser: zoom, keys, search, changes, waits, no network" \
	python3 "$TMP/browse.py" "$browser" "$TMP/big.html" "$TMP/waits.html" "$SRC/samples/ddp-gloo.html" "$TMP/profile"
grep '^#' "$TMP/out"
# seconds; a machine that does something else needs longer
limit=$(awk '{ print $1 < 1 ? 1 : 10 }' /proc/loadavg 2>/dev/null || echo 10)
case $BUILD in
*-*) skip "... opens and zooms in $limit s" "not a build for speed" ;;
*) check "... opens and zooms in $limit s" awk -v limit="$limit" '!/#/ { exit !($1 < limit && $2 < limit) }' "$TMP/out" ;;
esac
done_testing
