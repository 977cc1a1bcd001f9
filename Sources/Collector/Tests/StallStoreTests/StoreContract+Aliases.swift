import StallReading
import StallReports
import StallStore
import Testing

// Faults that have several fingerprints.

extension StoreContract {
    /// A fault that has got names is the same as before.
    func aliases() async throws {
        try await withStore { store in
            let (nameless, other) = (Self.report(function: "code at 0x1"), Self.report(function: "f()"))
            var named = Self.report(function: "named()")
            named.aliases = [nameless.fingerprint]
            #expect(try await store.insert([nameless, named, nameless, other].map { try Self.arrival($0) }) == 3)
            // One that arrives late under its old name.
            #expect(try await store.insert([Self.arrival(Self.report(function: "code at 0x1"))]) == 1)
            let faults = try await store.faults(Self.query(), by: .count, limit: 10).faults
            #expect(faults.map(\.fingerprint) == [named.fingerprint, other.fingerprint])
            #expect(faults.map(\.count) == [3, 1])
            let fault = try await store.fault(nameless.fingerprint, Self.query())
            #expect(fault?.fingerprint == named.fingerprint)
            #expect(fault?.aliases == [nameless.fingerprint])
        }
    }

    /// Each build of a program without names has other fingerprints.
    func manyAliases() async throws {
        try await withStore { store in
            let builds = (0..<300).map { build in
                var named = Self.report(function: "named()")
                named.aliases = [Self.report(function: "code at \(build)").fingerprint]
                return named
            }
            _ = try await store.insert(builds.map { try Self.arrival($0) })
            let late = [0, 299].map { Self.report(function: "code at \($0)") }
            _ = try await store.insert(late.map { try Self.arrival($0) })
            let faults = try await store.faults(Self.query(), by: .total, limit: 10).faults
            #expect(faults.map(\.fingerprint) == [builds[0].fingerprint] && faults.map(\.count) == [302])
            for report in late {
                #expect(try await store.fault(report.fingerprint, Self.query())?.count == 302)
            }
        }
    }

    /// A stripped server's report that was sent before it had names, and again since.
    func amendment() async throws {
        try await withStore { store in
            var nameless = Self.report(function: "code at 0x1")
            nameless.isProvisional = true
            var amended = Self.report(function: "named()")
            (amended.id, amended.aliases) = (nameless.id, [nameless.fingerprint])
            for (report, changes) in [(nameless, 1), (amended, 1), (nameless, 0), (amended, 0)] {
                #expect(try await store.insert([Self.arrival(report)]) == changes)
            }
            let faults = try await store.faults(Self.query(), by: .total, limit: 10).faults
            #expect(faults.map(\.fingerprint) == [amended.fingerprint])
            #expect(faults.map(\.culprit) == ["named()"] && faults.map(\.count) == [1])
            let stalls = try await store.stalls(Self.query(), of: amended.fingerprint, longestFirst: false, limit: 10)
            #expect(stalls.map(\.isOver) == [true])
        }
    }

    /// A version that is ignored does not change what is known of the fault.
    func ignoredAliases() async throws {
        try await withStore { store in
            let nameless = Self.report(function: "code at 0x1")
            var amended = nameless
            amended.fingerprint = Self.report(function: "named()").fingerprint
            amended.aliases = [nameless.fingerprint]
            #expect(try await store.insert([Self.arrival(nameless)]) == 1)
            #expect(try await store.insert([Self.arrival(amended)]) == 0)
            let faults = try await store.faults(Self.query(), by: .total, limit: 10).faults
            #expect(faults.map(\.fingerprint) == [nameless.fingerprint])
            #expect(faults.map(\.culprit) == ["code at 0x1"])
            #expect(faults.map(\.latest) == [nameless.id])
        }
    }

    /// A run counts a fault under each of its fingerprints: before and after it had names.
    func countedAliases() async throws {
        try await withStore { store in
            let (nameless, start) = (Self.report(function: "code at 0x1").fingerprint, Self.report().startedAt)
            var named = Self.report(function: "named()")
            named.aliases = [nameless]
            #expect(try await store.insert([Self.arrival(named)]) == 1)
            var run = RunRecord(
                startedAt: start.advanced(byNanoseconds: -1),
                updatedAt: start.advanced(byNanoseconds: 1_000_000_000),
                host: .init(name: "web1"),
                service: .init(name: "shop"),
                process: .init(pid: 7),
                monitorVersion: "1"
            )
            run.repeated = [(nameless, 3), (named.fingerprint, 5)].map { fingerprint, count in
                .init(
                    fingerprint: fingerprint,
                    repeats: .init(
                        count: count,
                        report: nil,
                        firstAt: start,
                        lastAt: start,
                        totalNs: 900,
                        longestNs: 400
                    ),
                    label: "main"
                )
            }
            #expect(try await store.insert([Arrival(json: run.json(), team: "a", now: Self.now)]) == 1)
            let faults = try await store.faults(Self.query(), by: .total, limit: 10).faults
            #expect(faults.map(\.fingerprint) == [named.fingerprint])
            #expect(faults.map(\.count) == [9])
        }
    }
}
