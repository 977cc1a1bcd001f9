#if Command
    import StallReports

    /// The named facts of a stall, in the order in which one asks for them.
    struct StallFacts {
        let report: StallReport

        var rows: [(name: String, value: StyledText)] {
            let rows: [(String, StyledText?)] = [
                ("culprit", culprit), ("verdict", verdict), ("evidence", evidence), ("lasted", duration),
                ("started", "\(report.startedAt)"), ("detected", detected), ("watched", watched), ("thread", thread),
                ("service", service), ("process", process), ("host", host), ("trace", trace),
                ("fingerprint", fingerprint),
                ("metadata", metadata), ("run", report.run.map { "\($0)" }),
            ]
            return rows.compactMap { name, value in value.map { (name, $0) } }
        }

        private var culprit: StyledText {
            let module = report.culprit?.module.map { " (\($0))" } ?? ""
            let place = report.culprit?.place.map { " at \($0)" } ?? ""
            return "\(report.culpritText, .bold)\(place)\(module)"
        }

        private var verdict: StyledText {
            guard let call = report.cause.systemCall else { return "\(report.cause.verdict)" }
            let arguments = call.arguments.prefix(6).map(\.description).joined(separator: ", ")
            return "\(report.cause.verdict) in system call \(call.name ?? "number \(call.number)")(\(arguments))"
        }

        private var evidence: StyledText? {
            guard let evidence = report.cause.evidence else { return nil }
            let times = [("on a processor", evidence.cpuNs), ("waiting for one", evidence.runDelayNs)]
                .compactMap { name, value in value.map { "\(DurationText(nanoseconds: $0).short) \(name)" } }
            var parts = times
            if let window = evidence.windowNs, !times.isEmpty {
                parts[parts.count - 1] += ", in a window of \(DurationText(nanoseconds: window).short)"
            }
            parts += evidence.majorFaults.map { ["\($0) major faults"] } ?? []
            parts += evidence.waitChannel.map { ["sleeping in the kernel's \($0)"] } ?? []
            return parts.isEmpty ? nil : "\(parts.joined(separator: ", "))"
        }

        private var duration: StyledText {
            let length = DurationText(nanoseconds: report.durationNs).description
            let range = [("at least", report.durationMinNs), ("at most", report.durationMaxNs)]
                .compactMap { word, value in value.map { "\(word) \(DurationText(nanoseconds: $0).short)" } }
            let end: String =
                switch report.state {
                case .ongoing: "so far"
                case .terminated: "until the process died"
                case .abandoned: "until the monitor stopped looking"
                default: ""
                }
            let excluded = report.excludedNs.map {
                ["without \(DurationText(nanoseconds: $0).short) that do not count"]
            }
            let notes = (end.isEmpty ? [] : [end]) + range + (excluded ?? [])
            return notes.isEmpty ? "\(length)" : "\(length) (\(notes.joined(separator: ", ")))"
        }

        private var detected: StyledText {
            let after = DurationText(nanoseconds: report.detectedAt.nanoseconds(since: report.startedAt)).short
            let tick = DurationText(nanoseconds: report.rule.tickNs)
            return "\(after) later, by the rule \(report.rule.name): \(report.rule.ticks) ticks of \(tick)"
        }

        private var watched: StyledText {
            let watched = report.watched
            let details = [
                watched.mode.map { "mode \($0)" }, watched.activity.map { "last seen at \($0)" },
                watched.turn.map { "turn \($0)" },
            ].compactMap { $0 }
            return "\(watched.label, .bold) (\(([watched.type.rawValue] + details).joined(separator: ", ")))"
        }

        private var thread: StyledText {
            let state = report.thread.state.map { ", state \($0)" } ?? ""
            return "\(report.thread.numberAndName)\(state)"
        }

        private var service: StyledText? {
            report.service.map { service in
                "\(([service.name] + [service.version, service.instance].compactMap { $0 }).joined(separator: " "))"
            }
        }

        private var process: StyledText {
            let started = report.process.startedAt.map { ", started \($0.toSeconds)" } ?? ""
            return "\(report.process.pid)\(report.process.executable.map { " " + $0 } ?? "")\(started)"
        }

        private var host: StyledText {
            let host = report.host
            let details = [host.kernel.map { "kernel \($0)" }, host.cpus.map { "\($0) processors" }].compactMap { $0 }
            return details.isEmpty ? "\(host.name)" : "\(host.name) (\(details.joined(separator: ", ")))"
        }

        private var trace: StyledText? {
            report.trace.map { "\($0.traceID)\($0.spanID.map { " span \($0)" } ?? "")" }
        }

        private var fingerprint: StyledText {
            let before = report.suppressed > 0 ? ", \(report.suppressed) more like it were counted only" : ""
            return "\(report.fingerprint)\(before)"
        }

        private var metadata: StyledText? {
            let pairs = report.metadata.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
            return pairs.isEmpty ? nil : "\(pairs.joined(separator: " "))"
        }
    }
#endif
