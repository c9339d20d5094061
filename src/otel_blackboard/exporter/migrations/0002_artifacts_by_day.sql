-- Artifacts lie in one partition a day, not in one for each kind of a day: an insert of three kinds made three parts, and
-- every read of a run went through all of them (docs/benchmarks.md).

-- What a start that was cut short left: a part of the copy, or the old table, in which another worker may have written since.
CREATE TABLE IF NOT EXISTS artifacts_by_day AS artifacts
;

INSERT INTO artifacts SELECT * FROM artifacts_by_day
;

DROP TABLE artifacts_by_day
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
