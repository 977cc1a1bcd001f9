import StackCapture
import StallReports
import Symbolication

// Captures in the terms of reports.

extension StallReport.Thread {
    init(_ thread: ProcessThread) {
        self.init(id: thread.threadID, name: thread.name, state: thread.state.map(String.init))
    }
}

extension StallReport.Module {
    init(_ module: LoadedModule) {
        self.init(path: module.path, buildID: module.buildID, loadBase: Address(UInt64(module.loadBase)))
    }
}

extension CapturedStack.Method {
    var name: String {
        switch self {
        case .quiet: "quiet"
        case .signal: "signal"
        case .stopped: "stopped"
        }
    }
}

extension SampleDocument.Cost {
    /// - Parameter samplerCPU: of this process.
    init(_ cost: SamplingCost, samplerCPU: Int64) {
        self.init(
            stops: Int64(clamping: cost.stops),
            heldNs: Int64(clamping: cost.heldNanoseconds),
            longestHeldNs: Int64(clamping: cost.longestHeldNanoseconds),
            waitedNs: Int64(clamping: cost.waitedNanoseconds),
            callsRestarted: Int64(clamping: cost.callsRestarted),
            stopsGivenUp: Int64(clamping: cost.stopsGivenUp),
            samplerCPUNs: samplerCPU
        )
    }
}
