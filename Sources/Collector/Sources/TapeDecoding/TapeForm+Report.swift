/// The members of `StallReport` and of its parts. What is missing here makes reports with it slower to accept, but not accepted wrongly.
extension TapeForm {
    static let report = TapeForm(
        .list("aliases", .fingerprint),
        .optional("busy", .object(busy)),
        .required("cause", .object(cause)),
        .optional("culprit", .object(culprit)),
        .required("detected_at", .moment),
        .optional("duration_max_ns", .whole),
        .optional("duration_min_ns", .whole),
        .required("duration_ns", .whole),
        .optional("ended_at", .moment),
        .optional("excluded_ns", .whole),
        .required("fingerprint", .fingerprint),
        .required("host", .object(host)),
        .required("id", .id),
        .required("kind", .text),
        .list("labels", .text),
        .required("metadata", .texts),
        .list("modules", .object(module), isRequired: true),
        .required("monitor", .object(cost)),
        .optional("pool", .object(pool)),
        .required("process", .object(process)),
        .optional("process_end", .object(processEnd)),
        .optional("provisional", .truth),
        .optional("repeats", .object(repeats)),
        .required("rule", .object(rule)),
        .optional("run", .id),
        .required("schema", .text),
        .optional("service", .object(service)),
        .required("severity", .text),
        .list("stacks", .object(stack), isRequired: true),
        .required("started_at", .moment),
        .required("state", .text),
        .required("suppressed", .whole),
        .required("thread", .object(thread)),
        .optional("trace", .object(trace)),
        .optional("victims", .object(victims)),
        .required("watched", .object(watched)),
        .optional("watcher", .object(process))
    )

    // MARK: Where it was

    private static let host = TapeForm(
        .optional("boot_id", .text),
        .optional("cpus", .whole),
        .optional("kernel", .text),
        .required("name", .text)
    )
    private static let service = TapeForm(
        .optional("instance", .text),
        .required("name", .text),
        .optional("version", .text)
    )
    private static let process = TapeForm(
        .optional("build_id", .text),
        .optional("executable", .text),
        .required("pid", .int32),
        .optional("pid_namespace", .natural),
        .optional("start_ticks", .natural),
        .optional("started_at", .moment)
    )
    private static let processEnd = TapeForm(
        .required("cause", .text),
        .optional("exit_status", .int32),
        .optional("last_seen_at", .moment),
        .required("summary", .text)
    )
    private static let watched = TapeForm(
        .optional("activity", .text),
        .required("label", .text),
        .optional("mode", .text),
        .optional("turn", .natural),
        .optional("turn_durations", .object(turnDurations)),
        .required("type", .text)
    )
    private static let turnDurations = TapeForm(
        .required("count", .natural),
        .required("max_ns", .whole),
        .required("p50_ns", .whole),
        .required("p99_ns", .whole)
    )
    private static let thread = TapeForm(
        .required("id", .int32),
        .optional("name", .text),
        .optional("state", .text)
    )
    private static let trace = TapeForm(.optional("span_id", .text), .required("trace_id", .text))

    // MARK: What it was

    private static let rule = TapeForm(
        .required("name", .text),
        .required("tick_ns", .whole),
        .required("ticks", .whole),
        .optional("turns", .whole)
    )
    private static let busy = TapeForm(
        .optional("callouts", .natural),
        .required("longest_ns", .whole),
        .required("total_ns", .whole),
        .required("turns", .whole)
    )
    private static let repeats = TapeForm(
        .required("count", .whole),
        .required("first_at", .moment),
        .required("last_at", .moment),
        .required("longest_ns", .whole),
        .optional("report", .id),
        .required("total_ns", .whole)
    )
    private static let victims = TapeForm(
        .required("clients", .whole),
        .required("sockets", .whole),
        .required("unaccepted", .whole),
        .required("unread", .whole),
        .required("unread_bytes", .whole)
    )
    private static let pool = TapeForm(
        .optional("at_culprit", .whole),
        .required("running", .whole),
        .optional("waiting", .natural),
        .required("width", .whole),
        .list("workers", .object(worker), isRequired: true)
    )
    private static let worker = TapeForm(
        .optional("error", .text),
        .optional("lock", .object(lock)),
        .optional("stack", .whole),
        .required("standing_ns", .whole),
        .optional("task", .natural),
        .required("thread", .object(thread)),
        .required("verdict", .text)
    )
    private static let cost = TapeForm(
        .optional("budget", .text),
        .required("copied_bytes", .whole),
        .required("held_ns", .whole),
        .optional("reporter_cpu_ns", .whole),
        .optional("symbolication_note", .text),
        .required("symbolication_ns", .whole),
        .required("unwind_ns", .whole),
        .optional("watchdog_cpu_ns", .whole)
    )

    // MARK: Why

    private static let cause = TapeForm(
        .list("chain", .object(lockWait)),
        .list("cycle", .object(lockWait)),
        .optional("evidence", .object(evidence)),
        .optional("lock", .object(lock)),
        .required("summary", .text),
        .optional("system_call", .object(systemCall)),
        .required("verdict", .text)
    )
    private static let evidence = TapeForm(
        .optional("block_io_ns", .whole),
        .optional("cpu_ns", .whole),
        .optional("major_faults", .whole),
        .optional("processors", .object(processors)),
        .optional("run_delay_ns", .whole),
        .optional("sampled", .object(sampled)),
        .optional("system_ns", .whole),
        .optional("user_ns", .whole),
        .optional("wait_channel", .text),
        .optional("window_ns", .whole)
    )
    private static let processors = TapeForm(
        .optional("allowed", .whole),
        .optional("cgroup_pressure_ns", .whole),
        .optional("count", .whole),
        .optional("load", .fraction),
        .optional("periods", .whole),
        .optional("quota_percent", .fraction),
        .optional("runnable", .whole),
        .optional("steal_ns", .whole),
        .optional("system_pressure_ns", .whole),
        .optional("throttled_ns", .whole),
        .optional("throttled_periods", .whole)
    )
    private static let sampled = TapeForm(
        .required("calling", .whole),
        .required("faulting", .whole),
        .required("running", .whole),
        .required("samples", .whole)
    )
    private static let systemCall = TapeForm(
        .list("arguments", .address, isRequired: true),
        .list("decoded", .object(argument)),
        .list("descriptors", .object(descriptor)),
        .optional("name", .text),
        .required("number", .whole)
    )
    private static let argument = TapeForm(.required("name", .text), .required("value", .text))
    private static let descriptor = TapeForm(
        .optional("deleted", .truth),
        .optional("file_system", .text),
        .optional("holder", .object(processName)),
        .required("kind", .text),
        .optional("note", .text),
        .required("number", .int32),
        .optional("remote", .truth),
        .optional("socket", .object(socket)),
        .optional("target", .text)
    )
    private static let processName = TapeForm(.optional("name", .text), .required("pid", .int32))
    private static let socket = TapeForm(
        .required("family", .text),
        .optional("local", .text),
        .optional("peer", .text),
        .optional("peer_process", .object(processName)),
        .optional("retransmits", .whole),
        .optional("silent_ns", .whole),
        .optional("state", .text),
        .optional("unacknowledged", .whole)
    )
    private static let lock = TapeForm(
        .optional("abandoned_by", .int32),
        .required("address", .address),
        .required("kind", .text),
        .optional("known_by", .text),
        .optional("label", .text),
        .optional("owner", .object(thread)),
        .optional("owner_call", .object(systemCall)),
        .required("timed", .truth)
    )
    private static let lockWait = TapeForm(.required("lock", .object(lock)), .required("thread", .object(thread)))

    // MARK: Where in the code

    private static let culprit = TapeForm(
        .optional("awaiting", .truth),
        .optional("file", .text),
        .required("frame", .whole),
        .optional("function", .text),
        .optional("line", .whole),
        .optional("module", .text),
        .required("stack", .whole),
        .optional("symbol", .text)
    )
    private static let module = TapeForm(
        .optional("build_id", .text),
        .required("load_base", .address),
        .required("path", .text)
    )
    private static let stack = TapeForm(
        .optional("async", .object(asyncCallers)),
        .required("captured_at", .moment),
        .required("complete", .truth),
        .required("count", .whole),
        .optional("error", .text),
        .list("frames", .object(frame), isRequired: true),
        .optional("left_out", .object(leftOut)),
        .optional("loop", .whole),
        .optional("method", .text),
        .required("role", .text),
        .optional("sampled_ns", .whole),
        .required("thread", .object(thread)),
        .list("threads", .object(thread))
    )
    private static let leftOut = TapeForm(.required("after", .whole), .required("count", .whole))
    private static let asyncCallers = TapeForm(
        .required("ends", .text),
        .list("frames", .object(frame), isRequired: true),
        .required("from", .whole),
        .optional("task", .natural)
    )
    private static let frame = TapeForm(
        .required("address", .address),
        .optional("column", .whole),
        .optional("file", .text),
        .optional("found_by", .text),
        .optional("function", .text),
        .optional("function_offset", .address),
        .optional("kind", .text),
        .optional("line", .whole),
        .optional("module", .whole),
        .optional("offset", .address),
        .required("own", .truth),
        .optional("symbol", .text)
    )
}
