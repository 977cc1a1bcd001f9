import StallReports

/// The former scheme, to show what the present one improves.
enum FingerprintV1 {
    /// What was hashed: file and symbol of the first eight own frames; equal ones in a row once; without inlined
    /// calls.
    static func input(_ frames: [StallReport.Frame], _ modules: [StallReport.Module]) -> [[String]] {
        // Awaiting functions were not part of it.
        let frames = frames.filter { $0.kind == nil }
        let own = frames.filter(\.own)
        var taken: [[String]] = []
        for frame in own.isEmpty ? frames : own where taken.count < 8 {
            let module = frame.module.map { modules[$0] }
            let name = frame.symbol ?? frame.function ?? "\(module?.buildID ?? "?")+\(frame.offset ?? frame.address)"
            let identity = [module?.path ?? "?", name]
            if identity != taken.last { taken.append(identity) }
        }
        return taken
    }
}
