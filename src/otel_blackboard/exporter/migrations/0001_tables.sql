-- The tables of design.md §4. Organization, then project come first in every key; ids are the sorting key; the partition
-- is the day of receipt (of artifacts also the kind, so that lifetimes a kind can be dropped whole), never anything the
-- sender says. Which version wins is decided by content: see processor/reading.py. Statements end with a line ';'.

CREATE TABLE IF NOT EXISTS spans
(
    organization_id       LowCardinality(String),
    project_id            LowCardinality(String),
    trace_id              String,
    span_id               String,
    parent_span_id        String,
    name                  String,
    start_ns              UInt64,
    end_ns                UInt64,
    status                LowCardinality(String),
    role                  LowCardinality(String),
    dialect               LowCardinality(String),
    scope                 LowCardinality(String),
    operation             LowCardinality(String),
    is_agent              Bool,
    is_node               Bool,
    run_id                String,
    run_name              String,
    step_id               LowCardinality(String),
    step_name             LowCardinality(String),
    agent_id              LowCardinality(String),
    agent_instance        String,
    use_case_id           LowCardinality(String),
    conversation_id       String,
    user_id               String,
    mode                  LowCardinality(String),
    pass_seq              Nullable(UInt32),
    attempt               Nullable(UInt32),
    call_seq              Nullable(UInt32),
    loop_iteration        Nullable(UInt32),
    output_retry          Nullable(UInt32),
    retry_count           Nullable(UInt32),
    provider              LowCardinality(String),
    request_model         LowCardinality(String),
    response_model        LowCardinality(String),
    response_id           String,
    join_key              String,
    linked_traces         String,
    tool_name             LowCardinality(String),
    tool_call_id          String,
    tool_class            LowCardinality(String),
    arguments_sha256      String,
    requested             String,
    input_tokens          Nullable(UInt64),
    output_tokens         Nullable(UInt64),
    cached_input_tokens   Nullable(UInt64),
    cache_write_tokens    Nullable(UInt64),
    reasoning_tokens      Nullable(UInt64),
    cost_usd              Nullable(Decimal(38, 12)),
    cost_source           LowCardinality(String),
    has_input             Bool,
    has_output            Bool,
    error                 String,
    labels                String,
    version               UInt256,
    stored_at_ns          UInt64,
    kind                  UInt8,
    status_code           UInt8,
    status_message        String,
    trace_state           String,
    flags                 UInt32,
    sent_end_ns           UInt64,
    attributes            String,
    events                String,
    links                 String,
    dropped               String,
    resource              String,
    instrumentation_scope String,
    bodies                String,
    stored                Date,
    start_time            DateTime64(9, 'UTC'),
    INDEX start_time_range start_time TYPE minmax
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY stored
ORDER BY (organization_id, project_id, trace_id, span_id)
SETTINGS index_granularity = 1024
;

CREATE TABLE IF NOT EXISTS logs
(
    organization_id       LowCardinality(String),
    project_id            LowCardinality(String),
    trace_id              String,
    span_id               String,
    record_sha256         String,
    time_ns               UInt64,
    event_name            LowCardinality(String),
    severity_text         LowCardinality(String),
    operation             LowCardinality(String),
    agent_id              LowCardinality(String),
    conversation_id       String,
    user_id               String,
    provider              LowCardinality(String),
    request_model         LowCardinality(String),
    response_model        LowCardinality(String),
    response_id           String,
    requested             String,
    input_tokens          Nullable(UInt64),
    output_tokens         Nullable(UInt64),
    cached_input_tokens   Nullable(UInt64),
    cache_write_tokens    Nullable(UInt64),
    reasoning_tokens      Nullable(UInt64),
    has_input             Bool,
    has_output            Bool,
    version               UInt256,
    stored_at_ns          UInt64,
    observed_time_ns      UInt64,
    severity_number       UInt8,
    flags                 UInt32,
    body                  String,
    attributes            String,
    dropped               String,
    resource              String,
    instrumentation_scope String,
    bodies                String,
    stored                Date,
    start_time            DateTime64(9, 'UTC'),
    INDEX start_time_range start_time TYPE minmax
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY stored
ORDER BY (organization_id, project_id, trace_id, record_sha256)
SETTINGS index_granularity = 1024
;

CREATE TABLE IF NOT EXISTS artifacts
(
    organization_id  LowCardinality(String),
    project_id       LowCardinality(String),
    trace_id         String,
    span_id          String,
    kind             LowCardinality(String),
    source           String,
    artifact_id      String,
    origin           LowCardinality(String),
    status           LowCardinality(String),
    exact            Bool,
    label            String,
    summary          String,
    arguments        String,
    arguments_sha256 String,
    content_type     LowCardinality(String),
    characters       UInt64,
    truncated        String,
    bodies           String,
    search_text      String,
    time_ns          UInt64,
    version          UInt256,
    stored           Date,
    start_time       DateTime64(9, 'UTC'),
    INDEX start_time_range start_time TYPE minmax,
    INDEX words search_text TYPE text(tokenizer = 'splitByNonAlpha')
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (stored, kind)
ORDER BY (organization_id, project_id, trace_id, span_id, kind, source)
SETTINGS index_granularity = 1024
;

CREATE TABLE IF NOT EXISTS resolved
(
    organization_id     LowCardinality(String),
    project_id          LowCardinality(String),
    trace_id            String,
    span_id             String,
    part                String,
    run_id              String,
    parent_span_id      String,
    role                LowCardinality(String),
    name                String,
    start_ns            UInt64,
    end_ns              UInt64,
    status              LowCardinality(String),
    step_span_id        String,
    step_id             LowCardinality(String),
    step_name           LowCardinality(String),
    agent_id            LowCardinality(String),
    use_case_id         LowCardinality(String),
    pass_seq            Nullable(UInt32),
    attempt             Nullable(UInt32),
    call_seq            Nullable(UInt32),
    call_span_id        String,
    requested_by        String,
    requested_index     UInt64,
    tool_call_id        String,
    tool_name           LowCardinality(String),
    tool_class          LowCardinality(String),
    operation           LowCardinality(String),
    provider            LowCardinality(String),
    model               LowCardinality(String),
    stands              Bool,
    billed              Bool,
    is_aggregate        Bool,
    input_tokens        Nullable(UInt64),
    output_tokens       Nullable(UInt64),
    cached_input_tokens Nullable(UInt64),
    cache_write_tokens  Nullable(UInt64),
    reasoning_tokens    Nullable(UInt64),
    cost_usd            Nullable(Decimal(38, 12)),
    cost_source         LowCardinality(String),
    loop_iteration      Nullable(UInt32),
    output_retry        Nullable(UInt32),
    retry_count         Nullable(UInt32),
    requested           String,
    error               String,
    labels              String,
    version             UInt64,
    reader_version      UInt32,
    stored              Date,
    start_time          DateTime64(9, 'UTC'),
    is_deleted          UInt8,
    INDEX start_time_range start_time TYPE minmax
)
ENGINE = ReplacingMergeTree(version, is_deleted)
PARTITION BY stored
ORDER BY (organization_id, project_id, trace_id, span_id)
SETTINGS index_granularity = 1024
;

CREATE TABLE IF NOT EXISTS run_parts
(
    organization_id     LowCardinality(String),
    project_id          LowCardinality(String),
    trace_id            String,
    part                String,
    run_id              String,
    original_run_id     String,
    root_span_id        String,
    name                String,
    is_root             Bool,
    status              LowCardinality(String),
    start_ns            UInt64,
    end_ns              UInt64,
    open_spans          UInt64,
    span_count          UInt64,
    role_spans          UInt64,
    failed_spans        UInt64,
    agents              String,
    counts              String,
    input_tokens        Nullable(UInt64),
    output_tokens       Nullable(UInt64),
    cached_input_tokens Nullable(UInt64),
    cache_write_tokens  Nullable(UInt64),
    reasoning_tokens    Nullable(UInt64),
    cost_usd            Nullable(Decimal(38, 12)),
    calls_succeeded     UInt64,
    calls_with_usage    UInt64,
    calls_without_cost  UInt64,
    conversation_id     String,
    use_case_id         LowCardinality(String),
    user_id             String,
    trigger             LowCardinality(String),
    error               String,
    last_stored_ns      UInt64,
    version             UInt64,
    reader_version      UInt32,
    stored              Date,
    start_time          DateTime64(9, 'UTC'),
    is_deleted          UInt8,
    INDEX start_time_range start_time TYPE minmax,
    INDEX run_of_part run_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX conversation_of_part conversation_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version, is_deleted)
PARTITION BY stored
ORDER BY (organization_id, project_id, trace_id, part)
SETTINGS index_granularity = 1024
;

CREATE TABLE IF NOT EXISTS tombstones
(
    organization_id LowCardinality(String),
    project_id      LowCardinality(String),
    scope           LowCardinality(String),
    id              String,
    made_at_ns      UInt64
)
ENGINE = MergeTree
ORDER BY (organization_id, project_id, scope, id)
;
