-- Artifacts lie in one partition a day, not in one for each kind of a day: an insert of three kinds made three parts, and
-- every read of a run went through all of them (docs/benchmarks.md).

DROP TABLE IF EXISTS artifacts_by_day -- of a start that was cut short: a part of the copy, or what is copied already
;

CREATE TABLE artifacts_by_day AS artifacts
ENGINE = ReplacingMergeTree(version)
PARTITION BY stored
ORDER BY (organization_id, project_id, trace_id, span_id, kind, source)
SETTINGS index_granularity = 1024
;

INSERT INTO artifacts_by_day SELECT * FROM artifacts
;

EXCHANGE TABLES artifacts_by_day AND artifacts
;

-- What another worker wrote to the old table meanwhile; rows that are there already are one row.
INSERT INTO artifacts SELECT * FROM artifacts_by_day
;

DROP TABLE artifacts_by_day
;
