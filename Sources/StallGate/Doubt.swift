public import StallReports

/// Why a gate cannot judge: something is missing that would have to be known.
public enum Doubt: Hashable, Sendable {
    /// The directory cannot be read.
    case directory(ReportError)
    /// A file in it cannot be read.
    case file(ReportError)
    /// No monitor has left a run record.
    case noRun
    /// A monitor ran, and watched for less than a second, as far as it could write down.
    case watchedNothing(run: ULID)
    /// A monitor runs still, and has not watched for a second yet.
    case justStarted(run: ULID)
    /// A process was killed or crashed, and nothing tells what happened after its last run record: no live record of it was there.
    case endUnknown(run: ULID, since: Timestamp)
    /// A monitor switched itself off.
    case disarmed(run: ULID)
    /// Reports that a monitor could not write, or that are no longer there.
    case missingReports(run: ULID, count: Int64)
    /// Stalls that were only counted, and that neither a report nor the run record tells of by their fault.
    case unaccounted(run: ULID, count: Int64)
    /// A stall that is not over, and may yet become longer than permitted.
    case underWay(ULID)
    /// A prefix to allow that fits several fingerprints.
    case ambiguous(FingerprintPrefix)
    /// Nothing that a budget is for was watched.
    case unwatchedBudget(String)
    /// A budget limits turns, and no loop that it is for counts how long its turns take. Nil: the limits of the whole.
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
        case .underWay: "under_way"
        case .ambiguous: "ambiguous_prefix"
        case .unwatchedBudget: "unwatched_budget"
        case .noTurnDurations: "no_turn_durations"
        }
    }
}

extension Doubt: CustomStringConvertible {
    /// For a person; made visible.
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
