-- Model calls that may stand in a trace of their own beside the same call in another trace, by what both have in common
-- (exporter/satellites.py). The index finds the other call among all spans.

CREATE TABLE IF NOT EXISTS satellites
(
    organization_id LowCardinality(String),
    project_id      LowCardinality(String),
    call            String,
    trace_id        String
)
ENGINE = ReplacingMergeTree
ORDER BY (organization_id, project_id, call, trace_id)
;

ALTER TABLE spans ADD INDEX IF NOT EXISTS response_id response_id TYPE bloom_filter GRANULARITY 4
;
