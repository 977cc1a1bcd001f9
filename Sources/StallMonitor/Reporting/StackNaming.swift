import RunLoopKit
package import StackCapture
package import StallReports
package import Symbolication

// Frames and stacks of a report, made of captured addresses and of the names that were found for them.

/// Makes stacks of captured ones and of the names that were found for all their addresses, in the same order.
struct StackMaker {
    private var names: ArraySlice<SymbolicatedFrame>
    private let modules: [LoadedModule]
    private let clock: WallClockAnchor
    private let isOwn: (SymbolicatedFrame, LoadedModule?) -> Bool

    init(_ resolution: Resolution, clock: WallClockAnchor, isOwn: @escaping (SymbolicatedFrame, LoadedModule?) -> Bool)
    {
        (names, modules) = (resolution.frames[...], resolution.modules)
        (self.clock, self.isOwn) = (clock, isOwn)
    }

    /// The next stack. Call it once for each captured stack, in the order in which their addresses were resolved.
    mutating func stack(_ captured: CapturedStack, _ thread: StallReport.Thread, _ time: MonotonicInstant)
        -> StallReport.Stack
    {
        let own = names.prefix(captured.resolvableAddresses.count)
        names = names.dropFirst(own.count)
        let calls = zip(own, captured.frames).map { name, frame in
            StallReport.Frame.calls(name, found: frame.found) { isOwn($0, $0.moduleIndex.map { modules[$0] }) }
        }
        let awaiting = own.dropFirst(calls.count).flatMap { name in
            StallReport.Frame.awaits(name) { isOwn($0, $0.moduleIndex.map { modules[$0] }) }
        }
        return StallReport.Stack(captured, calls.withoutLanguagesBelow, awaiting, thread, clock.time(of: time))
    }
}

extension [[StallReport.Frame]] {
    /// Where functions of the program's own script are known, code of other languages is the interpreter's, which another version of it
    /// has otherwise, or a library's. Where own functions of Rust are known, C is a library's. Neither is own then.
    fileprivate var withoutLanguagesBelow: Self {
        let languages = Set(joined().filter(\.own).map(\.language))
        let below: Set<SymbolicatedFrame.Language?> =
            languages.contains(nil) ? [.rust, .cPlusPlus, .c] : languages.contains(.rust) ? [.c] : []
        guard !languages.isDisjoint(with: below) else { return self }
        return map { call in
            call.map { frame in
                var frame = frame
                frame.own = frame.own && !below.contains(frame.language)
                return frame
            }
        }
    }
}

extension StallReport.Frame {
    /// Nil for code that was generated at run time, which is a script's.
    fileprivate var language: SymbolicatedFrame.Language? {
        module.map { _ in symbol.map(Demangler.language) ?? .c }
    }
}

extension CapturedStack {
    /// The addresses of the frames, then of the awaiting functions.
    var addresses: [UInt] { frames.map(\.address) + (asyncCallers?.addresses ?? []) }

    /// The same, to be looked up.
    var resolvableAddresses: [ResolvableAddress] {
        frames.map(\.resolvableAddress)
            + (asyncCallers?.addresses ?? []).map { ResolvableAddress(address: $0, kind: .resumption) }
    }
}

extension CapturedStack.Frame {
    package var resolvableAddress: ResolvableAddress {
        ResolvableAddress(address: address, isReturnAddress: found != .register)
    }
}

extension StallReport.Module {
    package init(_ module: LoadedModule) {
        self.init(path: module.path, buildID: module.buildID, loadBase: Address(UInt64(module.loadBase)))
    }
}

extension StallReport.Stack {
    /// In place of a stack that could not be taken.
    static func missing(
        _ role: StackRole,
        _ thread: StallReport.Thread,
        _ time: Timestamp,
        because reason: String
    ) -> Self {
        .init(role: role, thread: thread, capturedAt: time, complete: false, error: reason)
    }

    /// - Parameter calls: the calls of each frame.
    init(
        _ capture: CapturedStack,
        _ calls: [[StallReport.Frame]],
        _ awaiting: [StallReport.Frame],
        _ thread: StallReport.Thread,
        _ time: Timestamp
    ) {
        self.init(
            thread: thread,
            capturedAt: time,
            method: capture.method.reportName,
            complete: capture.isComplete,
            frames: Array(calls.joined()),
            leftOut: capture.leftOut.map { .init(after: calls.prefix($0.after).joined().count, count: $0.count) },
            error: capture.truncation?.sentence,
            async: capture.asyncCallers.map { callers in
                .init(
                    from: calls.prefix(callers.frame + 1).joined().count - 1,
                    frames: awaiting,
                    ends: callers.end.reportName,
                    task: callers.taskNumber.map(UInt64.init)
                )
            }
        )
    }
}

extension StallReport.Frame {
    /// The calls of an address: the inlined ones, innermost first, then the function itself.
    ///
    /// - Parameter isOwn: Called for each call as if it were a frame.
    package static func calls(
        _ name: SymbolicatedFrame,
        found: CapturedStack.Frame.Found,
        isOwn: (SymbolicatedFrame) -> Bool
    ) -> [Self] {
        var call = Self(name, own: isOwn(name))
        call.foundBy = found.origin
        return call.inlinedCalls(name, isOwn: isOwn) + [call]
    }

    /// The calls of an awaiting function: those inlined around the `await`, innermost first, then the function itself.
    ///
    /// - Parameter isOwn: Called for each call as if it were a frame.
    package static func awaits(_ name: SymbolicatedFrame, isOwn: (SymbolicatedFrame) -> Bool) -> [Self] {
        var call = Self(name, own: isOwn(name))
        (call.kind, call.foundBy) = (.awaiting, .asyncContext)
        return call.inlinedCalls(name, isOwn: isOwn) + [call]
    }

    /// The calls that were inlined into this one.
    func inlinedCalls(_ name: SymbolicatedFrame, isOwn: (SymbolicatedFrame) -> Bool) -> [Self] {
        name.inlined.map { inlined in
            var asFrame = name
            (asFrame.symbol, asFrame.function) = (inlined.symbol, inlined.function)
            (asFrame.swiftModule, asFrame.location) = (inlined.swiftModule, inlined.location)
            asFrame.functionOffset = nil
            var frame = Self(asFrame, own: isOwn(asFrame))
            (frame.kind, frame.foundBy) = (.inlined, foundBy)
            (frame.address, frame.module, frame.offset) = (address, module, offset)
            return frame
        }
    }

    init(_ frame: SymbolicatedFrame, own: Bool) {
        self.init(
            address: Address(UInt64(frame.address)),
            module: frame.moduleIndex,
            offset: frame.moduleIndex.map { _ in Address(UInt64(frame.moduleOffset)) },
            function: frame.symbol.map(Demangler.shortName),
            symbol: frame.symbol,
            functionOffset: frame.functionOffset.map { Address(UInt64($0)) },
            file: frame.location?.file ?? frame.scriptFile,
            line: frame.location?.line,
            column: frame.location?.column,
            own: own
        )
    }
}

extension SymbolicatedFrame {
    /// The file of a script's function; Python does not name its line.
    fileprivate var scriptFile: String? { moduleIndex == nil ? symbol.flatMap(GeneratedName.init)?.file : nil }
}

// MARK: - The other threads

extension SymbolicatedStacks {
    /// The most frames that a report has of other threads, in about 8 MB. With far more of them no reader would open it, and the server would
    /// need much memory to make it.
    static let framesOfOthers = 1 << 14

    /// Adds the stacks of the other threads, those of the most threads first. Equal ones are added once.
    mutating func add(
        _ others: ThreadStacks,
        at time: MonotonicInstant,
        clock: WallClockAnchor,
        name: ([ResolvableAddress]) -> Resolution,
        isOwn: @escaping (SymbolicatedFrame, LoadedModule?) -> Bool
    ) {
        var room = Self.framesOfOthers
        let kept = others.groups.prefix {
            room -= $0.stack.frames.count
            return room >= 0
        }
        let resolution = name(kept.flatMap(\.stack.resolvableAddresses))
        let places = resolution.modules.map { place(of: StallReport.Module($0)) }
        var maker = StackMaker(resolution, clock: clock, isOwn: isOwn)
        let missing = { (thread: StallReport.Thread, reason: String) in
            StallReport.Stack.missing(.other, thread, clock.time(of: time), because: reason)
        }
        for (number, group) in others.groups.enumerated() {
            let threads = group.threads.map { StallReport.Thread(id: $0.threadID, knownName: $0.name) }
            var stack =
                number < kept.count
                ? maker.stack(group.stack, threads[0], time)
                : missing(threads[0], "The report has no room for this stack.")
            for (index, frame) in stack.frames.enumerated() {
                stack.frames[index].module = frame.module.map { places[$0] }
            }
            (stack.role, stack.count) = (.other, threads.count)
            stack.threads = threads.count > 1 ? threads : nil
            stacks.append(stack)
        }
        stacks += others.missing.map { missing(.init(id: $0.threadID, knownName: $0.name), $0.error.description) }
    }

    /// The index of the module in the report. Adds it if it is new.
    private mutating func place(of module: StallReport.Module) -> Int {
        if let known = modules.firstIndex(of: module) { return known }
        modules.append(module)
        return modules.count - 1
    }
}

extension StallReport.Thread {
    /// - Parameter name: Empty if it could not be read.
    fileprivate init(id: Int32, knownName name: String) { self.init(id: id, name: name.isEmpty ? nil : name) }
}

// MARK: - What a report's fingerprint is computed from

extension StallReport.Frame {
    /// Own code without a name.
    var isNamelessOwn: Bool { own && symbol == nil && function == nil }
}

extension Fingerprint {
    /// The fingerprint of a stall, from the culprit and its callers.
    ///
    /// - Parameter executable: the path of the process's executable.
    package static func make(
        kind: StallKind,
        fault frames: [StallReport.Frame],
        modules: [StallReport.Module],
        executable: String?
    ) -> Fingerprint {
        make(kind: kind, frames: frames, modules: modules, executable: executable) { SourceName(symbol: $0) }
    }
}

extension Fingerprint.SourceName {
    package init(symbol: String) {
        let function = SourceFunction(symbol: symbol)
        let isSwift = function.swiftModule != nil
        self.init(
            function.name,
            enclosing: function.enclosing,
            isQualified: isSwift,
            isTransparent: function.isMadeUp || function.swiftModule == "Swift"
        )
    }
}
