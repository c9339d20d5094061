-- Which reader made the light columns of a row, so that a better one can be applied (`otel-blackboard rederive`). It writes the
-- row again under its old version: of equal versions the last one written stands. A search looks at all rows of an artifact
-- and tells them apart by when they were read.

ALTER TABLE spans ADD COLUMN IF NOT EXISTS reader_version UInt32 DEFAULT 1 AFTER bodies
;

ALTER TABLE logs ADD COLUMN IF NOT EXISTS reader_version UInt32 DEFAULT 1 AFTER bodies
;

-- What log records say about their spans: evaluations.
ALTER TABLE logs ADD COLUMN IF NOT EXISTS labels String AFTER has_output
;

ALTER TABLE artifacts ADD COLUMN IF NOT EXISTS read_at_ns UInt64 AFTER version
;
