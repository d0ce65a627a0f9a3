-- Values of every size, records longer than a page, a tree of three levels, a column that was added, and rows
-- that were removed. tests/fuzz/corpus/nsys/wide.sqlite: sqlite3 wide.sqlite <tests/cli/nsys_wide.sql
PRAGMA page_size = 512;
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER);
INSERT INTO StringIds VALUES (1, 'a name');
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 900)
INSERT INTO NVTX_EVENTS SELECT CASE i % 8 WHEN 0 THEN i WHEN 1 THEN i * 100000 WHEN 2 THEN i * 10000000
	WHEN 3 THEN i * 10000000000 WHEN 4 THEN i * 10000000000000 WHEN 5 THEN -i WHEN 6 THEN -i * 1000000000000
	ELSE 9223372036854775807 - i END, CASE i % 7 WHEN 0 THEN NULL WHEN 1 THEN i + 0.5 WHEN 2 THEN 'x' || i
	WHEN 3 THEN x'3132' ELSE i * i END, 59, CASE WHEN i % 300 = 7 THEN printf('%.*c', i * 3, 'y') ELSE 'r' || i % 5 END,
	(100 << 24) + 100 FROM n;
ALTER TABLE NVTX_EVENTS ADD COLUMN textId INTEGER;
INSERT INTO NVTX_EVENTS VALUES (5, 6, 59, NULL, (100 << 24) + 100, 1);
DELETE FROM NVTX_EVENTS WHERE start BETWEEN 100 AND 200;
