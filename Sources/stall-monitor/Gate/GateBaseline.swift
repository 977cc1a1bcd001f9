import ArgumentParser
import Glibc
import StallGate
import StallReading
import StallReports

struct GateBaselineCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "baseline",
        abstract: "Records the stalls of a healthy run as a baseline for 'gate --baseline'.",
        subcommands: [Record.self]
    )

    struct Record: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "record",
            abstract: "Makes a baseline from one or more report directories.",
            discussion: """
                EXAMPLES
                  stall-monitor gate baseline record ./stall-reports
                  stall-monitor gate baseline record run/* --output baselines

                Each directory must have a run record and be complete. All must come from one environment: the same CPUs, kernel \
                and kind of build. In a folder, a baseline gets a name made from its environment, and 'gate --baseline FOLDER' \
                uses the one that matches the run. More runs make smaller changes provable. Several \
                directories must be of runs of the same command: what varies between them is taken for bursts of stalls.

                Exit code 0: recorded. 1: a directory cannot be read or judged, or the file cannot be written. 64: wrong usage.
                """
        )

        @Argument(help: ArgumentHelp("Report directories.", valueName: "dir"), completion: .directory)
        var directories: [String] = []

        @Option(name: .shortAndLong, help: ArgumentHelp("A file, or a folder that exists.", valueName: "path"))
        var output = BaselineFile.defaultPath

        func validate() throws {
            try directories.forEach(ReportsArgument.check)
            try ReportsArgument.refuseAddresses(directories)
            if output.isEmpty { throw ValidationError("the output's name is empty") }
        }

        func run() throws {
            let baseline = try BaselineFile.record(directories.isEmpty ? [ReportDirectory.defaultPath] : directories)
            let path = try BaselineFile.write(baseline, to: output)
            let watched = DurationText(nanoseconds: baseline.watchedNs).short
            Output.note(
                "recorded \(quantity(baseline.faults.count, "fault")) of \(quantity(baseline.runs, "run")), \(watched) watched, in \(path) "
                    + "(\(baseline.environment))"
            )
        }
    }
}

/// A baseline's source: a file, a folder with one file per environment, or the report directory of a healthy run.
struct BaselineFile {
    let baseline: Baseline
    /// Where a tightened baseline is written. Nil for a report directory.
    let path: String?

    static let defaultPath = "stall-baseline.json"
    private static let prefix = "stall-baseline"

    /// - Parameter environment: the judged run's environment; it selects a file in a folder.
    init(_ path: String, for environment: Baseline.Environment?) throws {
        guard Folder.exists(path) else {
            (baseline, self.path) = (try Self.read(path), path)
            return
        }
        let files = Self.files(in: path)
        guard !files.isEmpty else {
            baseline = try Self.record([path])
            self.path = nil
            return
        }
        let found = try files.map { ($0, try Self.read($0)) }
        // If no file is for this environment, judging by the first one reports the difference.
        let chosen = found.first { $0.1.environment == environment } ?? found[0]
        (self.path, baseline) = chosen
    }

    /// A baseline of report directories. Each must be complete enough to be judged.
    static func record(_ paths: [String]) throws -> Baseline {
        var runs: [ReportReader.Overview] = []
        for path in paths {
            let overview = try ReportSources([path]).overview()
            let doubts = Gate.judge(.success(overview), by: Budget()).doubts
            if let doubt = doubts.first { throw CommandFailure("\(path) cannot be a baseline: \(doubt)") }
            runs.append(overview)
        }
        let environments = Baseline.Environment.different(in: runs.flatMap(\.runs))
        if !environments.isEmpty {
            let list = environments.map(\.description).joined(separator: "; ")
            throw CommandFailure(
                "the runs are from several environments (\(list)); record each separately, into one folder"
            )
        }
        guard let baseline = Baseline(repeats: runs, at: .now()) else {
            throw CommandFailure("there is no run to record")
        }
        return baseline
    }

    /// Writes a file, in a folder under a name made from the environment. Returns its path.
    static func write(_ baseline: Baseline, to path: String) throws -> String {
        let environment = baseline.environment
        let name = [
            prefix, environment.cpus.map { "\($0)cpu" } ?? "cpu", environment.kernel ?? "kernel",
            environment.build ?? "build",
        ].joined(separator: "-").filter { $0.isASCII && ($0.isLetter || $0.isNumber || "-.".contains($0)) }
        let file = Folder.exists(path) ? "\(path)/\(name).json" : path
        try OutputFile.write(String(decoding: baseline.json(), as: UTF8.self), to: file)
        return file
    }

    private static func read(_ path: String) throws(CommandFailure) -> Baseline {
        guard OutputFile.exists(path) else {
            throw CommandFailure(
                "there is no baseline \(path); make one with 'stall-monitor gate baseline record --output \(path)'"
            )
        }
        let bytes = try OutputFile.read(path, limit: 64 << 20)
        do throws(ReportError) {
            return try Baseline(json: bytes)
        } catch {
            throw CommandFailure(
                "\(path) is not a baseline: \(Self.reason(error)); give a file that 'stall-monitor gate baseline record' has made"
            )
        }
    }

    /// The error's own text is about reports, and for most codes says that the file can be removed.
    private static func reason(_ error: ReportError) -> String {
        switch error.code {
        case .torn: "it is empty or cut off"
        case .unsupportedSchema: error.description
        default: error.detail ?? "it is not JSON of a baseline"
        }
    }

    private static func files(in path: String) -> [String] {
        Folder.names(in: path).filter { $0.hasPrefix(prefix) && $0.hasSuffix(".json") }.map { "\(path)/\($0)" }
    }
}
