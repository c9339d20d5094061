-- Traces whose rows `otel-blackboard rederive` reads anew, until their runs are derived: where it was stopped in between, no
-- row tells that they are not. A mark that no service takes back, unlike those of `deriving`: it may derive the trace, too,
-- while not all of its rows are read. Times are the server's.

CREATE TABLE IF NOT EXISTS rederiving
(
    organization_id LowCardinality(String),
    project_id      LowCardinality(String),
    trace_id        String,
    version         UInt64 DEFAULT toUnixTimestamp64Nano(now64(9)),
    is_deleted      UInt8
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (organization_id, project_id, trace_id)
;
