public import StallReports

/// Why a gate cannot judge: data is missing that it needs.
public enum Doubt: Hashable, Sendable {
    /// The directory cannot be read.
    case directory(ReportError)
    /// A file in it cannot be read.
    case file(ReportError)
    /// No monitor has left a run record.
    case noRun
    /// A monitor ran, and watched for less than a second according to its record.
    case watchedNothing(run: ULID)
    /// A monitor is still running, and has not watched for a second yet.
    case justStarted(run: ULID)
    /// A process was killed or crashed, and nothing shows what happened after its last run record: it left no live record.
    case endUnknown(run: ULID, since: Timestamp)
    /// A monitor switched itself off.
    case disarmed(run: ULID)
    /// Reports that a monitor could not write, or that no longer exist.
    case missingReports(run: ULID, count: Int64)
    /// Stalls that were only counted, and that neither a report nor the run record attributes to a fault.
    case unaccounted(run: ULID, count: Int64)
    /// Stalls that were only counted, and nothing says whether they are among those that were asked for.
    case unplaced(run: ULID, count: Int64)
    /// A stall that has not ended, and may still become longer than permitted.
    case underWay(ULID)
    /// An allowance's prefix that matches several fingerprints.
    case ambiguous(FingerprintPrefix)
    /// Nothing to which a budget applies was watched.
    case unwatchedBudget(String)
    /// A budget limits turns, and no loop to which it applies records its turn durations. Nil: the limits of the whole.
    case noTurnDurations(String?)

    /// Stable, for programs.
    public var code: String {
        switch self {
        case .directory(let error), .file(let error): error.code.name
        case .noRun: "no_run"
        case .watchedNothing: "watched_nothing"
        case .justStarted: "just_started"
        case .endUnknown: "end_unknown"
        case .disarmed: "disarmed"
        case .missingReports: "missing_reports"
        case .unaccounted: "unaccounted_stalls"
        case .unplaced: "unplaced_stalls"
        case .underWay: "under_way"
        case .ambiguous: "ambiguous_prefix"
        case .unwatchedBudget: "unwatched_budget"
        case .noTurnDurations: "no_turn_durations"
        }
    }
}

extension Doubt: CustomStringConvertible {
    /// For display; made visible.
    public var description: String {
        switch self {
        case .directory(let error), .file(let error):
            "\(VisibleText.of(error.path ?? "")): \(error)"
        case .noRun:
            "no run record: nothing says that a monitor ran; start one in the process under test"
        case .watchedNothing(let run):
            "run \(run): the monitor watched for less than a second; let the process run longer and end in order, watch its loop, or look for a full disk"
        case .justStarted(let run):
            "run \(run): it has watched for less than a second, and goes on; judge later, or let it watch its loop"
        case .endUnknown(let run, let since):
            "run \(run): its process ended without closing it, and nothing is known after \(since); keep its live-*.bin file with the reports, or end the process in order"
        case .disarmed(let run):
            "run \(run): the monitor switched itself off; its run record says why"
        case .missingReports(let run, let count):
            "run \(run): \(count) of its reports are missing; look for a full disk or files that cannot be read, or raise the directory's limits"
        case .unaccounted(let run, let count):
            "run \(run): \(count) stalls were only counted, and nothing says of which faults, or how long they lasted; report more of them (repeats in the configuration), or mend the faults that are known"
        case .unplaced(let run, let count):
            "run \(run): \(count) stalls were only counted, and nothing tells whether they are among those asked for; ask for fewer conditions, report more of them (repeats in the configuration), or update a monitor that does not note their label, type and kind"
        case .underWay(let stall):
            "stall \(stall): still under way, and not yet as long as is permitted; judge when it is over, or end the process"
        case .ambiguous(let prefix):
            "\(prefix), which is allowed (by --allow, or as the fingerprint of an allowance in the budget's file), fits more than one fingerprint; give more of it"
        case .unwatchedBudget(let name):
            "budget \(VisibleText.of(name, limit: 80)): nothing that it is for was watched; look for a misspelt service, label or type, or give it severity warning or off"
        case .noTurnDurations(let name):
            (name.map { "budget \(VisibleText.of($0, limit: 80)): " } ?? "")
                + "a limit on turns (\(name == nil ? "--max-turn-p99, --max-turn" : "maxTurnP99, maxTurn")), and no loop that it is for tells how long its turns take in the time asked for; leave the limit out, or judge whole runs of a run loop"
        }
    }
}
