import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports
import Symbolication

/// Names for the addresses of a stall, of this process or of another one that is watched from outside. Confined to the reporter's
/// thread.
struct StallSymbols {
    private let run: RunIdentity
    private let symbolicator = Symbolicator()
    private let ownCode: OwnCode

    init(run: RunIdentity, ownCode: OwnCode) { (self.run, self.ownCode) = (run, ownCode) }

    /// The process in which the loop stalled.
    func process(of stall: StallObservation) -> ProcessIdentity { stall.otherProcess?.identity ?? run.process }

    /// Finds names. Includes those that are known without symbols: the functions in which the loop itself calls out.
    func resolve(_ addresses: [ResolvableAddress], in process: OutsideProcess?) -> Resolution {
        if let process { return process.symbolicator.resolve(addresses, budget: .tool) }
        var resolution = symbolicator.resolve(addresses)
        for (index, frame) in resolution.frames.enumerated() where frame.symbol == nil {
            guard let offset = frame.functionOffset,
                let name = CalloutFrames.name(ofFunctionAt: frame.address &- offset)
            else { continue }
            resolution.frames[index].symbol = name
            (resolution.frames[index].function, resolution.frames[index].language) = (name, .c)
        }
        return resolution
    }

    func isOwn(_ frame: SymbolicatedFrame, _ module: LoadedModule?, of stall: StallObservation) -> Bool {
        let executable = process(of: stall).executable ?? ""
        if stall.otherProcess != nil {
            return ownCode.isOwnOfAnyMake(frame, module: module, executable: executable)
        }
        return ownCode.isOwn(frame, module: module, executable: executable)
    }

    /// The sample; if a signal interrupted its system call, the call gets its name from the stack.
    func settled(_ sample: StackSample, in process: OutsideProcess?) -> StackSample {
        guard let site = sample.site, !site.continued.isEmpty else { return sample }
        var sample = sample
        let innermost = sample.stack.frames.prefix(3).map(\.resolvableAddress)
        let names = (process?.symbolicator ?? symbolicator).resolve(innermost)
        sample.site = site.settled(by: names.frames.compactMap(\.symbol))
        return sample
    }

    /// The name of a job: the first own function among those in which it began and those that awaited it, otherwise the first
    /// that is not the runtime's. Nil if there is none. A new task begins in a function of the runtime, which calls the server's.
    func nameOfJob(at addresses: [UInt]) -> String? {
        let found = resolve(addresses.map { ResolvableAddress(address: $0, kind: .resumption) }, in: nil)
        let named = found.frames.filter { $0.function ?? $0.symbol != nil }
        let module = { (frame: SymbolicatedFrame) in
            frame.moduleIndex.flatMap { found.modules.indices.contains($0) ? found.modules[$0] : nil }
        }
        let own = named.first { ownCode.isOwn($0, module: module($0), executable: run.process.executable ?? "") }
        // Parts of the runtime are compiled into the executable, as copies for the types that they are used with.
        let isRuntime = { (frame: SymbolicatedFrame) in
            ["Swift", "_Concurrency"].contains(frame.swiftModule)
                || module(frame)?.path.contains("/libswift_Concurrency") == true
        }
        let other = named.first { !isRuntime($0) }
        return (own ?? other).flatMap { $0.symbol.map(Demangler.shortName) ?? $0.function }
    }
}
