import RunLoopKit
import StallReports

// The sentences about a thread that ran, or could have.

extension Diagnosis {
    /// `98 % of 250 ms on a CPU, 240 ms in the program and 5 ms in the kernel`
    static func computing(_ window: EvidenceWindow?) -> String {
        guard let window, let parts = window.cpuParts else { return "\(share(window, \.cpu)) on a CPU" }
        return "\(share(window, \.cpu)) on a CPU, \(milliseconds(parts.user)) in the program and "
            + "\(milliseconds(parts.system)) in the kernel"
    }

    static func starving(_ window: EvidenceWindow?) -> String {
        let queue = "\(share(window, \.runDelay)) in the queue for one"
        switch scarcity(window) {
        case .quota(let percent, let throttled, let periods):
            let time =
                window.map { "\(milliseconds($0.runDelay, unit: false)) of \(milliseconds($0.length))" } ?? "long"
            return
                "The thread was ready to run and got no CPU: throttled by the cgroup quota of \(number(percent)) % of a CPU, "
                + "\(time), in \(throttled) of \(periods) periods."
        case .stolen(let time):
            return "The thread was ready to run and got no CPU: \(queue), while the hypervisor gave "
                + "\(milliseconds(time)) of each CPU to others."
        case .pinned(let allowed, let all):
            return "The thread was ready to run and got no CPU: \(queue); it may use \(allowed) of \(all) CPUs only"
                + "\(pressure(window))."
        case .crowd(let runnable, let processors):
            return "The thread was ready to run and got no CPU: \(queue), with \(runnable) threads ready for "
                + "\(processors) CPU\(processors == 1 ? "" : "s")\(pressure(window))."
        case .unknown:
            return "The thread was ready to run and got no CPU: \(queue)\(pressure(window))."
        }
    }

    /// `, CPU pressure 88 %, in its cgroup 40 %`
    private static func pressure(_ window: EvidenceWindow?) -> String {
        guard let window, window.length > .zero, let supply = window.supply else { return "" }
        func percent(_ pressure: Duration) -> Int {
            Int(saturating: (100 * min(1, pressure / window.length)).rounded())
        }
        var text = supply.systemPressure.map { ", CPU pressure \(percent($0)) %" } ?? ""
        if let own = supply.cgroupPressure { text += ", in its cgroup \(percent(own)) %" }
        return text
    }

    package static func share(_ window: EvidenceWindow?, _ part: (EvidenceWindow) -> Duration) -> String {
        guard let window, window.length > .zero else { return "some time" }
        let percent = Int(saturating: (100 * (part(window) / window.length)).rounded())
        return "\(min(percent, 100)) % of \(milliseconds(window.length))"
    }

    package static func milliseconds(_ duration: Duration, unit: Bool = true) -> String {
        "\(duration.nanoseconds / 1_000_000)" + (unit ? " ms" : "")
    }

    /// Without a fraction that is none.
    private static func number(_ value: Double) -> String {
        value == value.rounded() && abs(value) < 1e9 ? "\(Int(value))" : "\((value * 10).rounded() / 10)"
    }
}
