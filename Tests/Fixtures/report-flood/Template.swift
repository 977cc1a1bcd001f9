import StallReports

/// The report of a fault as JSON, cut where its stalls differ: a million are assembled, not encoded.
struct Template {
    private enum Slot: CaseIterable {
        case id, run, host, service, release, startedAt, detectedAt, endedAt, durationNs

        /// What the template has at this place.
        var mark: String {
            switch self {
            case .id: "\(Template.id)"
            case .run: "\(Template.run)"
            case .host: "host-of-the-template"
            case .service: "service-of-the-template"
            case .release: "release-of-the-template"
            case .startedAt: "\(Template.start)"
            case .detectedAt: "\(Template.start.advanced(byNanoseconds: 1))"
            case .endedAt: "\(Template.start.advanced(byNanoseconds: 2))"
            case .durationNs: "1234567890123"
            }
        }
    }

    private static let id = ULID(rawValue: 1 << 100)
    private static let run = ULID(rawValue: 1 << 101)
    private static let start = Timestamp(seconds: 1_700_000_000)

    /// The text before each slot.
    private let pieces: [(text: [UInt8], slot: Slot?)]

    init(fault: Int, _ random: inout Random) {
        let json = String(decoding: (try? Self.report(fault, &random).json()) ?? [], as: UTF8.self)
        var (rest, pieces): (Substring, [(text: [UInt8], slot: Slot?)]) = (json[...], [])
        while let next = Slot.allCases.compactMap({ slot in rest.firstRange(of: slot.mark).map { (slot, $0) } })
            .min(by: { $0.1.lowerBound < $1.1.lowerBound })
        {
            pieces.append((Array(rest[..<next.1.lowerBound].utf8), next.0))
            rest = rest[next.1.upperBound...]
        }
        self.pieces = pieces + [(Array(rest.utf8), nil)]
    }

    func bytes(
        id: ULID,
        run: ULID,
        host: String,
        service: String,
        release: String,
        startedAt: Timestamp,
        durationNs: Int64
    ) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(8192)
        for (text, slot) in pieces {
            bytes += text
            switch slot {
            case .id: bytes += "\(id)".utf8
            case .run: bytes += "\(run)".utf8
            case .host: bytes += host.utf8
            case .service: bytes += service.utf8
            case .release: bytes += release.utf8
            case .startedAt: bytes += "\(startedAt)".utf8
            case .detectedAt: bytes += "\(startedAt.advanced(byNanoseconds: 250_000_000))".utf8
            case .endedAt: bytes += "\(startedAt.advanced(byNanoseconds: durationNs))".utf8
            case .durationNs: bytes += "\(durationNs)".utf8
            case nil: break
            }
        }
        return bytes
    }

    private static func report(_ fault: Int, _ random: inout Random) -> StallReport {
        let modules = [
            StallReport.Module(path: "/srv/app/bin/app", buildID: "aa11bb22cc33dd44", loadBase: 0x5555_5555_4000),
            StallReport.Module(
                path: "/usr/lib/x86_64-linux-gnu/libc.so.6",
                buildID: "cc33dd44",
                loadBase: 0x7fff_f7c0_0000
            ),
        ]
        let verdict: Verdict = [.waiting, .onCPU, .diskWait, .starved][fault % 4]
        let frames = frames(fault, depth: 8 + Int(random.next() % 12))
        var host = HostIdentity.current()
        host.name = Slot.host.mark
        let thread = StallReport.Thread(id: 4711, name: "main", state: verdict == .onCPU ? "R" : "S")
        let culprit = StallReport.Culprit(
            function: "Module\(fault % 17).Service\(fault).handle(request:)",
            symbol: "$s8Module\(fault % 17)7Service\(fault)C6handle7requestyAA7RequestV_tF",
            module: "app",
            file: "/build/app/Sources/Module\(fault % 17)/Service\(fault).swift",
            line: 17 + fault,
            stack: 0,
            frame: 1
        )
        return StallReport(
            id: id,
            kind: .blocked,
            state: .recovered,
            severity: fault % 9 == 0 ? .error : .warning,
            startedAt: start,
            detectedAt: start.advanced(byNanoseconds: 1),
            endedAt: start.advanced(byNanoseconds: 2),
            durationNs: 1_234_567_890_123,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: host,
            service: .init(name: Slot.service.mark, version: Slot.release.mark, instance: "a"),
            process: .current(),
            run: run,
            watched: .init(label: fault % 5 == 0 ? "loop-\(fault % 3)" : "main", mode: "default", turn: 1234),
            thread: thread,
            cause: .init(
                verdict: verdict,
                summary: "The thread waited in read(2) on descriptor \(fault % 40 + 3).",
                evidence: .init(cpuNs: 1, runDelayNs: Int64(fault), windowNs: 1000)
            ),
            stacks: [.init(thread: thread, capturedAt: start, method: .quiet, frames: frames)],
            culprit: culprit,
            modules: modules,
            fingerprint: .make(kind: .blocked, frames: frames, modules: modules),
            suppressed: 0,
            monitor: .init(heldNs: 0, unwindNs: 81_000, symbolicationNs: 9_000, copiedBytes: 4096)
        )
    }

    private static func frames(_ fault: Int, depth: Int) -> [StallReport.Frame] {
        let name = "Module\(fault % 17).Service\(fault)"
        return (0..<depth).map { index -> StallReport.Frame in
            let isCall = index == 0
            let function = isCall ? "read" : "\(name).step\(index)(of:)"
            let symbol = isCall ? "read" : "$s\(name)5step\(index)2ofyAA7RequestV_tF"
            return StallReport.Frame(
                address: 0x5555_5555_6010,
                module: isCall ? 1 : 0,
                offset: 0x2010,
                function: function,
                symbol: symbol,
                functionOffset: 0x10,
                own: (1..<4).contains(index),
                foundBy: isCall ? .programCounter : .unwindTable
            )
        }
    }
}
