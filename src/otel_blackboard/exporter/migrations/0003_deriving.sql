-- Large traces with spans that are stored and not derived yet. Whoever writes such spans marks the trace before it
-- acknowledges; whoever derives it takes the mark back as of the time at which it saw the spans, so that a mark made
-- since stays. Times are the server's. Start-up and other workers finish what a worker left behind.

CREATE TABLE IF NOT EXISTS deriving
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
