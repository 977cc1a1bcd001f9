import StallReading
import StallReports

/// A stack, innermost frame first. Own frames are marked, library frames are folded.
struct StackListing {
    let stack: StallReport.Stack
    let modules: [StallReport.Module]
    /// Whether the stalled threads are workers of a task pool.
    var isOfPool = false
    var showsAllFrames = false
    /// What shows all frames.
    var fullHint = "--full"

    /// The largest number of frames printed for one stack.
    static let limit = 1024

    var lines: [StyledText] {
        [header] + frameLines
    }

    /// The lines without a heading.
    var frameLines: [StyledText] {
        var lines: [StyledText] = []
        var next = 0
        var rest = awaiting
        for part in parts {
            lines.append(line(part))
            next += part.count
            if let from = stack.async?.from, next > from {
                lines += rest
                rest = []
            }
        }
        return lines + rest + notes
    }

    /// The awaiting functions. They follow the frame that the first of them awaits, and come before the executor's frames.
    private var awaiting: [StyledText] {
        guard let async = stack.async else { return [] }
        let task = async.task.map { " (task \($0))" } ?? ""
        var lines: [StyledText] = []
        var rest = async.frames[...]
        while let frame = rest.first {
            let folded = rest.prefix { !isShown($0, of: async) }.count
            if folded > 1 {
                lines.append("       \("… \(folded) library functions await (\(fullHint) shows them)", .dim)")
            } else {
                lines.append(awaitingLine(frame))
            }
            rest = rest.dropFirst(max(1, folded))
        }
        return lines + ["          \(Self.end(async.ends) + task, .dim)"]
    }

    /// All frames are shown if none is an own one.
    private func isShown(_ frame: StallReport.Frame, of async: StallReport.AsyncCallers) -> Bool {
        showsAllFrames || frame.own || !async.frames.contains(where: \.own)
    }

    private func awaitingLine(_ frame: StallReport.Frame) -> StyledText {
        let mark: StyledText = frame.own ? "\("▶", .bold)" : " "
        let name = StyledText(Self.name(of: frame), frame.own ? .bold : Self.isMadeUp(frame) ? .dim : nil)
        let kind: StyledText = frame.kind == .inlined ? " \("(inlined)", .dim)" : ""
        return
            "  \(mark)   \("await", .dim)  \(name)\(kind)\(Self.place(in: frame))  \(moduleName(of: frame), .dim)"
    }

    /// Whether the compiler made this function, so that it has no source code: the forwarder of a closure, an adapter between two calling
    /// conventions, a witness, a dispatch thunk. By the end of the mangled name: a report is not trusted, and a short name in it can take
    /// gigabytes in its demangled form.
    private static func isMadeUp(_ frame: StallReport.Frame) -> Bool {
        guard frame.line == nil, let symbol = frame.symbol, symbol.hasPrefix("$s") else { return false }
        var name = symbol[...]
        // The part that goes on after an `await`, `TQ0_`; and the number of a copy, `.207`.
        if name.hasSuffix("_"), let part = name.lastIndex(of: "T") { name = name[..<part] }
        if let copy = name.lastIndex(of: ".") { name = name[..<copy] }
        return ["TA", "TR", "TW", "Tj"].contains(where: name.hasSuffix)
    }

    private static func end(_ end: AsyncEnd) -> String {
        switch end {
        case .task: "the task starts here"
        case .asyncLet: "an async let starts here, in a task of its own"
        case .taskGroup: "a child task of a task group starts here"
        case .limit: "more functions await than a report holds"
        default: "who awaits this is not known"
        }
    }

    private var header: StyledText {
        let isWorkers = isOfPool && stack.role == .stalled
        if let threads = stack.threads {
            let kind = isWorkers ? "workers" : "other threads"
            return "\("Stack of \(threads.count) \(kind)", .bold) \(Self.listed(threads))"
        }
        let time = stack.sampledNs.map { " over \(DurationText(nanoseconds: $0).short)" } ?? ""
        let count = stack.count > 1 ? ", seen \(stack.count) times\(time)" : ""
        let method = stack.method.map { ", \(Self.words($0))" } ?? ""
        let role = stack.role.rawValue.replacing("_", with: " ")
        return
            "\(isWorkers ? "Stack of the worker" : "Stack of the \(role) thread", .bold) \(stack.thread.numberAndName)\(method)\(count)"
    }

    private static func words(_ method: CaptureMethod) -> String {
        switch method {
        case .quiet: "read without stopping it"
        case .signal: "taken by a signal"
        default: "\(method) capture"
        }
    }

    /// Thread names with their counts, then thread ids.
    private static func listed(_ threads: [StallReport.Thread]) -> String {
        let numbers = threads.prefix(8).map { "\($0.id)" }.joined(separator: " ")
        let names = Dictionary(grouping: threads) { $0.name ?? "?" }.sorted { $0.key < $1.key }
        let counts = names.map { $0.value.count > 1 ? "\($0.value.count)× \($0.key)" : $0.key }
        return "\(counts.joined(separator: ", ")) (\(numbers)\(threads.count > 8 ? " …" : ""))"
    }

    private var notes: [StyledText] {
        if let error = stack.error {
            return [stack.frames.isEmpty ? "  no stack: \(error)" : "  ends here: \(error)"]
        }
        return stack.complete ? [] : ["  the stack goes on, but could not be followed further"]
    }

    private func line(_ part: Part) -> StyledText {
        switch part {
        case .folded(let count): return "       \("… \(count) library frames (\(fullHint) shows them)", .dim)"
        case .repeated(let recursion): return "       \("↑ repeated \(recursion.count) times", .dim)"
        case .cut(let count): return "       \("… \(count) more frames (--format json shows them)", .dim)"
        case .leftOut(let count): return "       \("… \(Self.grouped(count)) frames left out …", .dim)"
        case .frame(let index):
            let frame = stack.frames[index]
            let number = StyledText(String(repeating: " ", count: max(0, 4 - "\(index)".count)) + "\(index)")
            let mark: StyledText = frame.own ? "\("▶", .bold)" : " "
            let name = StyledText(Self.name(of: frame), frame.own ? .bold : nil)
            let kind: StyledText = frame.kind.map { " \("(\($0))", .dim)" } ?? ""
            return "  \(mark)\(number)  \(name)\(kind)\(Self.place(in: frame))  \(moduleName(of: frame), .dim)"
        }
    }

    /// With thousands separators: 98,976.
    private static func grouped(_ count: Int) -> String {
        let digits = Array(String(count))
        return digits.indices.reduce(into: "") { text, index in
            if index > 0 && (digits.count - index).isMultiple(of: 3) { text.append(",") }
            text.append(digits[index])
        }
    }

    private static func name(of frame: StallReport.Frame) -> String {
        frame.function ?? frame.symbol ?? frame.offset.map { "code at \($0)" } ?? "\(frame.address)"
    }

    /// The source line; otherwise the offset in the function.
    private static func place(in frame: StallReport.Frame) -> StyledText {
        if let place = frame.sourcePlace { return "  \(place)" }
        // Without a name the address itself is shown.
        guard let offset = frame.functionOffset, frame.function ?? frame.symbol != nil else { return "" }
        return " \("+ \(offset)", .dim)"
    }

    private func moduleName(of frame: StallReport.Frame) -> String {
        guard let module = modules.module(of: frame) else {
            return (frame.function ?? frame.symbol) == nil
                ? "in no module: code made at run time" + Self.doubt(of: frame) : ""
        }
        return fileName(ofPath: module.path) + Self.doubt(of: frame)
    }

    private static func doubt(of frame: StallReport.Frame) -> String {
        switch frame.foundBy {
        case .stackScan: " (guessed)"
        case .framePointer: " (a caller before it may be missing)"
        default: ""
        }
    }
}

/// A tree of stacks as lines: the share, then the call, indented where paths branch.
struct StackTreeListing {
    let tree: StackTree
    var style = PageStyle()

    var lines: [StyledText] { tree.lines(showsAll: style.showsAllFrames).map(text) }

    private func text(_ line: StackTree.Line) -> StyledText {
        switch line.part {
        case .call(let call, let share): text(line.depth, share, Self.text(call))
        case .folded(let count):
            text(line.depth, nil, "\("… \(count) library calls (\(style.fullHint) shows them)", .dim)")
        case .rare(let count): text(line.depth, nil, "\("… \(quantity(count, "way")) of less than 1 %", .dim)")
        case .more: "          \("… more calls (--format json has them)", .dim)"
        }
    }

    private func text(_ depth: Int, _ share: Double?, _ text: StyledText) -> StyledText {
        let percent = share.map { "\(Int(saturating: ($0 * 100).rounded())) %" } ?? ""
        let room = String(repeating: " ", count: max(0, 5 - percent.count))
        return "  \(room)\(percent, .dim) \(String(repeating: "  ", count: depth))\(text)"
    }

    private static func text(_ call: StackTree.Call) -> StyledText {
        let mark: StyledText = call.own ? "\("▶", .bold)" : " "
        let name = StyledText(call.name, call.own ? .bold : nil, limit: 200)
        return "\(mark) \(name)  \(StyledText(call.place ?? "", .dim, limit: 100))"
    }
}
