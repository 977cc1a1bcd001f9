import Foundation
import StallReading
import StallReports
import Symbolication
import TestSupport
import Testing

@testable import StallMonitor

/// A small server that stalls by computing or by sleeping; copied, stripped with binutils, and named again from the
/// unstripped copy.
@Suite("A server without symbols", .serialized, .timeLimit(.minutes(60)))
struct StrippedServerTests {
    private let folder = TemporaryDirectory()

    private static let host = URL.built("cause-host").path

    @discardableResult
    private static func run(_ tool: String, _ arguments: [String]) throws -> Int32 {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = [tool] + arguments
        process.standardOutput = FileHandle.nullDevice
        try process.run()
        process.waitUntilExit()
        return process.terminationStatus
    }

    /// The path of a copy in a folder of its own.
    private func copy(_ name: String, strip options: [String]?) throws -> String {
        let place = "\(folder.path)/\(UUID())"
        try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
        try FileManager.default.copyItem(atPath: Self.host, toPath: "\(place)/\(name)")
        if let options { try #require(try Self.run("strip", options + ["\(place)/\(name)"]) == 0) }
        return "\(place)/\(name)"
    }

    /// The longest stall of a run, and its place. If the machine let fewer than three stacks be taken, the run is repeated, and the stall
    /// with most stacks is returned. One stack alone may mislead: of twelve of a computing server, one shows it reading the clock, and
    /// without names the function for that counts as the server's own.
    private func stall(
        _ server: String,
        _ scenario: String,
        by loader: String? = nil
    ) async throws -> (report: StallReport, reports: String) {
        var best: (report: StallReport, reports: String, stacks: Int)?
        for _ in 0..<8 where best.map({ $0.stacks < 3 }) ?? true {
            let reports = "\(folder.path)/reports-\(UUID())"
            let arguments = [reports, scenario, "900"]
            _ = try await onThread {
                if let loader { try Self.run(loader, [server] + arguments) } else { try Self.run(server, arguments) }
            }
            let found = try ReportReader(path: reports).contents().reports.max { $0.durationNs < $1.durationNs }
            guard let found, found.state == .recovered else { continue }
            let stacks = found.stacks.filter { !$0.frames.isEmpty }.reduce(0) { $0 + $1.count }
            if stacks > best?.stacks ?? 0 { best = (found, reports, stacks) }
        }
        let found = try #require(best, "no run has a stall with a stack")
        return (found.report, found.reports)
    }

    private func isProvisional(_ report: StallReport) throws -> Bool {
        let culprit = try #require(report.culprit)
        let stack = report.stacks[culprit.stack]
        let frame = try #require(
            culprit.isAwaiting == true ? stack.async?.frames[culprit.frame] : stack.frames[culprit.frame]
        )
        #expect(frame.module.map { report.modules[$0].path } == report.process.executable, "\(frame)")
        #expect(culprit.function == nil && report.culpritName?.hasSuffix("(no symbols)") == true)
        #expect(report.missingNames?.contains("stall-monitor symbolicate") == true)
        #expect(report.monitor.symbolicationNote == report.missingNames)
        #expect(!report.cause.summary.contains("mostly in"))
        return report.isProvisional == true
    }

    private func named(_ report: StallReport, _ symbols: String) -> StallReport {
        let search = SymbolSearch(directories: [symbols], systemDirectories: [])
        return ReportNaming(symbolicator: Symbolicator(search: search)).findings(for: report).amendment.applied(
            to: report
        )
    }

    @Test("Each fault has the same identity on every host; names from a file of the same build replace it")
    func stripped() async throws {
        let whole = try copy("anything at all", strip: nil)
        let symbols = URL(filePath: whole).deletingLastPathComponent().path
        let (one, other) = (try copy("shop", strip: []), try copy("store", strip: ["--strip-all"]))
        var names: [Fingerprint] = []
        for scenario in ["compute", "sleep"] {
            let (first, reports) = try await stall(one, scenario)
            let (second, _) = try await stall(other, scenario)
            #expect(try isProvisional(first) && isProvisional(second))
            #expect(first.fingerprint == second.fingerprint, "\(first.stacks) \(second.stacks)")
            names.append(first.fingerprint)

            let (expected, _) = try await stall(whole, scenario)
            #expect(expected.isProvisional == nil && expected.missingNames == nil)
            let mended = named(first, symbols)
            #expect(mended.culprit?.function == expected.culprit?.function)
            #expect(mended.fingerprint == expected.fingerprint, "\(mended.stacks) \(expected.stacks)")
            #expect(mended.aliases == [first.fingerprint] && mended.isProvisional == nil)
            #expect(mended.missingNames == nil && mended.monitor.symbolicationNote == nil)
            if first.cause.verdict == .onCPU { #expect(mended.cause.summary.contains("mostly in ")) }
            #expect(named(mended, symbols) == mended)

            let directory = ReportDirectory(path: reports)
            let outcome = try directory.amend(first.id) { report in
                let search = SymbolSearch(directories: [symbols], systemDirectories: [])
                return ReportNaming(symbolicator: Symbolicator(search: search)).findings(for: report).amendment
            }
            #expect(outcome == .written)
            #expect(try ReportReader(path: reports).report(first.id) == mended)
        }
        #expect(names[0] != names[1])
    }

    @Test("Without debug information alone, everything keeps its name and its identity")
    func withoutDebugInformation() async throws {
        let server = try copy("shop", strip: ["-g"])
        let (report, _) = try await stall(server, "sleep")
        let (expected, _) = try await stall(Self.host, "sleep")
        #expect(report.culprit?.function == expected.culprit?.function && report.culprit?.function != nil)
        #expect(report.fingerprint == expected.fingerprint && report.isProvisional == nil)
    }

    private static let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].first {
        FileManager.default.fileExists(atPath: $0)
    }

    @Test(
        "A server that is started as an argument of the dynamic loader has its own name, functions and faults",
        .enabled(if: loader != nil)
    )
    func startedByLoader() async throws {
        let (report, _) = try await stall(Self.host, "sleep", by: Self.loader)
        let (expected, _) = try await stall(Self.host, "sleep")
        #expect(report.process.executable == expected.process.executable)
        #expect(report.service?.name == "cause-host" && expected.service?.name == "cause-host")
        #expect(report.culprit?.function == expected.culprit?.function && report.fingerprint == expected.fingerprint)
    }
}
